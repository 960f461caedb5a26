"""What is stored as baselines, as tables: one a file, one row a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figures import label, number
from .table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..gate.show import Stored

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


def tables(stored: Sequence[Stored]) -> list[Table]:
    """The cases that `gate.show` found, by file."""
    files: dict[str, list[tuple[str, ...]]] = {}
    for case in stored:
        files.setdefault(f"baselines of {case.suite} on {case.profile}", []).extend(_rows(case))
    return [
        Table(
            title=title,
            columns=COLUMNS,
            rows=tuple(rows),
            notes=(SCATTER_NOTE,) if any(row[4] for row in rows) else (),
        )
        for title, rows in files.items()
    ]


def _rows(case: Stored) -> list[tuple[str, ...]]:
    """A row a metric; what belongs to the case stands in its first one."""
    rows: list[tuple[str, ...]] = []
    for metric, value in case.figures.items():
        scatter = case.scatter[metric]
        first = not rows
        rows.append(
            (
                case.case if first else "",
                label(metric),
                number(value),
                str(case.launches or "") if first else "",
                "" if scatter is None else f"{scatter:.2%}",
                "" if case.tolerance is None or not first else f"{case.tolerance * 100:.3g}%",
                case.source if first else "",
            )
        )
    return rows
