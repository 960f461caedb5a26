"""`gpuserve check`: what can be known of suites before a start, and with `--start` what cheap starts tell."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from . import command

if TYPE_CHECKING:
    import argparse

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
        "--known", action="append", default=[], type=Path, metavar="DIR", help="folder of your own dead ends"
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
        const="",
        metavar="ENGINE==VERSION",
        help="start them on the simulated host; nothing of this one is checked",
    )
    starts.add_argument(
        "--perturb", action="append", default=[], metavar="WHAT", help="change the simulated host"
    )


def check(options: argparse.Namespace) -> int:
    """0: nothing hinders a start, and what was started ended as documented; 1: something does, or did not;
    2: a suite, or what was asked, cannot be used."""
    from ..check import preflight, preflight_text
    from ..engines.registry import names
    from ..failures.classes import classes
    from ..suite import load_suite

    simulation = _simulation(options)
    here = _here(options, simulation)
    suites: list[Suite] = []

    def load(path: Path) -> Suite:
        suite = load_suite(path, known=here.registry.names, engines=names(), failure_classes=classes())
        suites.append(suite)
        return suite

    if simulation is None:
        report = preflight.check_suites(options.suites, here.surroundings(refresh=options.refresh), load)
    else:
        _, broken = preflight.load_all(options.suites, load)
        report = preflight.Report(suites=tuple(broken))
    status = report.exit_status(strict=options.strict)
    if not options.json and (simulation is None or report.suites):
        print(preflight_text.as_text(report, quiet=options.quiet), end="", flush=True)
    starts = _starts(options, here, suites) if options.start and not report.suites else []
    if any(start.bad for start in starts):
        status = max(status, preflight.PROBLEMS)
    if options.json:
        told = preflight_text.as_dict(report, strict=options.strict) | {"exit_status": status}
        _print_json(told, starts, options, simulation)
    elif options.start and not report.suites:
        from ..session import rehearsal_text

        title = simulation.title if simulation else ""
        print(rehearsal_text.as_text(starts, title=title, quiet=options.quiet), end="")
    return status


def _print_json(
    told: dict[str, Any], starts: list[Start], options: argparse.Namespace, simulation: Simulation | None
) -> None:
    from ..session import rehearsal_text

    if options.start:
        told |= {"simulated": simulation.title if simulation else None} | rehearsal_text.as_dict(starts)
    print(json.dumps(told, indent=2, ensure_ascii=False))


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
        return Simulation.from_options(options.simulate, options.perturb)
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

    pythons: dict[str, str] = {}
    for given in options.engine_python:
        name, equals, python = given.partition("=")
        pythons[name if equals else "sglang"] = python if equals else given
    root = options.rootdir.resolve()
    return Here(
        Options(
            rootdir=root,
            baselines=root / "baselines",
            known=tuple(options.known),
            simulation=simulation,
            engine_python=pythons,
        )
    )
