"""Finished requests, in memory that does not grow with the length of a round.

Up to `OPEN_REQUESTS` and `OPEN_EVENTS` they wait as they are for the clock to stop. Beyond it the client
settles them in its idle moments. Of more than `KEPT_REQUESTS` or `KEPT_EVENTS` a random sample keeps its
token times, for the distributions; the others are added to the totals, and their tokens to bins of 0.1 s.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING

from .settle import settle
from .totals import BIN_S, Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import Api
    from .flight import Flight
    from .sample import Sample

OPEN_REQUESTS = 20_000
OPEN_EVENTS = 500_000
KEPT_REQUESTS = 50_000
KEPT_EVENTS = 500_000


class Ledger:
    """Takes flights, gives samples. `sink` gets every sample once, also those that are not kept."""

    def __init__(self, api: Api, totals: Totals, *, seed: int, sink: Callable[[Sample], None] | None) -> None:
        self.api = api
        self.totals = totals
        """Of the samples that were let go."""
        self.bins: Counter[int] = Counter()
        """Thousandths of tokens of the samples that were let go, by `BIN_S` of the workload's time."""
        self.kept: list[tuple[float, Sample]] = []
        self.finished = 0
        self.share = 1.0
        """Of the samples, so many are kept."""
        self._open: deque[Flight] = deque()
        self._open_events = 0
        self._kept_events = 0
        self._random = Random(seed)
        self._sink = sink
        self._bin_ns = int(BIN_S * 1e9 * totals.scale) or 1

    def add(self, flight: Flight) -> None:
        self.finished += 1
        self._open.append(flight)
        self._open_events += len(flight.stamps)
        if (self.crowded and len(self._open) > 2 * OPEN_REQUESTS) or self._open_events > 2 * OPEN_EVENTS:
            self.relieve(2)

    @property
    def crowded(self) -> bool:
        """More waits than should: the client is to settle some when it has nothing else to do."""
        return len(self._open) > OPEN_REQUESTS or self._open_events > OPEN_EVENTS

    def relieve(self, count: int) -> None:
        """Settle so many."""
        for _ in range(min(count, len(self._open))):
            flight = self._open.popleft()
            self._open_events -= len(flight.stamps)
            sample = settle(flight, self.api)
            if self._sink is not None:
                self._sink(sample)
            self._keep(sample)

    def close(self) -> list[Sample]:
        """Settle all; the samples that are kept, by index."""
        self.relieve(len(self._open))
        return sorted((sample for _, sample in self.kept), key=lambda sample: sample.index)

    def _keep(self, sample: Sample) -> None:
        rank = self._random.random()
        if rank >= self.share:
            self._let_go(sample)
            return
        self.kept.append((rank, sample))
        self._kept_events += len(sample.stamps)
        while len(self.kept) > KEPT_REQUESTS or (self._kept_events > KEPT_EVENTS and len(self.kept) > 1):
            self.share /= 2
            for rank, old in self.kept:
                if rank >= self.share:
                    self._let_go(old)
                    self._kept_events -= len(old.stamps)
            self.kept = [entry for entry in self.kept if entry[0] < self.share]

    def _let_go(self, sample: Sample) -> None:
        self.totals.add(sample)
        if sample.failure is not None:
            return
        width, bins, tokens = self._bin_ns, self.bins, sample.tokens
        if tokens is None:
            each = 1000 * (sample.output_tokens or 0) // max(1, len(sample.stamps))
            for stamp in sample.stamps:
                bins[stamp // width] += each
            return
        before = 0
        for stamp, so_far in zip(sample.stamps, tokens, strict=True):
            bins[stamp // width] += 1000 * (so_far - before)
            before = so_far
