"""What a round saw, before any statistics: its requests (`sample`), and what the client observed of itself.

All times are integers in nanoseconds of real time since the round's clock started; `time_scale` is applied in
`metrics` and nowhere else. Unknown is None.
"""

from __future__ import annotations

import copy
from array import array
from typing import TYPE_CHECKING

from msgspec import Struct, field

from .sample import Sample
from .totals import Totals

if TYPE_CHECKING:
    from collections.abc import Iterator


FINE_NS = 1 << 12
BUCKETS = 1 << 12


class Histogram:
    """Counts of durations of any number in fixed memory: exact to 4 us up to 17 ms, to a quarter beyond."""

    __slots__ = ("coarse", "fine")

    def __init__(self) -> None:
        self.fine = array("q", bytes(8 * BUCKETS))
        self.coarse = array("q", bytes(8 * 256))

    def add(self, ns: int, count: int = 1) -> None:
        bucket = ns >> 12
        if bucket < BUCKETS:
            self.fine[bucket if bucket > 0 else 0] += count
        else:
            bits = ns.bit_length()
            self.coarse[bits << 2 | (ns >> (bits - 3)) & 3] += count

    def _items(self) -> Iterator[tuple[int, int]]:
        """(upper edge in ns, count), rising."""
        for i, count in enumerate(self.fine):
            if count:
                yield (i + 1) << 12, count
        for i, count in enumerate(self.coarse):
            if count:
                bits = i >> 2
                yield (5 + (i & 3)) << (bits - 3), count

    @property
    def n(self) -> int:
        return sum(self.fine) + sum(self.coarse)

    def quantile_ns(self, share: float, *, total: int | None = None) -> int | None:
        """Upper edge of the bucket that holds the quantile; None when empty.

        `total` larger than `n` stands for that many more values of 0.
        """
        count = self.n
        zeros = max(0, (total or 0) - count)
        if not count + zeros:
            return None
        rank = share * (count + zeros) - zeros
        if rank <= 0:
            return 0
        for edge, here in self._items():
            rank -= here
            if rank <= 0:
                return edge
        return edge


class Health(Struct, kw_only=True):
    """What the client observed of itself during a round."""

    stamp_source: str = "user"
    """`kernel` or `user`."""
    unstamped: int = 0
    """Reads that came without a kernel stamp although one was asked for; they have a user-space one."""
    clock_uncertainty_ns: int = 0
    clock_steps: int = 0
    """Times the machine's clock was set while kernel stamps depended on it."""
    cpu_ns: int = 0
    """CPU time of the client's thread for the round, and for reading the answers afterwards."""
    clock_cpu_ns: int = 0
    """The part of it spent while the clock ran."""
    chunks: int = 0
    """Token events received."""
    merged: int = 0
    """Token events that shared a read with a later one of their stream and so lost their own stamp."""
    late_merged: int = 0
    """Those that lost it because the client was busy, not because they arrived together."""
    lag: Histogram = field(default_factory=Histogram)
    """From the stamp of a read to the end of the pass over the ready sockets that it belongs to; with
    user-space stamps from the start of that pass."""
    lost: Histogram = field(default_factory=Histogram)
    """How far the lost stamps can lie from the one they share."""
    lost_first: Histogram = field(default_factory=Histogram)
    """Those of them that were the first of their stream."""
    handover: Histogram = field(default_factory=Histogram)
    """How long `send` took with a request: its true start lies within."""
    delay: Histogram = field(default_factory=Histogram)
    """From the time a request was due to the time it was sent."""
    delay_ns: int = 0
    """Their sum."""
    busy_ns: int = 0
    """Sum over the requests of the time from when each was due to its end."""


class Samples(Struct, kw_only=True):
    """A finished round."""

    requests: list[Sample]
    """All of them, by index; of a very long round a random sample (`kept_share`)."""
    started: float
    """Unix time, for people."""
    clock_start_ns: int
    """CLOCK_MONOTONIC when the round's clock started: what all other times count from."""
    duration_ns: int
    """From the start of the clock to the end of the last request."""
    let_go: Totals
    """Of the requests whose token times were let go; empty unless the round was very long."""
    bins: dict[int, int] = field(default_factory=dict)
    """Thousandths of tokens of the requests let go, by `totals.BIN_S` of the workload's time."""
    kept_share: float = 1.0
    mode: str
    """`closed`, `open` or `burst` (everything at once)."""
    concurrency: int | None = None
    """In a closed loop, or the number of requests of a burst."""
    sending_ended_ns: int | None = None
    """When the last request was sent."""
    peak_in_flight: int = 0
    time_scale: float = 1.0
    seed: int = 0
    stalled: bool = False
    interrupted: bool = False
    health: Health = field(default_factory=Health)

    def totals(self) -> Totals:
        """Sums over all requests of the round."""
        totals = copy.deepcopy(self.let_go)
        for sample in self.requests:
            totals.add(sample)
        return totals

    @property
    def all_failed(self) -> bool:
        """Requests were made and none succeeded."""
        return bool(self.requests) and not any(sample.ok for sample in self.requests) and not self.let_go.ok

    @property
    def first_failure(self) -> str:
        """Reason and words of the first request that failed; empty when none did."""
        failed = next((sample for sample in self.requests if not sample.ok), None)
        return f"{failed.failure}: {failed.detail}".rstrip(": ") if failed else ""
