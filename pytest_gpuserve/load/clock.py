"""The one clock of a round: CLOCK_MONOTONIC in ns, and where the kernel's CLOCK_REALTIME stamps lie on it."""

from __future__ import annotations

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
