"""One table model for every writer: terminal, Markdown, CSV and JSON all draw the same rows."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Callable

    Paint = Callable[[str, str], str]

DEFAULT_WIDTH = 140
LEAST_WIDTH = 30
"""Of a column that is wrapped: below that a line of the terminal breaks, which reads better than one word a
line."""

TALL = 4
"""Lines of a row from which on an empty line stands between rows, so that one sees where the next begins."""

HEAD_PADDING = 2
"""Columns that tabulate adds to every heading."""


class Column(Struct, frozen=True):
    name: str
    right: bool = False
    """Figures stand at the right."""
    wrap: bool = False
    """Long texts are broken to the width of the terminal; others, such as commands, are kept on one line."""
    under: str | None = None
    """On the terminal the value stands below that column's, as `name: value`, because a line has no room for
    it."""


class Table(Struct, frozen=True, kw_only=True):
    """A title, rows of texts, and notes that stand below. An empty cell is a value that is not known or not
    there."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self, width: int = DEFAULT_WIDTH, paint: Paint | None = None) -> str:
        """The body for a terminal of `width` columns, without the title. `paint(column, cell)` may add
        colour."""
        from tabulate import tabulate

        columns, rows = self._folded()
        room = _room(columns, rows, width)
        shown = [
            [_cell(column, cell, room, paint) for column, cell in zip(columns, row, strict=True)]
            for row in rows
        ]
        body = tabulate(
            shown,
            headers=[_heading(column) for column in columns],
            colalign=["right" if column.right else "left" for column in columns] if shown else None,
            disable_numparse=True,
        )
        lines = _apart([line.rstrip() for line in body.splitlines()], shown)
        notes = [part for note in self.notes for part in textwrap.wrap(note, max(width, LEAST_WIDTH))]
        return "\n".join(lines + notes)

    def markdown(self) -> str:
        """A heading, the table with every column that holds something, and the notes."""
        from tabulate import tabulate

        used = [i for i, _ in enumerate(self.columns) if any(row[i] for row in self.rows)]
        body = tabulate(
            [[escape(row[i]) for i in used] for row in self.rows],
            headers=[self.columns[i].name for i in used],
            tablefmt="pipe",
            colalign=["right" if self.columns[i].right else "left" for i in used] if self.rows else None,
            disable_numparse=True,
        )
        return "\n\n".join([f"### {escape(self.title)}", body, *(escape(note) for note in self.notes)])

    def csv(self) -> str:
        """Header and rows, every column, RFC 4180."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow([column.name for column in self.columns])
        writer.writerows(self.rows)
        return out.getvalue()

    def _folded(self) -> tuple[list[Column], list[list[str]]]:
        """The columns that get one of their own on the terminal, with the others' values below theirs."""
        own = [
            (i, column)
            for i, column in enumerate(self.columns)
            if column.under is None and any(row[i] for row in self.rows)
        ]
        folded = [(i, column) for i, column in enumerate(self.columns) if column.under is not None]
        rows = [
            [
                "\n".join(
                    [row[i], *(f"{c.name}: {row[j]}" for j, c in folded if c.under == column.name and row[j])]
                ).strip("\n")
                for i, column in own
            ]
            for row in self.rows
        ]
        return [column for _, column in own], rows


def _apart(lines: list[str], rows: list[list[str]]) -> list[str]:
    """A body's lines, with an empty one between rows when some of them are tall."""
    heights = [max(cell.count("\n") + 1 for cell in row) for row in rows]
    if max(heights, default=0) < TALL:
        return lines
    start = len(lines) - sum(heights)
    parts = [lines[:start]]
    for index, height in enumerate(heights):
        parts.append(([""] if index else []) + lines[start : start + height])
        start += height
    return [line for part in parts for line in part]


def _heading(column: Column) -> str:
    """Figures are narrower than what they are called, so their headings take a line a word."""
    return column.name.replace(" ", "\n") if column.right else column.name


def _room(columns: list[Column], rows: list[list[str]], width: int) -> int:
    """What a column that is wrapped may take of the line."""
    fixed = sum(
        max(
            [
                *(len(line) + HEAD_PADDING for line in _heading(column).splitlines()),
                *(len(line) for row in rows for line in row[i].splitlines()),
            ]
        )
        for i, column in enumerate(columns)
        if not column.wrap
    )
    wrapped = sum(column.wrap for column in columns)
    gaps = 2 * (len(columns) - 1)
    return max((width - fixed - gaps) // wrapped if wrapped else width, LEAST_WIDTH)


def _cell(column: Column, cell: str, room: int, paint: Paint | None) -> str:
    if column.right and not cell:
        return "-"
    cell = cell.translate(CONTROLS)
    if column.wrap:
        cell = "\n".join(
            part
            for line in cell.splitlines()
            for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False)
        )
    return paint(column.name, cell) if paint and cell else cell


_SPECIAL = re.compile(r"[\\`*|]|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])")
"""What would format in Markdown; an underscore within a word does not, nor brackets without a link."""


def escape(text: str) -> str:
    """A text as it stands, in a Markdown table: nothing in it formats, breaks the row or vanishes as a
    tag."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\n", "<br>")
