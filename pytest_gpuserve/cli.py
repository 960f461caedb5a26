"""`gpuserve`: what can be asked without running pytest. Each command imports its area only when it is
called."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from . import __version__
from .errors import GpuserveError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]
    Handler = Callable[[argparse.Namespace], int]

FORMATS = ("text", "markdown", "json", "csv")
BAD_INPUT = 2
"""Exit status for what the user must correct: argparse's own for usage, ours for input."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it did what was asked, 2 for bad input (one line on stderr), else what it
    documents."""
    parser = _parser()
    options = parser.parse_args(argv)
    handler: Handler = options.handler
    try:
        status = handler(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `gpuserve report | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InputError as error:
        print(f"gpuserve {options.command}: {error}", file=sys.stderr)
        return BAD_INPUT
    except GpuserveError as error:
        print(f"gpuserve {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuserve",
        description="Declarative benchmarks of LLM servers: what can be asked without pytest.",
    )
    parser.add_argument("--version", action="version", version=f"pytest-gpuserve {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_report, _add_compare):
        add(commands)
    return parser


def _command(commands: Subcommands, name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(handler=handler)
    return parser


# --- report, compare ------------------------------------------------------------------------------

RUN_HELP = "folder of a run, its name under .gpuserve/runs, or a file of records"


def _add_report(commands: Subcommands) -> None:
    parser = _command(commands, "report", _report, "show a finished run again")
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{RUN_HELP} (default: the latest run)")
    _add_format(parser)


def _report(options: argparse.Namespace) -> int:
    from .report.draw import report
    from .report.store import find

    print(report(find(options.run), options.format, width=_width()), end="")
    return 0


def _add_compare(commands: Subcommands) -> None:
    parser = _command(commands, "compare", _compare, "hold two finished runs side by side, B against A")
    parser.add_argument("a", metavar="RUN_A", help=RUN_HELP)
    parser.add_argument("b", metavar="RUN_B", help="the same")
    _add_format(parser)


def _compare(options: argparse.Namespace) -> int:
    from .report.draw import comparison
    from .report.store import find

    print(comparison(find(options.a), find(options.b), options.format, width=_width()), end="")
    return 0


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")


def _width() -> int:
    """Columns of the terminal; wide where the output goes elsewhere."""
    from .report.table import DEFAULT_WIDTH

    return max(os.get_terminal_size().columns, 80) if sys.stdout.isatty() else DEFAULT_WIDTH


if __name__ == "__main__":
    sys.exit(main())
