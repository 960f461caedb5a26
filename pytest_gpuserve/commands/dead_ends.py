"""`gpuserve dead-ends`: what is documented not to work where, and what changes between two engine versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import add_format, command, width

if TYPE_CHECKING:
    import argparse

    from . import Subcommands

TEXTS = ("reason", "evidence", "way out", "before", "after", "set by", "where")
"""Columns that are broken to the width of the terminal."""


def add(commands: Subcommands) -> None:
    parser = command(commands, "dead-ends", dead_ends, "list the paths that are documented not to work")
    parser.add_argument("--engine", metavar="NAME", help="of this engine, such as sglang")
    parser.add_argument(
        "--engine-version", metavar="VERSION", help="that exist in this version, such as 0.5.14"
    )
    parser.add_argument(
        "--gpu", metavar="GPU", help="on this GPU: a compute capability (12.0, sm120) or a product name"
    )
    parser.add_argument("--flag", metavar="FLAG", help="that this flag or variable leads to, or a part of it")
    parser.add_argument("--since", metavar="A", help="with --until: what changes between two versions")
    parser.add_argument("--until", metavar="B", help="see --since")
    parser.add_argument(
        "--known", metavar="DIR", type=Path, action="append", default=[], help="a folder of your own entries"
    )
    add_format(parser)


def dead_ends(options: argparse.Namespace) -> int:
    from ..failures.known import Registry
    from ..failures.table import CHANGE_HEADINGS, HEADINGS, Filters, changes, listing

    if (options.since is None) != (options.until is None):
        raise InputError("--since and --until belong together")
    registry = Registry.load(options.known)
    filters = Filters(
        engine=options.engine, version=options.engine_version, gpu=options.gpu, flag=options.flag
    )
    if options.since is None:
        return _print("dead ends", HEADINGS, listing(registry, filters), options.format)
    rows = changes(registry, options.since, options.until, filters)
    title = f"dead ends that change from {options.since} to {options.until}"
    return _print(title, CHANGE_HEADINGS, rows, options.format)


def _print(title: str, headings: tuple[str, ...], rows: list[tuple[str, ...]], form: str) -> int:
    from ..report.table import Column, Table

    if form == "json":
        print(json.dumps([dict(zip(headings, row, strict=True)) for row in rows], indent=2))
        return 0
    if not rows:
        print(f"no {title}")
        return 0
    below = {"evidence", "way out"}
    columns = tuple(
        Column(name, wrap=name in TEXTS, under="reason" if name in below and "reason" in headings else None)
        for name in headings
    )
    table = Table(title=title, columns=columns, rows=tuple(rows))
    drawn = {"text": lambda: table.text(width()), "markdown": table.markdown, "csv": table.csv}[form]()
    print(drawn.rstrip("\n"))
    return 0
