"""The commands of `gpuserve`, a module each. A command imports its area only when it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]
    Handler = Callable[[argparse.Namespace], int]

FORMATS = ("text", "markdown", "json", "csv")
RUN_HELP = "folder of a run, its name under .gpuserve/runs, `latest` (the last that has records), or a file of records"


def command(commands: Subcommands, name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
    """Add a command that `handler` runs; it returns the exit status, and raises InputError for bad input."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(handler=handler)
    return parser


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")


def width() -> int:
    """Columns of the terminal; wide where the output goes elsewhere."""
    from ..report.table import DEFAULT_WIDTH

    return max(os.get_terminal_size().columns, 80) if sys.stdout.isatty() else DEFAULT_WIDTH


def find_run(name: str | None) -> Path:
    """What a user calls a run. Says on stderr when the latest is not the newest, which has no records yet.

    Raises InputError when there is no such thing.
    """
    from ..report.store import find, newest

    found = find(name)
    begun = newest() if name in {None, "latest"} else None
    if begun is not None and begun != found:
        print(f"{begun.name} has no records yet: taking {found.name}", file=sys.stderr)
    return found


def engine_python(text: str) -> tuple[str, str]:
    """An engine and its interpreter, of `[ENGINE=]PYTHON`. Raises InputError."""
    from ..engines.registry import interpreter

    name, python = interpreter(text, option="--engine-python")
    return name, str(Path(python).expanduser())  # behind `sglang=` not every shell expands `~`
