"""From samples to the numbers of a record. The definitions stand in docs/metrics.md; unknown is None, never
0."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from ..record import Metrics, Requests, Round
from . import health, validity
from .figures import start_ns, tpot_ns

if TYPE_CHECKING:
    from ..model import Slo, Workload
    from .samples import Sample, Samples
    from .streams import Streams

PEAK_S = 1.0
"""Width of the window that slides over a round for its peak throughput; at most the round itself."""
MIN_WINDOW = 0.2
"""A steady state shorter than this share of the round is none: the whole round is taken instead."""


def summarise(
    samples: Samples,
    workload: Workload,
    *,
    time_scale: float | None = None,
    accept_length: float | None = None,
) -> Round:
    """One round's record.

    time_scale
        Real seconds per reported second; None: the one that the traffic was planned with. Times are divided
        by it and rates multiplied; the client's own figures stay real.
    accept_length
        Tokens per verify pass from the engine's counters, used where the streams do not tell
        (`spec_verify_ct`).
    """
    from .streams import Streams, spread

    began = time.thread_time_ns()
    scale = samples.time_scale if time_scale is None else time_scale
    scheduled = samples.mode == "open"
    ok = [s for s in samples.requests if s.ok]
    streams = Streams(ok, scheduled=scheduled)
    seconds = samples.duration_ns / 1e9 / scale
    warnings: list[str] = []
    output = _total(ok, "output_tokens")
    total = _rate(output, seconds)
    steady, window_s = total, None
    if output is None:
        if ok:
            warnings.append(_uncounted(ok))
    else:
        if not streams.known.all():
            warnings.append(_unknown_chunks(ok))
        window = steady_window(samples)
        if window is not None and window[1] - window[0] >= MIN_WINDOW * samples.duration_ns:
            window_s = (window[1] - window[0]) / 1e9 / scale
            steady = streams.tokens_between(*window) / window_s
        elif ok:
            warnings.append("no steady state: output_throughput is that of the whole round")
    metrics = Metrics(
        output_throughput=steady,
        output_throughput_total=total,
        input_throughput=_rate(_total(ok, "input_tokens"), seconds),
        request_throughput=_rate(len(ok), seconds) if ok else None,
        peak_output_throughput=_peak(streams, samples, scale, total, steady),
        ttft_ms=spread(streams.ttft(), scale),
        ttfot_ms=spread(streams.ttfot(), scale),
        tpot_ms=spread(streams.tpot(), scale),
        itl_ms=spread(streams.itl(), scale),
        chunk_gap_ms=spread(streams.chunk_gaps(), scale),
        e2e_ms=spread(streams.e2e(), scale),
        accept_length=_accept_length(ok) or accept_length,
        goodput=_goodput(ok, workload.slo, scale, scheduled, seconds),
    )
    judged = validity.judge(samples, workload)
    samples.health.cpu_ns += time.thread_time_ns() - began
    return Round(
        duration_s=seconds,
        window_s=window_s,
        seed=samples.seed,
        requests=Requests(
            ok=len(ok),
            failed=len(samples.requests) - len(ok),
            input_tokens=_total(ok, "input_tokens"),
            output_tokens=output,
            cached_tokens=_total(ok, "cached_tokens"),
        ),
        failures=dict(Counter(s.failure for s in samples.requests if s.failure is not None).most_common()),
        metrics=metrics,
        client=health.report(samples),
        invalid=judged.invalid,
        warnings=[*warnings, *judged.warnings],
    )


def steady_window(samples: Samples) -> tuple[int, int] | None:
    """When the load was whole: (start, end) in ns; None when it never was.

    Closed loop and burst of C requests: from the moment the first C of them had their first token (or had
    failed) to the first end that no new request followed. Open loop: from the first end (the system has
    turned over once) to the last send.
    """
    sent = [s for s in samples.requests if s.sent_ns is not None]
    ends = sorted(s.end_ns for s in sent if s.end_ns is not None)
    if not ends or len(ends) != len(sent):
        return None
    if samples.mode == "open":
        start, end = ends[0], max(s.sent_ns or 0 for s in sent)
    else:
        wide = min(samples.concurrency or 1, len(sent))
        begun = sorted(sent, key=lambda s: s.sent_ns or 0)[:wide]
        start = max((s.first_ns if s.first_ns is not None else s.end_ns) or 0 for s in begun)
        end = ends[len(ends) - wide]
    return (start, end) if end > start else None


def _peak(
    streams: Streams, samples: Samples, scale: float, total: float | None, steady: float | None
) -> float | None:
    """Most tokens in any second as a rate; of a round shorter than that, or still above it, the average."""
    if total is None or steady is None:
        return None
    width = min(PEAK_S * scale * 1e9, float(samples.duration_ns))
    return max(streams.most_within(width) / (width / 1e9 / scale), total, steady)


def _goodput(
    ok: list[Sample], slo: Slo | None, scale: float, scheduled: bool, seconds: float
) -> float | None:
    """Requests per second that met every limit. An unknown figure meets no limit; one token has no TPOT to
    miss."""
    if slo is None:
        return None
    ms = 1e6 * scale
    good = 0
    for sample in ok:
        start = start_ns(sample, scheduled=scheduled)
        tpot = 0.0 if sample.output_tokens == 1 else tpot_ns(sample)
        figures = (
            (slo.ttft_ms, None if sample.first_ns is None or start is None else sample.first_ns - start),
            (slo.tpot_ms, tpot),
            (slo.e2e_ms, None if sample.last_ns is None or start is None else sample.last_ns - start),
        )
        good += all(limit is None or (ns is not None and ns / ms <= limit) for limit, ns in figures)
    return _rate(good, seconds)


def _accept_length(ok: list[Sample]) -> float | None:
    """Output tokens by verify passes, over the requests whose stream tells both."""
    pairs = [(s.output_tokens, s.verify_passes) for s in ok if s.output_tokens and s.verify_passes]
    return sum(t for t, _ in pairs) / sum(p for _, p in pairs) if pairs else None


def _uncounted(ok: list[Sample]) -> str:
    missing = sum(s.output_tokens is None for s in ok)
    return f"{missing} of {len(ok)} requests came without a count of their output tokens: no throughput"


def _unknown_chunks(ok: list[Sample]) -> str:
    unknown = sum(s.tokens is None for s in ok)
    return (
        f"tokens per chunk are unknown in {unknown} of {len(ok)} requests: no TPOT and ITL from them, "
        "and their tokens count evenly over their chunks in output_throughput"
    )


def _total(ok: list[Sample], name: str) -> int | None:
    """Sum over the requests; None when one of them does not know."""
    values = [getattr(s, name) for s in ok]
    return sum(values) if values and None not in values else None


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds
