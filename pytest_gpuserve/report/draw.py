"""Draws a finished run, or two side by side, as text, Markdown, JSON or CSV: what `gpuserve report` and
`compare` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from . import compare, summary
from .cases import tables
from .figures import counts, flat, simulated
from .store import info_of, read
from .table import DEFAULT_WIDTH, Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..record import Record

Format: TypeAlias = Literal["text", "markdown", "json", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)


def report(run: Path, form: Format, *, width: int = DEFAULT_WIDTH) -> str:
    """A run, or a file of records. Raises InputError when it cannot be read.

    text: the tables of the terminal; markdown: the job summary; json: run.json and every record whole;
    csv: one row a case with the values that JUnit gets, unrounded by any table.
    """
    records = read(run)
    if form == "json":
        info = info_of(run) if run.is_dir() else None
        return _json({"run": info, "records": records})
    if form == "csv":
        return _flat(records).csv()
    if form == "markdown":
        return summary.markdown(records, run=run.name)
    head = f"{run.name}: {counts(records) or 'no cases'}"
    if records and all(map(simulated, records)):
        head += ", simulated"
    return _text(head, tables(records), width)


def comparison(a: Path, b: Path, form: Format, *, width: int = DEFAULT_WIDTH) -> str:
    """Two runs side by side; json: the pairs of `report.compare`. Raises InputError when one cannot be
    read."""
    pairs = compare.compare(read(a), read(b))
    names = (a.name, b.name) if a.name != b.name else (str(a), str(b))
    if form == "json":
        return _json({"a": str(a), "b": str(b), "cases": pairs})
    if form == "csv":
        return _pairs(pairs).csv()
    found = compare.tables(pairs, *names)
    if form == "markdown":
        heading = f"## gpuserve compare: {names[1]} against {names[0]}"
        return "\n\n".join([heading, *(table.markdown() for table in found)]) + "\n"
    return _text("" if found else "no cases in either run", found, width)


def draw(found: Sequence[Table], form: Format, *, width: int = DEFAULT_WIDTH) -> str:
    """Tables of any kind; json: a list of objects a table, by title. csv has one table after the other."""
    if form == "markdown":
        return "\n\n".join(table.markdown() for table in found) + "\n"
    if form == "csv":
        return "\n".join(table.csv() for table in found)
    if form == "json":
        return _json({table.title: _objects(table) for table in found})
    return _text("", found, width)


def _objects(table: Table) -> list[dict[str, str]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def _text(head: str, found: Sequence[Table], width: int) -> str:
    parts = [f"{table.title}\n\n{table.text(width)}" for table in found]
    return "\n\n".join(([head] if head else []) + parts) + "\n"


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _flat(records: Sequence[Record]) -> Table:
    rows = [flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(
        title="",
        columns=tuple(Column(name) for name in names),
        rows=tuple(tuple(_cell(row.get(name)) for name in names) for row in rows),
    )


def _pairs(pairs: Sequence[compare.Pair]) -> Table:
    """One row a case and metric; a case without figures has one row all the same."""
    head = ("suite", "case", "state", "simulated", "verdict_a", "verdict_b")
    figure_names = compare.Figure.__struct_fields__
    none: list[compare.Figure | None] = [None]
    rows = [
        (
            *(_cell(getattr(pair, name)) for name in head),
            *(_cell(getattr(figure, name, None)) for name in figure_names),
        )
        for pair in pairs
        for figure in pair.figures or none
    ]
    return Table(title="", columns=tuple(map(Column, (*head, *figure_names))), rows=tuple(rows))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
