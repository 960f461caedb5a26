"""Two finished runs side by side: `gpuserve compare A B` reads their records and runs nothing.

It informs and decides nothing: the gate compares with a baseline, this compares with whatever one likes. A
change is B relative to A, with a 95 % interval where the launches tell how they scatter.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from ..gate.match import NOT_MEASURED, lasting
from ..gate.quantity import QUANTITIES, launch_means, typical
from ..gate.stats import MIN_SCATTER
from ..model import Gate
from .figures import label, number, percent, simulated, values_by_launch
from .table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..record import Record

State = Literal["compared", "not-comparable", "only-in-a", "only-in-b"]

ERROR = 0.05
"""Two-sided: what lies outside the intervals."""


class Difference(Struct, frozen=True):
    """Something that is not the same in both runs."""

    what: str
    a: str
    b: str


class Figure(Struct, frozen=True, kw_only=True):
    """A metric in both runs, in its own unit."""

    metric: str
    a: float
    b: float
    ratio: float
    """b / a."""
    low: float | None = None
    high: float | None = None
    """95 % interval of the ratio; None where too few launches say how launches scatter."""
    change: Literal["better", "worse", "unproven"]
    """unproven: the interval holds 1, or there is none."""


class Pair(Struct, frozen=True, kw_only=True):
    """A case in two runs."""

    suite: str
    case: str
    state: State
    simulated: bool = False
    verdict_a: str | None = None
    verdict_b: str | None = None
    figures: list[Figure] = field(default_factory=list)
    forbids: list[Difference] = field(default_factory=list)
    """What makes the figures not comparable."""
    differs: list[Difference] = field(default_factory=list)
    """What may explain a change: engine, driver, arguments."""


def compare(a: Iterable[Record], b: Iterable[Record]) -> list[Pair]:
    """Join the cases of two runs by suite and case, in the order of A; cases that only B has come last."""
    left, right = ({(record.suite, record.case): record for record in run} for run in (a, b))
    return [_pair(left.get(key), right.get(key)) for key in (*left, *(k for k in right if k not in left))]


def tables(pairs: Sequence[Pair], a: str, b: str) -> list[Table]:
    """What `gpuserve compare` shows; `a` and `b` are what the runs are called. Tables without a row are left
    out."""
    only = {"only-in-a": f"only in A ({a})", "only-in-b": f"only in B ({b})"}
    several = len({pair.suite for pair in pairs}) > 1
    found = [
        _compared([pair for pair in pairs if pair.state == "compared"], a, b, several),
        _not_comparable([pair for pair in pairs if pair.state == "not-comparable"], several),
        _changed([pair for pair in pairs if pair.state == "compared"], several),
        *(
            _only([pair for pair in pairs if pair.state == state], title, several)
            for state, title in only.items()
        ),
    ]
    return [table for table in found if table.rows]


def _pair(a: Record | None, b: Record | None) -> Pair:
    if a is None or b is None:
        record: Record = a or b  # type: ignore[assignment]
        return Pair(
            suite=record.suite,
            case=record.case,
            state="only-in-a" if b is None else "only-in-b",
            simulated=simulated(record),
            verdict_a=a.verdict.value if a else None,
            verdict_b=b.verdict.value if b else None,
        )
    forbids = _differences(_identity(a), _identity(b))
    return Pair(
        suite=a.suite,
        case=a.case,
        state="not-comparable" if forbids else "compared",
        simulated=simulated(a) or simulated(b),
        verdict_a=a.verdict.value,
        verdict_b=b.verdict.value,
        figures=[] if forbids else _figures(a, b),
        forbids=forbids,
        differs=_differences(_circumstances(a), _circumstances(b)),
    )


def _identity(record: Record) -> dict[str, Any]:
    """What must be the same, as for a baseline: hardware, model, workload, definition of the metrics."""
    workload = {f"workload {k}": v for k, v in record.workload_spec.items() if k not in NOT_MEASURED}
    return {
        "simulated": simulated(record),
        "GPU product": record.host.product,
        "number of GPUs": record.host.count,
        "topology": record.host.topology,
        "model": record.model,
        "metric definition": record.definition,
        **workload,
    }


def _circumstances(record: Record) -> dict[str, Any]:
    """What may differ, because that is what such a comparison is about."""
    engine = record.engine
    packages = engine.packages if engine else {}
    env = lasting(record.launches[-1].env) if record.launches else {}
    return {
        "engine": engine.name if engine else None,
        "engine version": engine.version if engine else None,
        "engine build": engine.build if engine else None,
        **{f"package {name}": version for name, version in packages.items()},
        "driver": record.host.driver,
        "power limit (W)": record.host.power_limit_w,
        **{f"--{name}": value for name, value in record.args.items()},
        **env,
    }


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[Difference]:
    return [
        Difference(what, _told(a.get(what)), _told(b.get(what)))
        for what in dict.fromkeys((*a, *b))
        if a.get(what) != b.get(what)
    ]


def _told(value: Any) -> str:
    return "unset" if value is None else str(value)


def _figures(a: Record, b: Record) -> list[Figure]:
    """The metrics that either run gates, for a hypothesis those that are gated by default."""
    gated = [*a.gated, *b.gated] or list(Gate().metrics)
    found = []
    for metric in dict.fromkeys(metric for metric in gated if metric in QUANTITIES):
        left, right = values_by_launch(a, metric), values_by_launch(b, metric)
        if left and right:
            found.append(_figure(metric, left, right))
    return found


def _figure(metric: str, a: list[list[float]], b: list[list[float]]) -> Figure:
    ratio = typical(b) / typical(a)
    low, high = _interval(launch_means(a, 1), launch_means(b, 1))
    change: Literal["better", "worse", "unproven"] = "unproven"
    if low is not None and high is not None and not low <= 1 <= high:
        change = "better" if (low > 1) == (QUANTITIES[metric].direction > 0) else "worse"
    return Figure(metric=metric, a=typical(a), b=typical(b), ratio=ratio, low=low, high=high, change=change)


def _interval(a: list[float], b: list[float]) -> tuple[float | None, float | None]:
    """The 95 % interval of the ratio b / a from log means of launches: Student's, variances pooled.

    (None, None) when neither side has two launches, since then nothing says how launches scatter.
    """
    from scipy.special import stdtrit

    freedom = len(a) + len(b) - 2
    if freedom < 1:
        return None, None
    squares = sum((value - fmean(side)) ** 2 for side in (a, b) for value in side)
    scatter = max(math.sqrt(squares / freedom), MIN_SCATTER)
    reach = float(stdtrit(freedom, 1 - ERROR / 2)) * scatter * math.sqrt(1 / len(a) + 1 / len(b))
    middle = fmean(b) - fmean(a)
    return math.exp(middle - reach), math.exp(middle + reach)


def _name(pair: Pair, several: bool) -> str:
    name = f"{pair.suite}::{pair.case}" if several else pair.case
    return f"{name} (simulated)" if pair.simulated else name


def _verdicts(pair: Pair) -> str:
    if pair.verdict_a == pair.verdict_b:
        return pair.verdict_a or ""
    return f"{pair.verdict_a} -> {pair.verdict_b}"


def _compared(pairs: Sequence[Pair], a: str, b: str, several: bool) -> Table:
    rows = []
    for pair in pairs:
        for index, figure in enumerate(pair.figures or [None]):
            cells = ("", "", "", "", "")
            if figure is not None:
                bounds = (figure.low, figure.high)
                interval = (
                    "" if None in bounds else f" [{', '.join(percent(x) for x in bounds if x is not None)}]"
                )
                cells = (
                    label(figure.metric),
                    number(figure.a),
                    number(figure.b),
                    percent(figure.ratio) + interval,
                    figure.change,
                )
            first = index == 0
            rows.append((_name(pair, several) if first else "", *cells, _verdicts(pair) if first else ""))
    return Table(
        title=f"B ({b}) against A ({a})",
        columns=(
            Column("case"),
            Column("metric"),
            Column("A", right=True),
            Column("B", right=True),
            Column("change", right=True),
            Column("is"),
            Column("verdict"),
        ),
        rows=tuple(rows),
        notes=("unproven: the launches cannot tell it from no change.",)
        if any(figure.change == "unproven" for pair in pairs for figure in pair.figures)
        else (),
    )


def _not_comparable(pairs: Sequence[Pair], several: bool) -> Table:
    return Table(
        title="not comparable",
        columns=(Column("case"), Column("what"), Column("A", wrap=True), Column("B", wrap=True)),
        rows=tuple((_name(pair, several), d.what, d.a, d.b) for pair in pairs for d in pair.forbids),
    )


def _changed(pairs: Sequence[Pair], several: bool) -> Table:
    """What else differs, each difference once with the cases that it concerns."""
    cases: dict[Difference, list[str]] = {}
    for pair in pairs:
        for difference in pair.differs:
            cases.setdefault(difference, []).append(_name(pair, several))
    return Table(
        title="what else differs",
        columns=(Column("what"), Column("A", wrap=True), Column("B", wrap=True), Column("cases", wrap=True)),
        rows=tuple(
            (d.what, d.a, d.b, "all" if len(names) == len(pairs) else ", ".join(names))
            for d, names in cases.items()
        ),
    )


def _only(pairs: Sequence[Pair], title: str, several: bool) -> Table:
    return Table(
        title=title,
        columns=(Column("case"), Column("verdict")),
        rows=tuple((_name(pair, several), pair.verdict_a or pair.verdict_b or "") for pair in pairs),
    )
