"""The tables of a run, drawn from its records: results, curves, documented dead ends, what was skipped,
warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..record import Verdict
from . import curve
from .figures import (
    DEAD_ENDS,
    against_baseline,
    change,
    clipped,
    first_line,
    label,
    metric,
    number,
    root_error,
    simulated,
    times_partner,
)
from .table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..record import Record

SIMULATED_NOTE = "simulated: timed from a host profile, not measured on hardware."
TEXT_LIMIT = 160
"""Characters of a log's message in a table; the whole of it is in the record and in the failure's text."""

SAID_BY_FIGURES = frozenset(
    {Verdict.OK, Verdict.REGRESSED, Verdict.SLOWER, Verdict.MEASURED, Verdict.RECORDED, Verdict.NO_BASELINE}
)
"""Verdicts whose word and figures say it all; the others need a line of their text beside them."""

POINT_NOTES = {
    ("reported", True): ("against a reported figure, unproven",),
    ("reported", False): ("against a reported figure",),
    ("baseline", True): ("unproven, a point estimate",),
}
"""What a baseline is worth, by what it is and whether the comparison has no interval."""

RESULTS = (
    Column("case"),
    Column("verdict"),
    Column("output tok/s", right=True),
    Column("baseline", right=True),
    Column("change", right=True),
    Column("TPOT ms", right=True),
    Column("accept length", right=True),
    Column("launches", right=True),
    Column("note", wrap=True),
)
DEAD_END_COLUMNS = (
    Column("case"),
    Column("kind"),
    Column("phase"),
    Column("verdict"),
    Column("reason", wrap=True),
    Column("seen", under="reason"),
    Column("way out", under="reason"),
    Column("entry", under="reason"),
)
SKIPPED = (Column("case"), Column("what is missing", wrap=True))
WARNINGS = (Column("case"), Column("warning"))


def tables(records: Sequence[Record]) -> list[Table]:
    """The tables of a run that have a row, in the order in which they are shown."""
    builders = (results, throughput_latency, dead_ends, skipped, warnings)
    return [table for build in builders if (table := build(records)) is not None]


def results(records: Sequence[Record]) -> Table | None:
    """Every case that was measured or should have been; a dead end only where it yields figures
    (`slower`)."""
    shown = [
        r
        for r in records
        if r.verdict is not Verdict.SKIPPED
        and not (r.verdict in DEAD_ENDS and metric(r, "output_throughput") is None)
    ]
    return _table("results", RESULTS, shown, _result)


def throughput_latency(records: Sequence[Record]) -> Table | None:
    """A curve for each workload with a list of concurrencies."""
    shown = curve.curves(records)
    most = {
        id(record): max(metric(r, "output_throughput") or 0.0 for r in points)
        for points in shown
        for record in points
    }
    return _table(
        "throughput and latency",
        curve.COLUMNS,
        [record for points in shown for record in points],
        lambda record: [curve.row(record, most[id(record)])],
    )


def dead_ends(records: Sequence[Record]) -> Table | None:
    """Every documented dead end that was tried, whether it ended as documented, otherwise, or not at all."""
    return _table(
        "documented dead ends", DEAD_END_COLUMNS, [r for r in records if r.verdict in DEAD_ENDS], _dead_end
    )


def skipped(records: Sequence[Record]) -> Table | None:
    return _table(
        "skipped",
        SKIPPED,
        [r for r in records if r.verdict is Verdict.SKIPPED],
        lambda record: [(record.reason or record.text,)],
    )


def warnings(records: Sequence[Record]) -> Table | None:
    """What passed and yet wants to be seen: warnings of case, launches and rounds, each once a case."""
    return _table("warnings", WARNINGS, records, lambda record: [(text,) for text in warnings_of(record)])


def warnings_of(record: Record) -> list[str]:
    """The warnings of a case, those of its launches and rounds included; a repeated one once, with its
    count."""
    found: dict[str, int] = {}
    for text in record.warnings:
        found.setdefault(text, 1)
    deeper = [
        text
        for launch in record.launches
        for text in (*launch.warnings, *(w for round_ in launch.rounds for w in round_.warnings))
    ]
    for text in deeper:
        if text not in record.warnings:
            found[text] = found.get(text, 0) + 1
    if record.verdict in {Verdict.IMPROVED, Verdict.INCONCLUSIVE}:
        # These pass, so nobody else prints what to do about them; what the text tells is not told twice.
        found = {record.text: 1, **{text: n for text, n in found.items() if text not in record.text}}
    return [text if times == 1 else f"{text} ({times} times)" for text, times in found.items() if text]


def _result(record: Record) -> list[tuple[str, ...]]:
    baseline = against_baseline(record)
    other_metric = baseline is not None and baseline.metric != "output_throughput"
    reference = "" if baseline is None else number(baseline.reference)
    return [
        (
            record.verdict.value,
            number(metric(record, "output_throughput")),
            f"{label(baseline.metric)} {reference}" if baseline and other_metric else reference,
            change(baseline) if baseline else "",
            number(metric(record, "tpot_ms")),
            number(metric(record, "accept_length")),
            str(len(record.launches)) if record.launches else "",
            "; ".join(_notes(record)),
        )
    ]


def _notes(record: Record) -> Iterable[str]:
    if record.failure is not None:
        where = f"{record.failure.phase}: " if record.failure.phase else ""
        yield clipped(where + root_error(record.failure), TEXT_LIMIT)
    elif record.verdict in {Verdict.IMPROVED, Verdict.INCONCLUSIVE}:
        yield "see the warnings"
    elif record.verdict not in SAID_BY_FIGURES and record.verdict not in DEAD_ENDS:
        yield clipped(first_line(record.text or record.reason), TEXT_LIMIT)
    if partner := times_partner(record):
        yield partner
    primary = against_baseline(record)
    if primary is not None:
        unproven = primary.low is None and primary.high is None
        yield from POINT_NOTES.get((primary.against, unproven), ())
    for comparison in record.comparisons:
        if (
            comparison.decision == "worse"
            and comparison is not primary
            and comparison.against in {"baseline", "reported"}
        ):
            yield f"{label(comparison.metric)} {change(comparison)}"
    if record.hypothesis:
        yield "hypothesis, not gated"


def _dead_end(record: Record) -> list[tuple[str, ...]]:
    failure = record.failure
    seen = clipped(root_error(failure), TEXT_LIMIT) if failure else times_partner(record)
    if record.verdict is Verdict.DEAD_END_OPEN:
        rate = metric(record, "output_throughput")
        seen = "it works" + (f", {number(rate)} tok/s" if rate is not None else "")
    return [
        (
            record.dead_end_kind or "",
            (failure.phase or "") if failure else "",
            record.verdict.value,
            record.reason,
            seen,
            record.way_out or "",
            record.dead_end_entry or "",
        )
    ]


def _table(
    name: str,
    columns: tuple[Column, ...],
    records: Sequence[Record],
    cells: Callable[[Record], list[tuple[str, ...]]],
) -> Table | None:
    """Rows of `records`, each led by its case; None when there is no row. The title says where they come
    from."""
    found = [(record, row) for record in records for row in cells(record)]
    if not found:
        return None
    sources = list(dict.fromkeys(record.suite for record, _ in found))
    mixed = len({simulated(record) for record, _ in found}) > 1
    return Table(
        title=f"{name} {_origin([record for record, _ in found])}".strip(),
        columns=columns,
        rows=tuple((_case(record, len(sources) > 1, mixed), *row) for record, row in found),
        notes=(SIMULATED_NOTE,) if columns is RESULTS and any(simulated(r) for r, _ in found) else (),
    )


def _case(record: Record, several_suites: bool, mixed: bool) -> str:
    name = f"{record.suite}::{record.case}" if several_suites else record.case
    return f"{name} (simulated)" if mixed and simulated(record) else name


def _origin(records: Sequence[Record]) -> str:
    """`on rtx-pro-6000-blackwell-x8, sglang 0.5.10 patched, simulated`: what all rows share."""
    hosts = {record.host.profile for record in records}
    engines = {
        " ".join([r.engine.name, r.engine.version] + ([r.engine.build] if r.engine.build != "stock" else []))
        for r in records
        if r.engine
    }
    parts = [f"on {next(iter(hosts))}"] if len(hosts) == 1 else []
    parts += engines if len(engines) == 1 else []
    states = {simulated(record) for record in records}
    if states == {True}:
        parts.append("simulated")
    elif len(states) > 1:
        parts.append("partly simulated")
    return ", ".join(parts)
