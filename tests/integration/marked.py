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

from pytest_gpuserve.serving import processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
MARK = "KILL_MATRIX_MARK"
PATIENCE_S = 60.0
"""For a process to get where it is to be killed, on a busy machine."""


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
