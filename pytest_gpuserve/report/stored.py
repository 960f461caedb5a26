"""What is stored as baselines, as tables: one a file, one row a metric."""

from __future__ import annotations

import statistics
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..gate.quantity import QUANTITIES, launch_means, typical
from .figures import label, number
from .table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..gate.baseline import Baseline, Baselines

COLUMNS = (
    Column("case"),
    Column("metric"),
    Column("value", right=True),
    Column("launches", right=True),
    Column("scatter", right=True),
    Column("tolerance", right=True),
    Column("from", wrap=True),
)
SCATTER_NOTE = "scatter: standard deviation between launches, which says what slowdown can be found at all."


def tables(baselines: Baselines, names: Sequence[str] = ()) -> list[Table]:
    """The baselines whose profile, suite, case or `suite::case` fits one of `names` (shell patterns).

    One table a file; without names all of them. Raises BaselineError naming file, line and key.
    """
    found = []
    for profile, suite in baselines.files():
        cases = [
            each
            for case, each in sorted(baselines.cases(profile, suite).items())
            if not names
            or any(fnmatchcase(s, n) for n in names for s in (profile, suite, case, f"{suite}::{case}"))
        ]
        if cases:
            found.append(_table(f"{suite} on {profile}", cases))
    return found


def _table(title: str, cases: Sequence[Baseline]) -> Table:
    rows = tuple(row for case in cases for row in _rows(case))
    return Table(
        title=f"baselines of {title}",
        columns=COLUMNS,
        rows=rows,
        notes=(SCATTER_NOTE,) if any(row[4] for row in rows) else (),
    )


def _rows(case: Baseline) -> list[tuple[str, ...]]:
    return [
        (
            case.case if index == 0 else "",
            label(metric),
            number(typical(launches)),
            str(case.count or "") if index == 0 else "",
            _scatter(metric, launches),
            "" if index or case.tolerance is None else f"{case.tolerance * 100:.3g}%",
            _origin(case) if index == 0 else "",
        )
        for index, (metric, launches) in enumerate(case.launches.items())
    ]


def _scatter(metric: str, launches: list[list[float]]) -> str:
    if len(launches) < 2:
        return ""
    return f"{statistics.stdev(launch_means(launches, QUANTITIES[metric].direction)):.2%}"


def _origin(case: Baseline) -> str:
    if case.reported is not None:
        return f"reported: {case.reported.source}"
    measured = case.measured
    if measured is None:
        return ""
    engine = " ".join(filter(None, (measured.engine, measured.version)))
    if measured.build not in {None, "stock"}:
        engine += f" {measured.build}"
    parts = (measured.date[:10], engine, f"driver {measured.driver}" if measured.driver else "")
    return "measured " + ", ".join(filter(None, parts))
