"""The token events of all requests of a round, in numpy arrays: one pass for each distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..record import Spread
from .figures import start_ns, tpot_ns

if TYPE_CHECKING:
    from array import array

    from .sample import Sample

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


def spread(values: Floats | None, scale: float = 1.0) -> Spread | None:
    """Mean and percentiles (linear interpolation) of times in ns, as ms; None without values."""
    if values is None or not len(values):
        return None
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    ms = 1e6 * scale
    return Spread(
        mean=float(values.mean()) / ms,
        p50=float(p50) / ms,
        p90=float(p90) / ms,
        p99=float(p99) / ms,
        n=len(values),
    )


class Streams:
    """Requests that succeeded, each with at least one token event. Times in real ns since the round's start.

    `scheduled`: latency counts from the time a request was due.
    """

    def __init__(self, requests: list[Sample], *, scheduled: bool) -> None:
        self.requests = requests
        self.lengths: Ints = np.array([len(s.stamps) for s in requests], dtype=np.int64)
        self.stamps: Ints = _joined([np.frombuffer(s.stamps, dtype=np.int64) for s in requests])
        self.firsts: Ints = np.cumsum(self.lengths) - self.lengths
        """Index of each request's first token event."""
        self.lasts: Ints = self.firsts + self.lengths - 1
        cumulative = [s.tokens for s in requests]
        self.known = np.array([tokens is not None for tokens in cumulative], dtype=bool)
        """Requests whose tokens are known for every event."""
        self.weights: Floats = _joined(
            [_weights(s, tokens) for s, tokens in zip(requests, cumulative, strict=True)]
        )
        """Tokens of each event; spread evenly over a request's events where they are unknown."""
        self.starts: Ints = np.array(
            [start_ns(s, scheduled=scheduled) or 0 for s in requests], dtype=np.int64
        )

    def ttft(self) -> Floats:
        return (self.stamps[self.firsts] - self.starts).astype(np.float64)

    def ttfot(self) -> Floats:
        """First answer token, of the requests that have reasoning before it."""
        values = [
            s.answer_ns - int(start)
            for s, start in zip(self.requests, self.starts, strict=True)
            if s.answer_ns is not None and s.reasoning_events
        ]
        return np.array(values, dtype=np.float64)

    def e2e(self) -> Floats:
        return (self.stamps[self.lasts] - self.starts).astype(np.float64)

    def tpot(self) -> Floats:
        return np.array([v for s in self.requests if (v := tpot_ns(s)) is not None], dtype=np.float64)

    def chunk_gaps(self) -> Floats:
        gaps = np.diff(self.stamps).astype(np.float64)
        return np.delete(gaps, self.firsts[1:] - 1) if len(gaps) else gaps

    def itl(self) -> Floats | None:
        """As `figures.itl_ns`, over all requests whose tokens are known; None when there is none."""
        if not self.known.any():
            return None
        use = np.repeat(self.known, self.lengths) & (self.weights > 0)
        use[self.firsts] = self.known
        owner = np.repeat(np.arange(len(self.requests)), self.lengths)[use]
        stamps, tokens = self.stamps[use], self.weights[use].astype(np.int64)
        within = owner[1:] == owner[:-1]
        gaps, tokens = np.diff(stamps)[within], tokens[1:][within]
        return np.repeat(gaps / tokens, tokens)

    def tokens_between(self, start: int, end: int) -> float:
        """Tokens that arrived after `start` and not after `end`."""
        return float(self.weights[(self.stamps > start) & (self.stamps <= end)].sum())

    def most_within(self, width_ns: float, bins: dict[int, int], bin_ns: float) -> float:
        """Most tokens in any window of this width; of windows that begin with a bin, when there are bins.

        `bins` hold thousandths of tokens beyond those of the requests here.
        """
        if bins:
            counts = np.zeros(max(max(bins), int(self.stamps.max(initial=0) // bin_ns)) + 1)
            np.add.at(counts, (self.stamps // bin_ns).astype(np.int64), self.weights)
            np.add.at(counts, list(bins), np.array(list(bins.values())) / 1000)
            wide = max(1, min(len(counts), int(width_ns / bin_ns)))
            return float(np.convolve(counts, np.ones(wide), "valid").max())
        if not len(self.stamps):
            return 0.0
        order = np.argsort(self.stamps, kind="stable")
        stamps = self.stamps[order]
        tokens = np.concatenate(([0.0], np.cumsum(self.weights[order])))
        ends = np.searchsorted(stamps, stamps + width_ns, side="left")
        return float((tokens[ends] - tokens[:-1]).max())


def _weights(sample: Sample, tokens: array[int] | None) -> Floats:
    if tokens is None:
        return np.full(len(sample.stamps), (sample.output_tokens or 0) / len(sample.stamps))
    return np.diff(np.frombuffer(tokens, dtype=np.int64).astype(np.float64), prepend=0)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
