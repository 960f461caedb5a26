"""The figures of one request, without numpy; docs/metrics.md has the definitions. Times in ms, unknown is
None."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from .sample import Sample

TOGETHER_EVENTS = 8
"""Fewer token events than this may arrive in one read without meaning anything, unless all do."""
EVENTS_A_STAMP = 16
"""More token events than this to a distinct stamp, on average, mean that the stream was buffered on the
way."""


class Figures(Struct, kw_only=True):
    """What `--samples` writes of a request, beside its token times."""

    ttft_ms: float | None
    ttfot_ms: float | None
    """First token that is not reasoning."""
    e2e_ms: float | None
    """Last token event."""
    stream_end_ms: float | None
    """Last byte."""
    client_queue_ms: float | None
    """From when it was due to when it was sent."""
    tokens_in_first_chunk: int | None
    tpot_ms: float | None
    tpot_ms_naive_n_minus_1: float | None
    """(last - first) / (tokens - 1), as vLLM and SGLang report it; wrong where the first event holds
    several tokens."""
    itl_ms: list[float] | None
    chunk_gap_ms: list[float]


def landed_together(sample: Sample) -> bool:
    """All chunks of a stream arrived at (almost) one moment: it was buffered on the way, so time per token
    is unknown.

    That is so when all stamps are one, and when there are more than 16 events for each distinct stamp.
    """
    events, distinct = len(sample.stamps), len(set(sample.stamps))
    if events < TOGETHER_EVENTS:
        return events > 1 and distinct == 1
    return distinct <= max(1, events // EVENTS_A_STAMP)


def start_ns(sample: Sample, *, scheduled: bool) -> int | None:
    """What latency counts from: the scheduled time in an open loop, else the moment of sending."""
    return sample.due_ns if scheduled else sample.sent_ns


def tpot_ns(sample: Sample) -> float | None:
    """(last - first token event) / (tokens - tokens of the first event).

    None when the tokens of the first event are unknown, when no token follows it, and when the chunks
    landed together.
    """
    tokens = sample.tokens
    if tokens is None or landed_together(sample):
        return None
    rest = tokens[-1] - tokens[0]
    return (sample.stamps[-1] - sample.stamps[0]) / rest if rest > 0 else None


def itl_ns(sample: Sample) -> list[float] | None:
    """Each gap split evenly over the tokens of the later event; None when those are unknown.

    The gap before an event without a new token goes to the next event that has one.
    """
    tokens = sample.tokens
    if tokens is None:
        return None
    found: list[float] = []
    stamp, count = sample.stamps[0], tokens[0]
    for later, so_far in zip(sample.stamps[1:], tokens[1:], strict=True):
        if so_far > count:
            found += [(later - stamp) / (so_far - count)] * (so_far - count)
            stamp, count = later, so_far
    return found


def figures(sample: Sample, *, scale: float = 1.0, scheduled: bool = False) -> Figures:
    """All figures of a request; `scale` is the real seconds per reported second."""
    ms = 1e6 * scale
    start = start_ns(sample, scheduled=scheduled)

    def since(at: int | None) -> float | None:
        return None if at is None or start is None else (at - start) / ms

    tokens, stamps = sample.tokens, sample.stamps
    tpot, itl = tpot_ns(sample), itl_ns(sample)
    naive = None
    if sample.output_tokens is not None and sample.output_tokens > 1 and stamps:
        naive = (stamps[-1] - stamps[0]) / (sample.output_tokens - 1) / ms
    return Figures(
        ttft_ms=since(sample.first_ns),
        ttfot_ms=since(sample.answer_ns),
        e2e_ms=since(sample.last_ns),
        stream_end_ms=since(sample.end_ns),
        client_queue_ms=None if sample.sent_ns is None else (sample.sent_ns - sample.due_ns) / ms,
        tokens_in_first_chunk=None if tokens is None else tokens[0],
        tpot_ms=None if tpot is None else tpot / ms,
        tpot_ms_naive_n_minus_1=naive,
        itl_ms=None if itl is None else [gap / ms for gap in itl],
        chunk_gap_ms=[(b - a) / ms for a, b in pairwise(stamps)],
    )
