"""`gpuserve`: what can be asked without running pytest."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from . import __version__
from .commands import baselines, bench, check, classify, dead_ends, explain, runs
from .errors import GpuserveError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .commands import Handler

COMMANDS = (check, bench, runs, baselines, classify, dead_ends, explain)
"""Modules of `commands`; what they add is listed by `gpuserve --help` in this order."""

BAD_INPUT = 2
"""Exit status for what the user must correct: argparse's own for usage, ours for input."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: 0 when it did what was asked, 2 for bad input (one line on stderr), 130 after Ctrl-C."""
    options = _parser().parse_args(explain.as_words(sys.argv[1:] if argv is None else argv))
    handler: Handler = options.handler
    try:
        status = handler(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `gpuserve report | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except GpuserveError as error:
        print(f"gpuserve {options.command}: {error}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, InputError) else 1
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
    for module in COMMANDS:
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
