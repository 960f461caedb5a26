"""`gpuserve baselines`: what is stored, and moving it by the records of finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import RUN_HELP, add_format, command, width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..record import Record
    from . import Subcommands

CASES_HELP = "cases, as suite::case, case or suite, with shell patterns"
NOTHING_TO_ACCEPT = (
    "nothing to accept: no case of this run lacks a baseline, improved, or was run to be recorded; "
    "name the cases to accept them all the same"
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
        "tell from the launches of finished runs how noisy a host is, how small a slowdown can be found, and "
        "propose tolerance and launches; `pytest ... --gpuserve-launches 8` makes a run with enough of them",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{RUN_HELP} (default: the latest run)")
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
    if not changes:
        raise InputError(NOTHING_TO_ACCEPT)
    _print(line for change in changes for line in change.lines)
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
    records = _records(options)
    advice = gate.calibrate(records, baseline=options.baseline, metrics=options.metrics)
    if not advice:
        raise InputError(
            "no case has two launches: measure with `pytest SUITE --gpuserve-launches 8`, "
            "or take further runs in by --with"
        )
    if any(map(simulated, records)):
        print("simulated: this is the noise of a profile, not of a host")
    _print(line for each in advice for line in each.lines)
    return 0


def _records(options: argparse.Namespace) -> list[Record]:
    from ..report.store import find, read

    return [record for name in (options.run, *options.more) for record in read(find(name))]


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
