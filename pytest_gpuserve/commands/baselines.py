"""`gpuserve baselines`: what is stored, and moving it by the records of finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import RUN_HELP, add_format, command, find_run, measuring, width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..record import Record
    from . import Subcommands

CASES_HELP = "cases, as suite::case, case or suite, with shell patterns"
NONE_ASKED = "no case of this run lacks a baseline, improved, or was run to be recorded"
NOTHING_TO_ACCEPT = f"nothing to accept: {NONE_ASKED}; name the cases to accept them all the same"
NOTHING_CHANGES = (
    f"`accept` would change nothing: {NONE_ASKED}; name cases to see what it would change of them"
)


def add(commands: Subcommands) -> None:
    text = "show, accept and compare stored baselines, and see how small a slowdown can be found"
    baselines = commands.add_parser("baselines", help=text, description=text)
    actions = baselines.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_show(actions)
    accepting = command(
        actions,
        "accept",
        accept,
        "make the launches of finished runs the baselines of their cases; without CASE of those that have "
        "none, that improved, or that were run to be recorded",
    )
    differing = command(actions, "diff", diff, "show what `accept` would change, and change nothing")
    for parser in (accepting, differing):
        _add_folder(parser)
        parser.add_argument("run", metavar="RUN", help=RUN_HELP)
        parser.add_argument("names", nargs="*", metavar="CASE", help=CASES_HELP)
        _add_with(parser)
    accepting.add_argument(
        "--tolerance", type=_share, metavar="SHARE", help="store this tolerance for the cases, such as 3%%"
    )
    _add_calibrate(actions)


def _add_show(actions: Subcommands) -> None:
    parser = command(actions, "show", show, "show what is stored")
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"{CASES_HELP} (default: all)")
    parser.add_argument("--host", metavar="PROFILE", help="of this host alone")
    _add_folder(parser)
    add_format(parser)


def _add_calibrate(actions: Subcommands) -> None:
    parser = command(
        actions,
        "calibrate",
        calibrate,
        "launch the servers of a suite several times, or take the launches of finished runs; tell how noisy the "
        "host is and how small a slowdown can be found, and propose tolerance and launches",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="SUITE or RUN",
        help=f"a suite file or a test's id in one, which is measured; or {RUN_HELP} (default: the latest run)",
    )
    measured = parser.add_argument_group("of a suite")
    measured.add_argument(
        "--launches", type=int, metavar="N", help=f"starts of each server (default: {measuring.LAUNCHES})"
    )
    measured.add_argument(
        "-k", dest="keyword", metavar="EXPRESSION", help="select cases, as pytest's -k does"
    )
    measured.add_argument(
        "-m", dest="marker", metavar="EXPRESSION", help="the same by markers, as pytest's -m"
    )
    measured.add_argument(
        "--pytest",
        dest="arguments",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="a further argument for pytest, as in --pytest=--gpuserve-simulate; may be repeated",
    )
    _add_with(parser)
    parser.add_argument(
        "--baseline", type=int, default=8, metavar="N", help="launches that the baseline holds (default: 8)"
    )
    parser.add_argument(
        "--metric", dest="metrics", action="append", default=[], metavar="NAME", help="instead of the gated"
    )


def show(options: argparse.Namespace) -> int:
    from ..gate import show as gate
    from ..report.draw import draw
    from ..report.stored import tables

    folder = _folder(options)
    stored = gate.show(folder, options.names, profile=options.host)
    if not stored:
        wanted = ([f"of host {options.host}"] if options.host else []) + options.names
        raise InputError(f"no baseline in {folder}" + (f" fits {', '.join(wanted)}" if wanted else ""))
    print(draw(tables(stored), options.format, width=width()), end="")
    return 0


def accept(options: argparse.Namespace) -> int:
    from ..gate import accept as gate
    from ..yaml_source import shown

    changes = gate.accept(_folder(options), _records(options), options.names, tolerance=options.tolerance)
    if not changes:
        raise InputError(NOTHING_TO_ACCEPT)
    _print(line for change in changes for line in change.lines)
    print("wrote " + ", ".join(dict.fromkeys(shown(change.path) for change in changes)))
    return 0


def diff(options: argparse.Namespace) -> int:
    from ..gate import accept as gate

    changes = gate.diff(_folder(options), _records(options), options.names)
    _print([line for change in changes for line in change.lines] or [NOTHING_CHANGES])
    return 0


def calibrate(options: argparse.Namespace) -> int:
    from ..gate import calibrate as gate
    from ..gate.quantity import QUANTITIES
    from ..report.figures import simulated
    from ..yaml_source import did_you_mean

    for name in options.metrics:
        if name not in QUANTITIES:
            near = did_you_mean(name, QUANTITIES) or f"; there are {', '.join(QUANTITIES)}"
            raise InputError(f"{name!r} is no metric{near}")
    if options.baseline < 2:
        raise InputError(f"--baseline {options.baseline}: below 2 launches there is no interval to speak of")
    if (measured := _measured(options)) is not None:
        options.run = measured
    records = _records(options)
    advice = gate.calibrate(records, baseline=options.baseline, metrics=options.metrics)
    if not advice:
        raise InputError(
            "no case has two launches: measure with `gpuserve baselines calibrate SUITE`, "
            "or take further runs in by --with"
        )
    if any(map(simulated, records)):
        print("simulated: this is the noise of a profile, not of a host")
    _print(line for each in advice for line in each.lines)
    return 0


def _measured(options: argparse.Namespace) -> str | None:
    """The run that was just made of a suite; None when a finished one was named."""
    if not measuring.is_suite(options.run):
        given = [options.launches, options.keyword, options.marker, *options.arguments]
        if any(one is not None for one in given):
            raise InputError("--launches, -k, -m and --pytest are for a suite, and none was named")
        return None
    selected = [*(("-k", options.keyword) if options.keyword else ())]
    selected += [*(("-m", options.marker) if options.marker else ())]
    launches = measuring.LAUNCHES if options.launches is None else options.launches
    folder = measuring.measure(options.run, launches=launches, arguments=[*selected, *options.arguments])
    return str(folder)


def _records(options: argparse.Namespace) -> list[Record]:
    from ..report.store import read

    return [record for name in (options.run, *options.more) for record in read(find_run(name))]


def _folder(options: argparse.Namespace) -> Path:
    """The folder named, else `baselines` here or in the nearest folder above that has one."""
    if options.baselines:
        return Path(options.baselines)
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / "baselines").is_dir()), here)
    return root / "baselines"


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baselines", metavar="DIR", help="folder of the baselines (default: baselines, here or above)"
    )


def _add_with(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with",
        dest="more",
        action="append",
        default=[],
        metavar="RUN",
        help="a further run, whose launches are taken together with the first's; may be repeated",
    )


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1, such as 3%")
    return value


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
