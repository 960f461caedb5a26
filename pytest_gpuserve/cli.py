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
    from pathlib import Path

    from .record import Record

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
    for add in (_add_baselines, _add_classify, _add_compare, _add_report):
        add(commands)
    return parser


def _command(commands: Subcommands, name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(handler=handler)
    return parser


# --- report, compare ------------------------------------------------------------------------------

RUN_HELP = "folder of a run, its name under .gpuserve/runs, `latest`, or a file of records"


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


# --- baselines ------------------------------------------------------------------------------------

CASES_HELP = "cases, as suite::case, case or suite, with shell patterns"


def _add_baselines(commands: Subcommands) -> None:
    text = "show, accept and compare stored baselines"
    baselines = commands.add_parser("baselines", help=text, description=text)
    actions = baselines.add_subparsers(dest="action", metavar="ACTION", required=True)

    show = _command(actions, "show", _baselines_show, "show what is stored")
    show.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{CASES_HELP}, or a host profile (default: all)"
    )
    _add_format(show)

    accept = _command(
        actions,
        "accept",
        _baselines_accept,
        "make the launches of finished runs the baselines of their cases; without CASE of those that have "
        "none, that improved, or that were run to be recorded",
    )
    diff = _command(actions, "diff", _baselines_diff, "show what `accept` would change, and change nothing")
    for parser in (accept, diff):
        parser.add_argument("run", metavar="RUN", help=RUN_HELP)
        parser.add_argument("names", nargs="*", metavar="CASE", help=CASES_HELP)
        parser.add_argument(
            "--with",
            dest="more",
            action="append",
            default=[],
            metavar="RUN",
            help="a further run, whose launches are taken together with the first's; may be repeated",
        )
    accept.add_argument(
        "--tolerance", type=_fraction, metavar="SHARE", help="store this tolerance for the cases, such as 3%%"
    )
    for parser in (show, accept, diff):
        parser.add_argument(
            "--baselines", metavar="DIR", help="folder of the baselines (default: baselines, here or above)"
        )


def _baselines_show(options: argparse.Namespace) -> int:
    from .gate.baseline import Baselines
    from .report.draw import draw
    from .report.stored import tables

    folder = _baselines_folder(options)
    found = tables(Baselines(folder), options.names)
    if not found:
        which = f" fits {', '.join(options.names)}" if options.names else ""
        raise InputError(f"no baseline in {folder}{which}")
    print(draw(found, options.format, width=_width()), end="")
    return 0


def _baselines_accept(options: argparse.Namespace) -> int:
    from .gate.accept import accept
    from .yaml_source import shown

    folder = _baselines_folder(options)
    changes = accept(folder, _records(options), options.names, tolerance=options.tolerance)
    if not changes:
        raise InputError(NOTHING_TO_ACCEPT)
    for line in (line for change in changes for line in change.lines):
        print(line)
    print("wrote " + ", ".join(dict.fromkeys(shown(change.path) for change in changes)))
    return 0


def _baselines_diff(options: argparse.Namespace) -> int:
    from .gate.accept import diff

    changes = diff(_baselines_folder(options), _records(options), options.names)
    if not changes:
        raise InputError(NOTHING_TO_ACCEPT)
    for line in (line for change in changes for line in change.lines):
        print(line)
    return 0


NOTHING_TO_ACCEPT = (
    "nothing to accept: no case of this run lacks a baseline, improved, or was run to be recorded; "
    "name the cases to accept them all the same"
)


def _records(options: argparse.Namespace) -> list[Record]:
    from .report.store import find, read

    return [record for name in (options.run, *options.more) for record in read(find(name))]


def _baselines_folder(options: argparse.Namespace) -> Path:
    """The folder named, else `baselines` here or in the nearest folder above that has one."""
    from pathlib import Path

    if options.baselines:
        return Path(options.baselines)
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / "baselines").is_dir()), here)
    return root / "baselines"


def _fraction(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1, such as 3%")
    return value


# --- classify -------------------------------------------------------------------------------------


def _add_classify(commands: Subcommands) -> None:
    parser = _command(
        commands, "classify", _classify, "tell the root error of a server's log, and what to try"
    )
    parser.add_argument(
        "log", metavar="LOGFILE", help="what the server printed; - reads it from the standard input"
    )
    parser.add_argument("--engine", metavar="NAME", help="whose log it is (default: recognised from the log)")
    parser.add_argument(
        "--exit-code", type=int, metavar="N", help="how the server ended, as a shell or subprocess gives it"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON alone; its `class` is null when nothing failed"
    )


def _classify(options: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from .failures.classify import classify_file
    from .failures.phases import engines
    from .report.failure import as_dict, as_text

    if options.engine is not None and options.engine not in engines():
        from .yaml_source import did_you_mean

        near = did_you_mean(options.engine, engines()) or f"; there are {', '.join(engines())}"
        raise InputError(f"no engine is called {options.engine!r}{near}")
    path = Path("/dev/stdin" if options.log == "-" else options.log)
    try:
        failure = classify_file(path, engine=options.engine, exit_status=options.exit_code)
    except OSError as error:
        raise InputError(f"{options.log}: {error.strerror or error}") from None
    if options.json:
        print(json.dumps(as_dict(failure), indent=2, ensure_ascii=False))
    else:
        print(as_text(failure, options.log), end="")
    return 0


# --- shared ---------------------------------------------------------------------------------------


def _add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    parser.add_argument("--format", choices=formats, default="text", help="what to print (default: text)")


def _width() -> int:
    """Columns of the terminal; wide where the output goes elsewhere."""
    from .report.table import DEFAULT_WIDTH

    return max(os.get_terminal_size().columns, 80) if sys.stdout.isatty() else DEFAULT_WIDTH


if __name__ == "__main__":
    sys.exit(main())
