"""Whoever is killed, however and whenever: nothing survives, the lease and the port are free, and who is left
knows why.

The engine stand-in is as unruly as engines are (see `stand_in.py`). All cells that were selected run beside
each other, a few at a time; each test then looks at what its cell has seen.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_gpuserve.serving import processes, sockets
from pytest_gpuserve.serving.lease import Leases

sys.path.append(str(Path(__file__).parent))  # the helpers beside this file are scripts, not a package
from driven import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

BAR_S = 15.0
"""Everything is over so long after the kill."""
TOGETHER = 6


class Cell(NamedTuple):
    """`victim` gets `signal` at `moment`."""

    victim: str
    signal: signal.Signals
    moment: str

    def __str__(self) -> str:
        return f"{self.victim}-{self.signal.name}-{self.moment}"


MOMENTS = ("starting", "serving", "stopping")
CELLS = [
    Cell(victim, number, moment)
    for victim in ("driver", "guard", "supervisor", "engine", "child")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    for moment in MOMENTS
] + [Cell("guard+supervisor", signal.SIGKILL, moment) for moment in MOMENTS]


@dataclass
class Seen:
    survivors: list[str] = field(default_factory=list)
    """Processes still there after the bar."""
    over_s: float = 0.0
    """Seconds from the kill until no process was left."""
    lease_free: bool = False
    port_free: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)
    """What the driver said after the kill."""
    left_files: list[str] = field(default_factory=list)

    @property
    def verdicts(self) -> list[str]:
        return [event["verdict"] for event in self.events if "verdict" in event]


def get_to(driver: Driver, moment: str) -> None:
    driver.until("started")
    driver.learn(driver.folder / "leases")
    if moment == "starting":
        driver.pids["child"] = int(driver.until_logged(driver.log, r"plain=(\d+)[^\n]*\nLoad weight")[1])
        return
    driver.until("serving")
    driver.pids["child"] = int(driver.until_logged(driver.log, r"plain=(\d+)")[1])
    if moment == "stopping":
        driver.tell_to_stop()
        driver.until("stopping")
        driver.until_logged(driver.log, "SIGTERM received")


def run(cell: Cell, folder: Path) -> Seen:
    mode = {"starting": "loads", "serving": "serve", "stopping": "never-ends"}[cell.moment]
    # Cells have lock folders of their own, so only a common one keeps their ports apart.
    port = Leases(folder.parent / "ports", slots=0, environment={}).acquire(0)
    driver = Driver(folder, port.port, args={"mode": mode})
    seen = Seen()
    try:
        get_to(driver, cell.moment)
        for victim in cell.victim.split("+"):
            os.kill(driver.pids[victim], cell.signal)
        seen.over_s, left = driver.until_over(BAR_S)
        seen.survivors = [processes.describe(pid) for pid in left]
        seen.port_free = sockets.bind_error("127.0.0.1", port.port) is None
        Leases(folder / "leases", slots=1, environment={}).acquire(1, timeout_s=1.0).release()
        seen.lease_free = True
        seen.events = driver.rest()
        seen.survivors += [processes.describe(pid) for pid in driver.alive_after(BAR_S)]
        seen.left_files = [str(p) for p in Path("/dev/shm").glob(f"*stand-in-{driver.pids['engine']}")]
    finally:
        driver.end()
        port.release()
    return seen


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Cell, Future[Seen]]]:
    """Every selected cell, running."""
    cells = [
        item.callspec.params["cell"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(TOGETHER) as pool:
        yield {cell: pool.submit(run, cell, tmp_path_factory.mktemp(str(cell))) for cell in cells}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_nothing_survives(cell: Cell, outcomes: dict[Cell, Future[Seen]]) -> None:
    seen = outcomes[cell].result()
    assert seen.survivors == []
    assert seen.over_s < BAR_S
    assert seen.lease_free
    assert seen.port_free
    assert seen.left_files == []
    if cell.victim == "driver":
        if cell.signal == signal.SIGINT and cell.moment != "stopping":
            assert seen.events[-1]["report"]["survivors"] == []
    elif cell.moment == "stopping":
        assert seen.verdicts == []
        assert seen.events[-1]["report"]["survivors"] == []
    else:
        assert seen.verdicts == ["start-failed" if cell.moment == "starting" else "crashed"]


def test_when_all_who_watch_are_killed_the_next_lease_ends_what_is_left(tmp_path: Path) -> None:
    """Pytest, supervisor and guard in one blow: the kernel takes the engine's parent, and who comes next the
    rest.
    """
    port = Leases(tmp_path / "ports", slots=0, environment={}).acquire(0)
    driver = Driver(tmp_path, port.port, args={"mode": "serve"})
    try:
        get_to(driver, "serving")
        for victim in ("driver", "guard", "supervisor"):
            os.kill(driver.pids[victim], signal.SIGSTOP)
        for victim in ("driver", "guard", "supervisor"):
            os.kill(driver.pids[victim], signal.SIGKILL)
        end = time.monotonic() + BAR_S
        while driver.pids["engine"] in driver.alive() and time.monotonic() < end:
            time.sleep(0.05)
        left = driver.alive()
        assert driver.pids["engine"] not in left
        assert driver.pids["child"] in left, (
            "nobody is there to end it; if somebody is by now, the docs are out of date"
        )
        Leases(tmp_path / "leases", slots=1, environment={}).acquire(1, timeout_s=BAR_S).release()
        assert driver.alive() == []
        assert not list(Path("/dev/shm").glob(f"*stand-in-{driver.pids['engine']}"))
    finally:
        driver.end()
        port.release()
