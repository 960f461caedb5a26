"""From samples to the numbers of a record. The definitions stand in docs/metrics.md; unknown is None, never
0."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..record import Metrics, Requests, Round
from . import health, validity
from .totals import BIN_S

if TYPE_CHECKING:
    from ..model import Workload
    from .samples import Samples
    from .streams import Streams
    from .totals import Totals

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
    totals = samples.totals()
    streams = Streams([s for s in samples.requests if s.ok], scheduled=samples.mode == "open")
    seconds = samples.duration_ns / 1e9 / scale
    output = totals.output.known
    total = _rate(output, seconds)
    window = None if output is None else steady_window(samples, totals)
    steady, window_s = total, None
    if window is not None:
        window_s = (window[1] - window[0]) / 1e9 / scale
        steady = (streams.tokens_between(*window) + _binned(samples, window)) / window_s
    metrics = Metrics(
        output_throughput=steady,
        output_throughput_total=total,
        input_throughput=_rate(totals.input.known, seconds),
        request_throughput=_rate(totals.ok, seconds) if totals.ok else None,
        peak_output_throughput=_peak(streams, samples, scale, total, steady),
        ttft_ms=spread(streams.ttft(), scale),
        ttfot_ms=spread(streams.ttfot(), scale),
        tpot_ms=spread(streams.tpot(), scale),
        itl_ms=spread(streams.itl(), scale),
        chunk_gap_ms=spread(streams.chunk_gaps(), scale),
        e2e_ms=spread(streams.e2e(), scale),
        accept_length=totals.accept_length or accept_length,
        goodput=_rate(totals.good, seconds) if workload.slo is not None else None,
    )
    judged = validity.judge(samples, totals)
    samples.health.cpu_ns += time.thread_time_ns() - began
    return Round(
        duration_s=seconds,
        window_s=window_s,
        seed=samples.seed,
        requests=Requests(
            ok=totals.ok,
            failed=totals.failed,
            input_tokens=totals.input.known,
            output_tokens=output,
            cached_tokens=totals.cached.known,
        ),
        failures=dict(totals.failures.most_common()),
        metrics=metrics,
        client=health.report(samples, totals.tokens),
        invalid=judged.invalid,
        warnings=[*_notes(samples, totals, window), *judged.warnings],
    )


def steady_window(samples: Samples, totals: Totals) -> tuple[int, int] | None:
    """When the load was whole: (start, end) in ns; None when it never was, or for too short a time.

    Closed loop and burst of C requests: from the moment the first C of them had their first token (or had
    failed) to the first end that no new request followed. Open loop: from the first end (the system has
    turned over once) to the last send.
    """
    if samples.mode == "open":
        start, end = totals.first_end, samples.sending_ended_ns
    else:
        start, end = totals.ramp_end, totals.drain_start
    if start is None or end is None or end - start < max(1, MIN_WINDOW * samples.duration_ns):
        return None
    return start, end


def _binned(samples: Samples, window: tuple[int, int]) -> float:
    """Tokens within the window of the requests whose token times were let go; bins at its edges count in
    part."""
    width = BIN_S * 1e9 * samples.time_scale
    tokens = 0.0
    for index, thousandths in samples.bins.items():
        inside = min((index + 1) * width, window[1]) - max(index * width, window[0])
        tokens += thousandths / 1000 * max(0.0, inside / width)
    return tokens


def _peak(
    streams: Streams, samples: Samples, scale: float, total: float | None, steady: float | None
) -> float | None:
    """Most tokens in any second as a rate; of a round shorter than that, or still above it, the average."""
    if total is None or steady is None:
        return None
    width = min(PEAK_S * scale * 1e9, float(samples.duration_ns))
    most = streams.most_within(width, samples.bins, BIN_S * 1e9 * samples.time_scale)
    return max(most / (width / 1e9 / scale), total, steady)


def _notes(samples: Samples, totals: Totals, window: tuple[int, int] | None) -> list[str]:
    """What a reader of the numbers has to know."""
    notes = []
    if totals.ok and totals.output.known is None:
        notes.append(
            f"{totals.output.missing} of {totals.ok} requests came without a count of their output tokens: "
            "no throughput"
        )
    elif totals.ok and window is None:
        notes.append("no steady state: output_throughput is that of the whole round")
    if totals.unknown_chunks and totals.output.known is not None:
        notes.append(
            f"tokens per chunk are unknown in {totals.unknown_chunks} of {totals.ok} requests: no TPOT and "
            "ITL from them, and their tokens count evenly over their chunks in output_throughput"
        )
    if samples.kept_share < 1:
        notes.append(
            f"distributions are of a random sample of {len(samples.requests)} of {totals.requests} requests; "
            "counts and throughput are of all"
        )
    return notes


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds
