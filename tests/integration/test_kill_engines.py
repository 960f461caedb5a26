"""The kill matrix on real engines: each with a request in flight, or while it starts or stops.

llama.cpp is taken when the package that embeds it is installed. Others are named in a JSON file, whose path
stands in GPUSERVE_KILL_ENGINES: {"sglang": {"engine": "sglang", "model": FOLDER, "python": INTERPRETER,
"site_env": {...}, "args": {...}}}. docs/robustness.md has what was seen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_gpuserve.serving import leftovers, processes, sockets
from pytest_gpuserve.serving.lease import Leases

sys.path.append(str(Path(__file__).parent))  # the helpers beside this file are scripts, not a package
from driven import Driver

BAR_S = 15.0
LLAMACPP = {
    "engine": "llamacpp",
    "model": "gpuserve-tiny",
    "args": {"threads": 1, "ctx-size": 4096},
    "site_env": {},
}


def engines() -> dict[str, dict[str, Any]]:
    found = {"llamacpp": LLAMACPP} if find_spec("xllamacpp") else {}
    if more := os.environ.get("GPUSERVE_KILL_ENGINES"):
        found |= json.loads(Path(more).read_text())
    return found


ENGINES = engines()


class Cell(NamedTuple):
    victim: str
    signal: signal.Signals
    moment: str

    def __str__(self) -> str:
        return f"{self.victim}-{self.signal.name}-{self.moment}"


CELLS = [
    *(Cell("driver", number, "serving") for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
    *(Cell("driver", signal.SIGKILL, moment) for moment in ("starting", "stopping")),
    *(Cell(who, signal.SIGKILL, "serving") for who in ("supervisor", "guard", "engine", "guard+supervisor")),
    Cell("engine", signal.SIGTERM, "serving"),
    Cell("child", signal.SIGKILL, "serving"),
    Cell("nobody", signal.SIGTERM, "serving"),
]


def load(name: str, cell: Cell) -> int:
    """How many completions the driver asks for, one after the other.

    Asked to end by somebody else, SGLang takes new requests while it drains, and drains until there is none.
    """
    if cell.moment != "serving":
        return 0
    return 1 if (name, cell.victim, cell.signal) == ("sglang", "engine", signal.SIGTERM) else 1_000_000


def get_to(driver: Driver, moment: str) -> None:
    driver.until("started")
    driver.learn(driver.folder / "leases")
    if moment == "starting":
        time.sleep(0.1)
        return
    driver.until("serving")
    time.sleep(0.5)  # for one request to follow the other
    children = [p.pid for p in processes.table().values() if p.ppid == driver.pids["engine"] and not p.gone]
    if children:
        driver.pids["child"] = max(children)
    if moment == "stopping":
        driver.tell_to_stop()
        driver.until("stopping")


@pytest.mark.parametrize(
    ("name", "cell"),
    [(name, cell) for name in ENGINES for cell in CELLS if (name, cell.victim) != ("llamacpp", "child")],
    ids=str,
)
def test_nothing_survives(name: str, cell: Cell, tmp_path: Path) -> None:
    port = Leases(tmp_path / "ports", slots=0, environment={}).acquire(0)
    wanted = {"timeouts": {"shutdown": 3.0}, "load": load(name, cell), **ENGINES[name]}
    driver = Driver(tmp_path, port.port, **wanted)
    try:
        get_to(driver, cell.moment)
        shared = leftovers.in_use(driver.alive())
        if cell.victim == "nobody":
            driver.tell_to_stop()
        for victim in () if cell.victim == "nobody" else cell.victim.split("+"):
            os.kill(driver.pids[victim], cell.signal)
        over_s, left = driver.until_over(BAR_S)
        print(f"{name} {cell}: {over_s:.1f} s")
        assert [processes.describe(pid) for pid in left] == []
        assert sockets.bind_error("127.0.0.1", port.port) is None
        Leases(tmp_path / "leases", slots=1, environment={}).acquire(1, timeout_s=1.0).release()
        verdicts = [event["verdict"] for event in driver.rest() if "verdict" in event]
        assert [name for name in shared if Path("/dev/shm", name).exists()] == []
        if cell.victim not in ("driver", "nobody"):
            assert verdicts == ["crashed"]
        else:
            assert verdicts == []
    finally:
        driver.end()
        port.release()
