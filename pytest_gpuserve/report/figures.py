"""The figures and short texts of one record, as every table, property and summary shows them."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from ..gate.quantity import MOST_TOLD, typical, usable
from ..record import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..record import Comparison, Failure, Record, Round

Plain: TypeAlias = str | int | float | bool

FAILING = frozenset(
    {
        Verdict.REGRESSED,
        Verdict.SLOWER,
        Verdict.NO_BASELINE,
        Verdict.NO_PARTNER,
        Verdict.NOT_COMPARABLE,
        Verdict.INVALID,
        Verdict.INERT,
        Verdict.START_FAILED,
        Verdict.CRASHED,
        Verdict.STALLED,
        Verdict.GARBAGE,
        Verdict.STOP_FAILED,
        Verdict.DEAD_END_CHANGED,
        Verdict.DEAD_END_OPEN,
        Verdict.ERROR,
    }
)
"""Verdicts that fail a test whatever the settings are."""

DEAD_ENDS = frozenset({Verdict.DEAD_END, Verdict.DEAD_END_CHANGED, Verdict.DEAD_END_OPEN})

LABELS = {
    "output_throughput": "output tok/s",
    "output_throughput_total": "output tok/s (whole round)",
    "input_throughput": "input tok/s",
    "request_throughput": "requests/s",
    "peak_output_throughput": "peak tok/s",
    "ttft_ms": "TTFT ms",
    "ttfot_ms": "TTFOT ms",
    "tpot_ms": "TPOT ms",
    "itl_ms": "ITL ms",
    "chunk_gap_ms": "chunk gap ms",
    "e2e_ms": "E2E ms",
    "accept_length": "accept length",
    "goodput": "goodput req/s",
}
"""What people call a metric, with its unit."""


def failed(record: Record) -> bool:
    """Whether the case failed its test: pytest's word where it is known, else by verdict."""
    return record.outcome in {"failed", "error"} if record.outcome else record.verdict in FAILING


def simulated(record: Record) -> bool:
    return record.simulated or record.host.simulated


def valid_rounds(record: Record) -> list[list[Round]]:
    """The rounds whose numbers may be used, by launch; launches without any are left out."""
    by_launch = [[round_ for round_ in launch.rounds if not round_.invalid] for launch in record.launches]
    return [rounds for rounds in by_launch if rounds]


def metric(record: Record, name: str) -> float | None:
    """A metric of the case, by the gate's own mean: over launches of the means of their rounds."""
    compared = next((c.value for c in record.comparisons if c.metric == name), None)
    if compared is not None:
        return compared
    launches = values_by_launch(record, name)
    return typical(launches) if launches else None


def percentile(record: Record, name: str, which: str) -> float | None:
    """`p50`, `p90`, `p99` or `mean` of a distribution, such as `ttft_ms`, by the gate's own mean."""
    launches = [
        [getattr(spread, which) for r in rounds if (spread := getattr(r.metrics, name)) is not None]
        for rounds in valid_rounds(record)
    ]
    known = [values for values in launches if values]
    return typical(known) if known else None


def values_by_launch(record: Record, name: str) -> list[list[float]]:
    """A metric's value in every usable round, by launch; launches without any are left out."""
    launches = [
        [value for r in rounds if (value := r.metrics.value(name)) is not None and usable(value)]
        for rounds in valid_rounds(record)
    ]
    return [values for values in launches if values]


def against_baseline(record: Record) -> Comparison | None:
    """The comparison with the stored or reported baseline that decides: the gate puts the primary metric
    first."""
    return next((c for c in record.comparisons if c.against in {"baseline", "reported"}), None)


def against_partner(record: Record) -> Comparison | None:
    return next((c for c in record.comparisons if c.against == "partner"), None)


def number(value: float | None) -> str:
    """Three or four digits, which is what these measurements are good for; empty when unknown."""
    if value is None:
        return ""
    size = abs(value)
    if size >= 1000:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 or value == 0 else f"{value:.3g}"


def change(comparison: Comparison) -> str:
    """`-3.1% [-4.0%, -2.2%]`; without an interval where the launches gave none."""
    return percent(comparison.ratio) + _interval(comparison, percent)


def _interval(comparison: Comparison, word: Callable[[float], str]) -> str:
    """` [low, high]`, `...` for a bound that tells nothing, and empty where neither does."""
    bounds = [
        None if bound is None or not 1 / MOST_TOLD <= bound <= MOST_TOLD else bound
        for bound in (comparison.low, comparison.high)
    ]
    told = ["..." if bound is None else word(bound) for bound in bounds]
    return f" [{', '.join(told)}]" if any(bound is not None for bound in bounds) else ""


def percent(ratio: float) -> str:
    text = f"{ratio - 1:+.1%}"
    return "0.0%" if text in {"+0.0%", "-0.0%"} else text


def times_partner(record: Record) -> str:
    """`0.60x of no-spec [0.58, 0.63]`, and the metric when it is not the output throughput; empty without a
    partner."""
    comparison = against_partner(record)
    if comparison is None:
        return ""
    what = "" if comparison.metric == "output_throughput" else f" in {label(comparison.metric)}"
    interval = _interval(comparison, "{:.2f}".format)
    return f"{comparison.ratio:.2f}x of {record.compare_to or 'its partner'}{what}{interval}"


def label(name: str) -> str:
    return LABELS.get(name, name)


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def clipped(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def root_error(failure: Failure) -> str:
    """`KeyError: 12`, or the class where there is neither an exception nor a message."""
    message = first_line(failure.message)
    if failure.exception and not message.startswith(failure.exception):
        message = f"{failure.exception}: {message}" if message else failure.exception
    return message or failure.failure_class


def counts(records: Iterable[Record]) -> str:
    """`1 ok, 8 dead-end, 2 skipped`: failures first, then in the order in which verdicts are declared."""
    found: dict[Verdict, int] = {}
    for record in records:
        found[record.verdict] = found.get(record.verdict, 0) + 1
    order = sorted(found, key=lambda v: (v not in FAILING, list(Verdict).index(v)))
    return ", ".join(f"{found[verdict]} {verdict.value}" for verdict in order)


def flat(record: Record) -> dict[str, Plain]:
    """One level of plain values for CSV, JUnit and other tools' JSON; what is unknown is left out."""
    baseline, partner, failure = against_baseline(record), against_partner(record), record.failure
    ready = [launch.ready_s for launch in record.launches if launch.ready_s is not None]
    values: dict[str, Plain | None] = {
        "suite": record.suite,
        "case": record.case,
        "config": record.config,
        "workload": record.workload,
        "verdict": record.verdict.value,
        "outcome": record.outcome or None,
        "simulated": simulated(record),
        "hypothesis": record.hypothesis,
        "host": record.host.profile,
        "engine": record.engine.name if record.engine else None,
        "engine_version": record.engine.version if record.engine else None,
        "engine_build": record.engine.build if record.engine else None,
        "model": record.model or None,
        **{name: metric(record, name) for name in LABELS},
        "gated_metric": baseline.metric if baseline else None,
        "baseline": baseline.reference if baseline else None,
        "baseline_kind": {"baseline": "measured"}.get(baseline.against, baseline.against)
        if baseline
        else None,
        "ratio": baseline.ratio if baseline else None,
        "ratio_low": baseline.low if baseline else None,
        "ratio_high": baseline.high if baseline else None,
        "compare_to": record.compare_to,
        "partner_ratio": partner.ratio if partner else None,
        "partner_ratio_low": partner.low if partner else None,
        "partner_ratio_high": partner.high if partner else None,
        "launches": len(record.launches),
        "rounds": sum(map(len, valid_rounds(record))),
        "ready_s": fmean(ready) if ready else None,
        "dead_end_kind": record.dead_end_kind,
        "dead_end_entry": record.dead_end_entry,
        "failure_class": failure.failure_class if failure else None,
        "failure_phase": failure.phase if failure else None,
        "failure": clipped(root_error(failure), 200) if failure else None,
        "reason": clipped(record.reason, 200) or None,
        "started": record.started or None,
        "duration_s": record.duration_s,
        "log": next((launch.log for launch in reversed(record.launches) if launch.log), None),
        "definition": record.definition,
    }
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in values.items()
        if value is not None
    }
