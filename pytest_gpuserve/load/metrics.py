"""From samples to the numbers of a record. The definitions stand in docs/metrics.md; unknown is None, never 0."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from ..record import Metrics, Requests, Round, Spread
from . import health, validity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..model import Slo, Workload
    from .samples import Sample, Samples

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]

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
        Real seconds per reported second; None: the one that the traffic was planned with. Times are divided by it and
        rates multiplied; the client's own figures stay real.
    accept_length
        Tokens per verify pass from the engine's counters, used where the streams do not tell (`spec_verify_ct`).
    """
    import numpy  # noqa: F401  its import is no cost of a token

    began = time.thread_time_ns()
    scale = samples.time_scale if time_scale is None else time_scale
    ok = [s for s in samples.requests if s.ok]
    streams = _Streams(ok, samples)
    seconds = samples.duration_ns / 1e9 / scale
    total = _rate(streams.output_tokens, seconds)
    window = streams.window()
    steady, window_s = total, None
    warnings: list[str] = []
    if window is not None and streams.output_tokens is not None:
        window_s = (window[1] - window[0]) / 1e9 / scale
        steady = streams.tokens_between(*window) / window_s
    elif ok:
        warnings.append("no steady state: output_throughput is that of the whole round")
    warnings += streams.notes
    metrics = Metrics(
        output_throughput=steady,
        output_throughput_total=total,
        input_throughput=_rate(_total(ok, "input_tokens"), seconds),
        request_throughput=_rate(len(ok), seconds) if ok else None,
        peak_output_throughput=streams.peak(scale, floor=max(filter(None, (total, steady)), default=None)),
        ttft_ms=spread(streams.ttft(), scale),
        tpot_ms=spread(streams.tpot(), scale),
        itl_ms=spread(streams.itl(), scale),
        chunk_gap_ms=spread(streams.chunk_gaps(), scale),
        e2e_ms=spread(streams.e2e(), scale),
        accept_length=_accept_length(ok) or accept_length,
        goodput=_rate(streams.good(workload.slo, scale), seconds) if workload.slo is not None else None,
    )
    judged = validity.judge(samples, workload)
    samples.health.cpu_ns += time.thread_time_ns() - began
    client = health.report(samples)
    return Round(
        duration_s=seconds,
        window_s=window_s,
        seed=samples.seed,
        requests=Requests(
            ok=len(ok),
            failed=len(samples.requests) - len(ok),
            input_tokens=_total(ok, "input_tokens"),
            output_tokens=streams.output_tokens,
            cached_tokens=_total(ok, "cached_tokens"),
        ),
        failures=dict(Counter(s.failure for s in samples.requests if s.failure is not None).most_common()),
        metrics=metrics,
        client=client,
        invalid=judged.invalid,
        warnings=[*warnings, *judged.warnings],
    )


def spread(values: Floats | None, scale: float = 1.0) -> Spread | None:
    """Mean and percentiles (linear interpolation) of times in ns, as ms; None without values."""
    import numpy as np

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


class _Streams:
    """The token events of all requests that succeeded, in one array each."""

    def __init__(self, ok: list[Sample], samples: Samples) -> None:
        import numpy as np

        self.np = np
        self.ok = ok
        self.samples = samples
        self.notes: list[str] = []
        self.lengths = np.array([len(s.stamps) for s in ok], dtype=np.int64)
        self.stamps: Ints = (
            np.concatenate([np.frombuffer(s.stamps, dtype=np.int64) for s in ok])
            if ok
            else np.empty(0, dtype=np.int64)
        )
        ends = np.cumsum(self.lengths)
        self.firsts = ends - self.lengths
        """Index of each request's first token event."""
        self.lasts = ends - 1
        cumulative = [s.tokens for s in ok]
        self.known = np.array([c is not None for c in cumulative], dtype=bool)
        """Requests whose tokens per event are known."""
        self.weights: Floats = (
            np.concatenate([self._weights(s, c) for s, c in zip(ok, cumulative, strict=True)])
            if ok
            else np.empty(0)
        )
        """Tokens of each event; spread evenly over a request's events where they are unknown."""
        self.outputs = [s.output_tokens for s in ok]
        self.output_tokens: int | None = None
        if ok and all(n is not None for n in self.outputs):
            self.output_tokens = sum(n for n in self.outputs if n is not None)
            if not self.known.all():
                self.notes.append(
                    f"tokens per chunk are unknown for {int((~self.known).sum())} of {len(ok)} requests: "
                    "no inter-token latency from them"
                )
        elif ok:
            missing = sum(n is None for n in self.outputs)
            self.notes.append(f"{missing} of {len(ok)} requests came without a count of their output tokens")

    def _weights(self, sample: Sample, cumulative: Any) -> Floats:
        np = self.np
        events = len(sample.stamps)
        if cumulative is not None:
            return np.diff(np.frombuffer(cumulative, dtype=np.int64), prepend=0).astype(np.float64)
        return np.full(events, (sample.output_tokens or 0) / events)

    def _start(self, sample: Sample) -> int:
        """What latency counts from: the scheduled time in an open loop, else the moment of sending."""
        if self.samples.mode == "open" or sample.sent_ns is None:
            return sample.due_ns
        return sample.sent_ns

    def _starts(self) -> Ints:
        return self.np.array([self._start(s) for s in self.ok], dtype=self.np.int64)

    def ttft(self) -> Floats:
        found: Floats = (self.stamps[self.firsts] - self._starts()).astype(self.np.float64)
        return found

    def e2e(self) -> Floats:
        found: Floats = (self.stamps[self.lasts] - self._starts()).astype(self.np.float64)
        return found

    def tpot(self) -> Floats:
        """(last token - first token) / (tokens - tokens of the first event), by request; see `tpot_ns`."""
        values = [tpot_ns(s) for s in self.ok]
        return self.np.array([v for v in values if v is not None], dtype=float)

    def chunk_gaps(self) -> Floats:
        np = self.np
        gaps: Floats = np.diff(self.stamps).astype(np.float64)
        return np.delete(gaps, self.firsts[1:] - 1) if len(gaps) else gaps

    def itl(self) -> Floats | None:
        """Each gap split evenly over the tokens of the later event, where those are known.

        The gap before an event without a new token goes to the next event that has one.
        """
        np = self.np
        if not self.known.any():
            return None
        use = np.repeat(self.known, self.lengths) & (self.weights > 0)
        use[self.firsts] = np.repeat(True, len(self.firsts)) & self.known
        owner = np.repeat(np.arange(len(self.ok)), self.lengths)[use]
        stamps, weights = self.stamps[use], self.weights[use]
        gaps = np.diff(stamps)
        within = owner[1:] == owner[:-1]
        tokens = weights[1:][within].astype(np.int64)
        split: Floats = np.repeat(gaps[within] / tokens, tokens)
        return split

    def window(self) -> tuple[int, int] | None:
        """Steady state: (start, end) in ns, or None when there is none worth the name."""
        bounds = steady_window(self.samples)
        if bounds is None or bounds[1] - bounds[0] < MIN_WINDOW * self.samples.duration_ns:
            return None
        return bounds

    def tokens_between(self, start: int, end: int) -> float:
        inside = (self.stamps > start) & (self.stamps <= end)
        return float(self.weights[inside].sum())

    def peak(self, scale: float, floor: float | None) -> float | None:
        """Most tokens in any window of `PEAK_S` as a rate; never below the average."""
        np = self.np
        if self.output_tokens is None or not len(self.stamps):
            return None
        order = np.argsort(self.stamps, kind="stable")
        stamps, tokens = self.stamps[order], np.concatenate(([0.0], np.cumsum(self.weights[order])))
        width = min(PEAK_S * scale * 1e9, float(self.samples.duration_ns))
        if width <= 0:
            return floor
        ends = np.searchsorted(stamps, stamps + width, side="left")
        best = float((tokens[ends] - tokens[:-1]).max()) / (width / 1e9 / scale)
        return max(best, floor or 0.0)

    def good(self, slo: Slo | None, scale: float) -> int:
        """Requests that met every limit of the SLO. An unknown figure meets no limit."""
        if slo is None:
            return 0
        ms = 1e6 * scale
        count = 0
        for sample in self.ok:
            start = self._start(sample)
            tpot = tpot_ns(sample)
            figures = (
                (slo.ttft_ms, None if sample.first_ns is None else (sample.first_ns - start) / ms),
                (slo.tpot_ms, 0.0 if sample.output_tokens == 1 else None if tpot is None else tpot / ms),
                (slo.e2e_ms, None if sample.last_ns is None else (sample.last_ns - start) / ms),
            )
            count += all(limit is None or (v is not None and v <= limit) for limit, v in figures)
        return count


def tpot_ns(sample: Sample) -> float | None:
    """Time per output token after the first event; None when unknown or when all events landed together."""
    tokens = sample.tokens
    if tokens is None or sample.output_tokens is None or validity.landed_together(sample):
        return None
    rest = sample.output_tokens - tokens[0]
    if rest <= 0:
        return None
    return (sample.stamps[-1] - sample.stamps[0]) / rest


def steady_window(samples: Samples) -> tuple[int, int] | None:
    """When the load was whole: (start, end) in ns; None when it never was.

    Closed loop and burst of C requests: from the moment the first C of them had their first token (or had failed) to
    the first end that no new request followed. Open loop: from the first end (the system has turned over once) to the
    last send.
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


def _accept_length(ok: list[Sample]) -> float | None:
    """Output tokens by verify passes over the requests whose stream tells both."""
    pairs = [(s.output_tokens, s.verify_passes) for s in ok if s.output_tokens and s.verify_passes]
    return sum(t for t, _ in pairs) / sum(p for _, p in pairs) if pairs else None


def _total(ok: list[Sample], name: str) -> int | None:
    values = [getattr(s, name) for s in ok]
    return sum(values) if values and None not in values else None


def _rate(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds
