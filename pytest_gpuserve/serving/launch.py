"""The driver's end of a supervisor: starts one, hears what it tells, asks it to stop, and steps in if it was
killed.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import processes
from .sweep import clear

if TYPE_CHECKING:
    from .keeper import Spec

PACKAGE_ROOT = Path(__file__).parents[2]
ENDING_SLACK_S = 20.0
"""On top of the grace: force, the port, and the pages of the report."""


class Supervised:
    """One launch. `descriptors` of held locks go to the supervisor; the caller closes its own copies after
    `started`.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.started: dict[str, Any] | None = None
        """Process numbers of engine, supervisor and guard, once the engine runs."""
        self.start_error = ""
        self.exited: int | None = None
        """Exit status of the engine's parent once it has ended; negative: killed by that signal."""
        self.disk_full: int | None = None
        """Free bytes when the disk was found full."""
        self.missing: list[str] = []
        """Processes that were there when it became ready and have ended since."""
        self.closed = False
        """It no longer listens on its port."""
        self.notes: list[str] = []
        self._shared_memory: set[str] = set()
        """What its processes were seen to use."""
        self.report: dict[str, Any] | None = None
        """What was left after the end, once it has ended."""
        self.lost = False
        """Guard and supervisor are gone and have reported nothing."""
        self._buffer = b""
        self._began = 0  # clock ticks, once the guard runs
        self._channel, theirs = socket.socketpair()
        self._stderr = Path(f"{spec.log}.supervisor")
        try:
            with self._stderr.open("wb") as stderr:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "pytest_gpuserve.serving.supervise"),
                        str(theirs.fileno()),
                    ],
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(), *spec.locks),
                )
        finally:
            theirs.close()
        guard = processes.read(self._process.pid)
        self._began = guard.started if guard else 0
        self._channel.sendall(json.dumps(spec._asdict()).encode() + b"\n")
        self._channel.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)

    @property
    def over(self) -> bool:
        """The engine has ended, or nobody watches over it any more."""
        return self.exited is not None or self.report is not None or self.lost or bool(self.start_error)

    def hear(self, seconds: float = 0.0) -> None:
        """Take in what the supervisor has told, waiting at most so long for something. Costs a microsecond
        when idle.
        """
        if self.lost or self.report is not None:
            return
        if not self._poll.poll(seconds * 1000):
            return
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lost = True
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        match event.pop("event"):
            case "started":
                self.started = event
            case "failed":
                self.start_error = event["error"]
            case "exited":
                self.exited = event["status"]
            case "disk":
                self.disk_full = event["free"]
            case "missing":
                self.missing.append(event["process"])
            case "closed":
                self.closed = True
            case "uses":
                self._shared_memory.update(event["names"])
            case "note":
                self.notes.append(event["text"])
            case "stopped":
                self.report = event

    def wait_started(self, seconds: float = 30.0) -> None:
        """Return once the engine's process runs, could not be started, or the supervisor is gone."""
        end = time.monotonic() + seconds
        while self.started is None and not self.over and time.monotonic() < end:
            self.hear(0.1)

    def serving(self) -> None:
        """Say that measuring begins: the supervisor looks no longer into the engine's processes, only after
        them.
        """
        now = processes.table()
        members = [(pid, now[pid].started, processes.describe(pid)) for pid in self.members() if pid in now]
        self._order(do="serving", members=members)

    def ask_stop(self, grace: float, *, hurry: bool = False) -> None:
        """Ask for the end; `hurry` leaves out what is left of the grace."""
        self._order(do="stop", grace=grace, hurry=hurry)

    def _order(self, **order: Any) -> None:
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            pass  # `hear` finds out

    def members(self) -> list[int]:
        """Living processes of the launch, the supervisor's two left out."""
        if self.started is None:
            return []
        now = processes.table()
        ours = {self.started["guard"], self.started["supervisor"]}
        found = processes.descendants(ours, now)
        engine = now.get(self.started["pid"])
        if engine is not None and engine not in found:  # the supervisor has been killed
            found += [engine, *processes.descendants([engine.pid], now)]
        return sorted({p.pid for p in found if not p.gone} - ours)

    def owns(self, pid: int) -> bool | None:
        """Whether a process is one of the launch; None when there is no process of that number.

        It reads the process and those above it only, so that it may be asked while a round is measured.
        """
        ours = set((self.started or {}).values())
        process = processes.read(pid)
        if process is None:
            return None
        while process is not None and process.pid > 1:
            if process.pid in ours:
                return True
            process = processes.read(process.ppid)
        return False

    def finish(self, grace: float, memory_patience: float) -> dict[str, Any]:
        """End the launch and return the report: `survivors`, `port`, `memory` (empty when nothing is left),
        `removed`.

        When the supervisor was killed and its guard too, this process ends what is left, and the report says
        so.
        """
        self.ask_stop(grace)
        end = time.monotonic() + grace + ENDING_SLACK_S + memory_patience
        try:
            while self.report is None and not self.lost and time.monotonic() < end:
                self.hear(0.25)
        except BaseException:  # a second Ctrl-C: they go on without us
            self.ask_stop(0.0, hurry=True)
            self.close()
            raise
        if self.report is None:
            self.report = self._step_in()
        self.close()
        return self.report

    def _step_in(self) -> dict[str, Any]:
        if not self.lost:  # alive and silent: taking its work over would do it twice
            return _report(survivors=[f"the supervisor {self._process.pid} does not answer"])
        left, removed = clear(self.spec.nonce, self._began, self._shared_memory)
        return _report(survivors=left, removed=removed, reason="guard and supervisor were killed")

    def close(self) -> None:
        """Let go of the channel, upon which whoever is still there ends the launch, and collect the guard."""
        self._channel.close()
        self.lost = self.lost or self.report is None
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.returncode = 0  # it stays as long as it must; nobody waits for it
        try:
            if self._stderr.stat().st_size == 0:
                self._stderr.unlink()
        except FileNotFoundError:
            pass


def _report(survivors: list[str], removed: list[str] | None = None, reason: str = "") -> dict[str, Any]:
    return {
        "survivors": survivors,
        "port": "",
        "memory": "",
        "removed": removed or [],
        "reason": reason,
        "status": None,
    }


def _environment() -> dict[str, str]:
    """Ours, and where to find this package when it is not installed but run from its folder."""
    environment = dict(os.environ)
    if PACKAGE_ROOT.name not in ("site-packages", "dist-packages"):
        old = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(PACKAGE_ROOT) + (os.pathsep + old if old else "")
    return environment
