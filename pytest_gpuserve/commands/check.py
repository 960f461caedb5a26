"""`gpuserve check`: what can be known of suites before a start, and with `--start` what cheap starts tell."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import command, engine_python

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..engines.simulated.simulation import Simulation
    from ..model import Suite
    from ..session.here import Here
    from ..session.rehearse import Start
    from . import Subcommands

DEFAULT = "suites"
LOGS = Path(".gpuserve") / "checks"


def add(commands: Subcommands) -> None:
    parser = command(
        commands, "check", check, "tell what would keep suites from running; starts nothing without --start"
    )
    parser.add_argument(
        "suites",
        nargs="*",
        type=Path,
        default=[Path(DEFAULT)],
        help=f"files or folders (default: {DEFAULT}/)",
    )
    parser.add_argument(
        "--engine-python",
        action="append",
        default=[],
        metavar="[ENGINE=]PYTHON",
        help="interpreter that has the engine; without a name it is SGLang's",
    )
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="folder of your own dead ends, besides those of the ini gpuserve_known",
    )
    parser.add_argument(
        "--rootdir",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where gpuserve.local.yaml lies (default: .)",
    )
    parser.add_argument(
        "--refresh", action="store_true", help="ask the engines for their flags again, whatever is remembered"
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as problems")
    parser.add_argument("--quiet", "-q", action="store_true", help="errors and warnings alone")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    starts = parser.add_argument_group("starts")
    starts.add_argument(
        "--start",
        action="store_true",
        help="start documented dead ends with random weights and few layers, to see whether they still are",
    )
    starts.add_argument(
        "--config",
        "-k",
        action="append",
        default=[],
        metavar="ID",
        help="start only configs that this fits (`*` stands for anything), ordinary ones too",
    )
    starts.add_argument(
        "--simulate",
        nargs="?",
        const=True,
        metavar="ENGINE==VERSION",
        help="start them on the simulated host instead of this one",
    )
    starts.add_argument(
        "--perturb", action="append", default=[], metavar="WHAT", help="change the simulated host"
    )


def check(options: argparse.Namespace) -> int:
    """0: nothing hinders a start; 1: something does; 2: a suite, or what was asked, cannot be used.

    With `--start` 0: what was started ended as documented; 1: something did not.
    """
    from ..check import preflight, preflight_text

    simulation = _simulation(options)
    here = _here(options, simulation)
    if options.start:
        return _start(options, here)
    around = here.surroundings(refresh=options.refresh)
    report = preflight.check_suites(options.suites, around, _loader(here))
    if options.json:
        print(json.dumps(preflight_text.as_dict(report, strict=options.strict), indent=2, ensure_ascii=False))
    else:
        print(preflight_text.as_text(report, quiet=options.quiet), end="")
    return report.exit_status(strict=options.strict)


def _loader(here: Here) -> Callable[[Path], Suite]:
    from ..engines.registry import names
    from ..failures.classes import classes
    from ..suite import load_suite

    known = here.registry.names
    return lambda path: load_suite(path, known=known, engines=names(), failure_classes=classes())


def _start(options: argparse.Namespace, here: Here) -> int:
    """Start what is documented, or what is named; each config is checked just before, as in a run."""
    from ..check import preflight
    from ..session import rehearsal_text

    suites, broken = preflight.load_all(options.suites, _loader(here))
    if broken:
        raise InputError("\n".join(str(one) for one in broken))
    starts = _starts(options, here, suites)
    status = preflight.PROBLEMS if any(start.bad for start in starts) else preflight.OK
    title = here.options.simulation.title if here.options.simulation else ""
    if options.json:
        told = {"exit_status": status, "simulated": title or None} | rehearsal_text.as_dict(starts)
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        print(rehearsal_text.as_text(starts, title=title, quiet=options.quiet), end="")
    return status


def _simulation(options: argparse.Namespace) -> Simulation | None:
    """What `--simulate` asks for. Raises InputError for it, and for what only means something with `--start`."""
    if not options.start:
        for name in ("config", "perturb"):
            if getattr(options, name):
                raise InputError(f"--{name} is about starts: add --start")
        if options.simulate is not None:
            raise InputError("--simulate is about starts: add --start")
    if options.simulate is None:
        if options.perturb:
            raise InputError("--perturb changes the simulated host: add --simulate")
        return None
    from ..engines.simulated.simulation import Simulation

    try:
        return Simulation.from_options(
            None if options.simulate is True else options.simulate, options.perturb
        )
    except InputError as error:
        raise InputError(str(error).replace("--gpuserve-", "--")) from None


def _starts(options: argparse.Namespace, here: Here, suites: list[Suite]) -> list[Start]:
    from ..report.store import new_folder
    from ..session.rehearse import Rehearsals, chosen

    configs = chosen(suites, options.config)
    if (simulation := here.options.simulation) is not None:
        try:
            simulation.perturbation.check({one.id for suite in suites for one in suite.configs})
        except InputError as error:
            raise InputError(str(error).replace("--gpuserve-", "--")) from None
    folder = cache(lambda: new_folder(here.options.rootdir / LOGS))
    quiet = options.quiet or options.json
    rehearsals = Rehearsals(
        here,
        folder,
        (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True)),
    )
    return rehearsals.all(configs, named=bool(options.config))


def _here(options: argparse.Namespace, simulation: Simulation | None) -> Here:
    from ..session import Options
    from ..session.here import Here
    from .ini import known_folders

    pythons = dict(engine_python(given) for given in options.engine_python)
    root = options.rootdir.resolve()
    return Here(
        Options(
            rootdir=root,
            baselines=root / "baselines",
            known=known_folders(root, options.known),
            simulation=simulation,
            engine_python=pythons,
        )
    )
