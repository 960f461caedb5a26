"""The driver process of the kill matrix, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from marked import PATIENCE_S, Marked

HERE = Path(__file__).parent


class Driver(Marked):
    """The driver process, and every process that came of it."""

    def __init__(self, folder: Path, port: int, **wanted: Any) -> None:
        """`wanted` as `driver.py` takes it."""
        argv = [sys.executable, str(HERE / "driver.py"), str(folder), str(port), json.dumps(wanted)]
        super().__init__(argv, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pids |= {"driver": self.process.pid}
        self.log = folder / "logs" / "stand-in-1.log"

    def until(self, state: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            event: dict[str, Any] = json.loads(line)
            if event["state"] == state:
                return event
        raise AssertionError(f"the driver ended before it was {state}: {said}\n{self.errors.read_text()}")

    def tell_to_stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()

    def rest(self) -> list[dict[str, Any]]:
        """What it says until it ends."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return [json.loads(line) for line in out.splitlines()]
