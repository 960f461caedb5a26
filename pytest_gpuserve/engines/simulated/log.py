"""What the simulated server writes: SGLang's and uvicorn's line formats, on standard error."""

from __future__ import annotations

import os
import time
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

STDERR = 2
DAY = "%Y-%m-%d %H:%M:%S"


class Log:
    """Writes each message at once, so that a reader never sees half a line and a kill loses none."""

    def __init__(self, ranks: int, *, milliseconds: bool) -> None:
        self._ranks = ranks
        self._milliseconds = milliseconds
        self.words: dict[str, str] = {"pid": str(os.getpid())}
        """What `$name` in a text stands for."""

    def main(self, text: str) -> None:
        """A line of the main process."""
        self._write([f"[{self._now()}] {self._fill(text)}"])

    def ranks(self, text: str, which: Iterable[int] | None = None) -> None:
        """A line of each rank, or of some."""
        now = self._now()
        self._write(
            f"[{now} TP{rank}] {self._fill(text, index=str(rank))}"
            for rank in (range(self._ranks) if which is None else which)
        )

    def uvicorn(self, text: str) -> None:
        """uvicorn has its own formatter, which never writes milliseconds."""
        self._write([f"[{time.strftime(DAY)}] {self._fill(text)}"])

    def raw(self, text: str, rank: int = 0) -> None:
        """Text as it stands, but for `$now`, `$day`, `$rank` (such as TP3) and `$gpu`."""
        words = {"now": self._now(), "day": time.strftime(DAY), "rank": f"TP{rank}", "gpu": str(rank)}
        self._write([self._fill(text.rstrip("\n"), **words)])

    def _fill(self, text: str, **words: str) -> str:
        return Template(text).safe_substitute(self.words, **words) if "$" in text else text

    def _now(self) -> str:
        now = time.time()
        fraction = f".{int(now * 1000) % 1000:03d}" if self._milliseconds else ""
        return time.strftime(DAY, time.localtime(now)) + fraction

    @staticmethod
    def _write(lines: Iterable[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            while data:
                data = data[os.write(STDERR, data) :]
        except OSError:
            pass  # nobody reads any more; a server serves on
