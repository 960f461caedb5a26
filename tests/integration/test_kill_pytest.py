"""The kill matrix with pytest in the loop, alone and under xdist: nothing survives, and the record knows why.

Ctrl-C goes to the whole foreground group, as a terminal sends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_gpuserve.serving import lock_file, processes, sockets
from pytest_gpuserve.serving.lease import Leases

sys.path.append(str(Path(__file__).parent))  # the helpers beside this file are scripts, not a package
from marked import PATIENCE_S, Marked

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
BAR_S = 15.0
TOGETHER = 4
SUITE = """\
suite: life
server:
  engine: stand-in
  model: example/none
  timeouts: {{shutdown: 3s}}
workloads:
  decode: {{concurrency: 1, requests: 1, input_tokens: 8, output_tokens: {tokens}, warmup: 0, rounds: 1}}
  short: {{concurrency: 1, requests: 1, input_tokens: 8, output_tokens: 4, warmup: 0, rounds: 1}}
configs:
  - id: one
    workloads: [decode]
    args: {{mode: {mode}}}
    gate: none
"""
OTHER = """\
  - id: two
    gate: none
    workloads: [short]
"""
MODES = {"starting": ("loads", 1), "serving": ("serve", 100_000), "stopping": ("never-ends", 1)}
"""Mode of the stand-in and length of its answer that make a run dwell where it is to be killed."""


class Cell(NamedTuple):
    victim: str
    signal: signal.Signals
    moment: str
    workers: int = 0

    def __str__(self) -> str:
        return f"{self.victim}-{self.signal.name}-{self.moment}"


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
CELLS = [
    *(Cell("pytest", number, moment) for number in SIGNALS for moment in MODES),
    *(
        Cell(who, number, moment, 1)
        for who in ("controller", "worker")
        for number in SIGNALS
        for moment in MODES
    ),
    *(
        Cell(who, signal.SIGKILL, moment)
        for who in ("supervisor", "guard", "engine", "child")
        for moment in ("starting", "serving")
    ),
]


@dataclass
class Seen:
    survivors: list[str] = field(default_factory=list)
    over_s: float = 0.0
    lease_free: bool = False
    port_free: bool = False
    status: int | None = None
    """Exit status of pytest."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """By case, from the records of the run."""
    launches: int = 0
    """Logs of servers that the run has started."""


class Run(Marked):
    """pytest on one suite, in a folder of its own with everything it needs to find the stand-in."""

    def __init__(self, folder: Path, moment: str, workers: int, other: str = "") -> None:
        mode, tokens = MODES[moment]
        (folder / "suites").mkdir(parents=True)
        (folder / "suites" / "life.yaml").write_text(SUITE.format(mode=mode, tokens=tokens) + other)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "gpuserve.local.yaml").write_text(
            f"engines: {{stand-in: {{python: {sys.executable}}}}}\nleases: {folder / 'leases'}\n"
        )
        points = folder / "path" / "stand_in_engine-1.0.dist-info"
        points.mkdir(parents=True)
        (points / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-in-engine\nVersion: 1.0\n")
        (points / "entry_points.txt").write_text(
            "[pytest_gpuserve.engines]\nstand-in = stand_in_engine:StandIn\n"
        )
        with (folder / "stdout.txt").open("w") as out:
            super().__init__(
                [
                    *(sys.executable, "-m", "pytest", "suites", "-p", "no:cacheprovider"),
                    *("-p", "xdist", "-p", "pytest_gpuserve.plugin"),
                    *(("-n", str(workers)) if workers else ()),
                    *("--gpuserve-run-dir", str(folder / "run")),
                ],
                folder,
                path=(folder / "path", HERE),
                env={
                    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
                },  # other plugins take their time, in dozens of runs
                cwd=folder,
                stdout=out,
                start_new_session=True,
            )
        self.log = folder / "run" / "logs" / "life--one-1.log"
        self.pids |= {"pytest": self.process.pid, "controller": self.process.pid}
        self.port = 0

    def get_to(self, moment: str) -> None:
        self.until_logged(self.log, "Load weight")
        self.pids["child"] = int(self.until_logged(self.log, r"plain=(\d+)")[1])
        self.learn(self.folder / "leases")
        guard = processes.read(self.pids["guard"])
        assert guard is not None
        self.pids["worker"] = guard.ppid
        self.port = next(
            int(path.stem.partition("-")[2])
            for path in (self.folder / "leases").glob("port-*.lock")
            if lock_file.read_record(str(path)).get("nonce") == self.nonce
        )
        if moment == "serving":
            self.until_logged(self.log, "request received")
        elif moment == "stopping":
            self.until_logged(self.log, "SIGTERM received")

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(p.read_text()) for p in (self.folder / "run" / "records").glob("*.json")]


def strike(run: Run, cell: Cell) -> None:
    if cell.signal == signal.SIGINT and cell.victim in ("pytest", "controller"):
        os.killpg(run.process.pid, signal.SIGINT)
    else:
        os.kill(run.pids[cell.victim], cell.signal)


def observe(cell: Cell, folder: Path) -> Seen:
    run = Run(folder, cell.moment, cell.workers)
    seen = Seen()
    try:
        run.get_to(cell.moment)
        strike(run, cell)
        seen.over_s, left = run.until_over(BAR_S)
        seen.survivors = [processes.describe(pid) for pid in left]
        seen.port_free = sockets.bind_error("127.0.0.1", run.port) is None
        Leases(folder / "leases", slots=1, environment={}).acquire(1, timeout_s=1.0).release()
        seen.lease_free = True
        seen.status = run.process.wait(PATIENCE_S)
        seen.survivors += [processes.describe(pid) for pid in run.alive_after(PATIENCE_S)]
        seen.verdicts = {record["case"]: record["verdict"] for record in run.records()}
        seen.launches = len(list((folder / "run" / "logs").glob("*.log")))
    finally:
        run.end()
    return seen


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Cell, Future[Seen]]]:
    """Every selected cell, running, a few at a time."""
    items = (item for item in request.session.items if item.path == request.path)
    params = (item.callspec.params for item in items if hasattr(item, "callspec"))
    cells = [one["cell"] for one in params if "cell" in one]
    with ThreadPoolExecutor(TOGETHER) as pool:
        yield {cell: pool.submit(observe, cell, tmp_path_factory.mktemp(str(cell)) / "run") for cell in cells}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_nothing_survives(cell: Cell, outcomes: dict[Cell, Future[Seen]]) -> None:
    seen = outcomes[cell].result()
    assert seen.survivors == []
    assert seen.over_s < BAR_S
    assert seen.lease_free
    assert seen.port_free
    assert seen.launches == 1, "what killed somebody is not tried again"
    if cell.signal == signal.SIGINT and cell.victim in ("pytest", "controller", "worker"):
        assert seen.status == 2, "interrupted"
    elif cell.victim in ("pytest", "controller"):
        assert seen.status == -cell.signal
    else:
        assert seen.status == 1
    if cell.victim in ("supervisor", "guard", "engine", "child"):
        expected = "start-failed" if cell.moment == "starting" else "crashed"
        assert seen.verdicts == {"one-decode": expected}


def test_a_killed_worker_takes_only_its_own_case_along(tmp_path: Path) -> None:
    """The other config runs on the replacement, with the lease that the dead one's supervisor has given back."""
    run = Run(tmp_path / "run", "serving", workers=1, other=OTHER)
    try:
        run.get_to("serving")
        os.kill(run.pids["worker"], signal.SIGKILL)
        assert run.process.wait(PATIENCE_S) == 1
        assert run.alive_after(PATIENCE_S) == []
    finally:
        run.end()
    logs = sorted(path.name for path in (run.folder / "run" / "logs").glob("*.log"))
    assert logs == ["life--one-1.log", "life--two-1.log"]
    assert {r["case"]: r["verdict"] for r in run.records()}["two-short"] == "measured"
    assert "'suites/life.yaml::test_serving[one-decode]'" in (run.folder / "stdout.txt").read_text()


@pytest.mark.parametrize("workers", [0, 1])
def test_who_is_waited_for_is_shown_without_asking(tmp_path: Path, workers: int) -> None:
    """A run that stands still for an hour must not look as if it hung."""
    held = Leases(tmp_path / "run" / "leases", slots=1, environment={}).acquire(1, what="somebody else")
    run = Run(tmp_path / "run", "starting", workers)
    try:
        run.until_logged(tmp_path / "run" / ("stderr.txt" if workers else "stdout.txt"), "somebody else")
    finally:
        run.end()
        held.release()
