"""`gpuserve check`: what can be known of suites before anything is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from . import command

if TYPE_CHECKING:
    import argparse

    from ..session.here import Here
    from . import Subcommands

DEFAULT = "suites"


def add(commands: Subcommands) -> None:
    parser = command(commands, "check", check, "tell what would keep suites from running; nothing is started")
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


def check(options: argparse.Namespace) -> int:
    """0: nothing hinders a start; 1: something does; 2: a suite, or what was asked, cannot be used."""
    from ..check import preflight, preflight_text
    from ..engines.registry import names
    from ..failures.classes import classes
    from ..suite import load_suite

    around = _here(options).surroundings(refresh=options.refresh)
    report = preflight.check_suites(
        options.suites,
        around,
        lambda path: load_suite(
            path, known=around.registry.names, engines=names(), failure_classes=classes()
        ),
    )
    if options.json:
        print(json.dumps(preflight_text.as_dict(report, strict=options.strict), indent=2, ensure_ascii=False))
    else:
        print(preflight_text.as_text(report, quiet=options.quiet), end="")
    return report.exit_status(strict=options.strict)


def _here(options: argparse.Namespace) -> Here:
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
            engine_python=pythons,
        )
    )
