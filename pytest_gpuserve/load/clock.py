"""The one clock of a round: CLOCK_MONOTONIC in ns, and where the kernel's CLOCK_REALTIME stamps lie on it."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

STEP_NS = 200_000
"""A change of the offset beyond this is a clock that was set, not the jitter of reading two clocks."""


class Offset(NamedTuple):
    """`realtime - monotonic`, and how far off it can be; ns."""

    ns: int
    uncertainty_ns: int


def read_offset(tries: int = 50) -> Offset:
    """The offset from the tightest of `tries` readings of monotonic, realtime, monotonic.

    NTP slews both clocks alike, so it stays put until somebody sets the clock.
    """
    best_width, best = 1 << 62, 0
    monotonic, realtime = time.monotonic_ns, time.time_ns
    for _ in range(tries):
        before = monotonic()
        wall = realtime()
        after = monotonic()
        if after - before < best_width:
            best_width = after - before
            best = wall - (before + after) // 2
    return Offset(best, (best_width + 1) // 2)


class RunDelay:
    """How long this thread was ready to run and did not get to: the kernel's own count (/proc,
    `schedstat`)."""

    def __init__(self) -> None:
        self._file: int | None
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self._seen = self._read(self._file)
        except (OSError, ValueError, IndexError):
            self._file = None

    @property
    def known(self) -> bool:
        return self._file is not None

    def take_ns(self) -> int:
        """Since the last call; 0 where it is not known."""
        if self._file is None:
            return 0
        before, self._seen = self._seen, self._read(self._file)
        return self._seen - before

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @staticmethod
    def _read(file: int) -> int:
        return int(os.pread(file, 96, 0).split()[1])
