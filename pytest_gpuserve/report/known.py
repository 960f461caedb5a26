"""The registry of dead ends, laid out for the terminal: the rows are `failures.table`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..failures.table import CHANGE_HEADINGS, HEADINGS, changes, listing
from .table import Column, Table

if TYPE_CHECKING:
    from ..failures.known import Registry
    from ..failures.table import Filters

_LISTING = {
    "reason": Column("reason", wrap=True),
    **{name: Column(name, under="reason") for name in ("set by", "where", "phases", "evidence", "way out")},
}
_CHANGES = {
    "before": Column("before", wrap=True),
    "after": Column("after", wrap=True),
    "where": Column("where", under="before"),
    "way out": Column("way out", under="after"),
}


def known(registry: Registry, filters: Filters) -> Table:
    """What does not work, a row a behaviour. Raises InputError for a version that is none."""
    return Table(
        title="documented dead ends" + _of(filters),
        columns=tuple(_LISTING.get(name, Column(name)) for name in HEADINGS),
        rows=tuple(listing(registry, filters)),
    )


def upgrade(registry: Registry, since: str, until: str, filters: Filters) -> Table:
    """What opens, closes or fails differently in an upgrade. Raises InputError for a version that is none."""
    engine = f"{filters.engine} " if filters.engine else ""
    rest = replace(filters, engine=None)
    return Table(
        title=f"dead ends that change from {engine}{since} to {until}" + _of(rest),
        columns=tuple(_CHANGES.get(name, Column(name)) for name in CHANGE_HEADINGS),
        rows=tuple(changes(registry, since, until, filters)),
    )


def _of(filters: Filters) -> str:
    told = [
        " ".join(filter(None, (filters.engine, filters.version))),
        f"on {filters.gpu}" if filters.gpu else "",
        f"set by {filters.flag}" if filters.flag else "",
    ]
    shown = ", ".join(filter(None, told))
    return f": {shown}" if shown else ""
