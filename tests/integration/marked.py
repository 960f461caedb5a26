"""A process and everything that ever came of it, known by a mark in their environment, which all of them
inherit.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpuserve.serving import lock_file, processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
MARK = "KILL_MATRIX_MARK"
PATIENCE_S = 60.0
"""For a process to get where it is to be killed, on a busy machine."""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and what it starts would as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Marked:
    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        *,
        path: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Errors go to `folder`/stderr.txt. `path` comes before the project on PYTHONPATH, `env` on top of
        our own environment; `options` are Popen's.
        """
        self.pids: dict[str, int] = {}
        """By the names of the matrix."""
        self.nonce = ""
        value = uuid.uuid4().hex
        python_path = os.pathsep.join(map(str, (*path, ROOT)))
        self.folder = folder
        self._wanted = f"{MARK}={value}".encode()
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                argv,
                env={**os.environ, **(env or {}), MARK: value, "PYTHONPATH": python_path},
                stderr=errors,
                text=True,
                **options,
            )

    @property
    def errors(self) -> Path:
        return self.folder / "stderr.txt"

    def alive(self) -> list[int]:
        self.process.poll()
        return [p.pid for p in processes.table().values() if not p.gone and self._carries(p.pid)]

    def _carries(self, pid: int) -> bool:
        try:
            return self._wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def until_logged(self, log: Path, pattern: str) -> re.Match[str]:
        """Wait until a file, which need not exist yet, holds what fits."""
        end = time.monotonic() + PATIENCE_S
        text = ""
        while time.monotonic() < end and self.process.poll() is None:
            try:
                text = log.read_text()
            except FileNotFoundError:
                text = ""
            if found := re.search(pattern, text):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{pattern} never came; log: {text}; errors: {self.errors.read_text()}")

    def learn(self, leases: Path) -> None:
        """Find the launch that holds the first slot of a lock folder."""
        record = lock_file.read_record(str(leases / "slot-0.lock"))
        self.nonce = record["nonce"]
        self.pids |= {"guard": record["pid"], "supervisor": record["supervisor"], "engine": record["engine"]}

    def launch(self) -> list[int]:
        """What is alive of the launch: engine, supervisor and guard, without the processes that drive it."""
        now = processes.table()
        watchers = [now[pid] for who in ("guard", "supervisor") if (pid := self.pids[who]) in now]
        found = [*processes.carriers(self.nonce, now.values(), since=0), *watchers]
        return sorted({process.pid for process in found if not process.gone})

    def until_over(self, seconds: float) -> tuple[float, list[int]]:
        """Wait until nothing is alive of the launch. Returns how long that took, and what is left after
        `seconds`.
        """
        began = time.monotonic()
        known = [process for pid in self.launch() if (process := processes.read(pid))]
        while time.monotonic() - began < seconds:
            # One look at the whole process table costs as much as the launch itself; first those that are known.
            known = [
                p
                for p in known
                if (now := processes.read(p.pid)) and now.started == p.started and not now.gone
            ]
            if not known and not self.launch():
                break
            time.sleep(0.05)
        return time.monotonic() - began, self.launch()

    def alive_after(self, seconds: float) -> list[int]:
        """What is alive of everything, once nothing is or the time is over."""
        end = time.monotonic() + seconds
        while (left := self.alive()) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def end(self) -> None:
        """Leave nothing, whatever the test has found."""
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
