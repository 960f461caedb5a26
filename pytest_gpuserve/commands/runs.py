"""`gpuserve report` and `gpuserve compare`: finished runs, drawn again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import RUN_HELP, add_format, command, find_run, width

if TYPE_CHECKING:
    import argparse

    from . import Subcommands


def add(commands: Subcommands) -> None:
    parser = command(commands, "compare", compare, "hold two finished runs side by side, B against A")
    parser.add_argument("a", metavar="RUN_A", help=RUN_HELP)
    parser.add_argument("b", metavar="RUN_B", help="the same")
    add_format(parser)

    parser = command(commands, "report", report, "show a finished run again")
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{RUN_HELP} (default: the latest run)")
    add_format(parser)


def report(options: argparse.Namespace) -> int:
    from ..report import draw

    print(draw.report(find_run(options.run), options.format, width=width()), end="")
    return 0


def compare(options: argparse.Namespace) -> int:
    from ..report import draw

    print(draw.comparison(find_run(options.a), find_run(options.b), options.format, width=width()), end="")
    return 0
