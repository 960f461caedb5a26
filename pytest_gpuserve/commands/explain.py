"""`gpuserve explain`: what an option demands, read in the engine's source."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import command

if TYPE_CHECKING:
    import argparse

    from ..check.package import Package
    from . import Subcommands


def add(commands: Subcommands) -> None:
    parser = command(
        commands,
        "explain",
        explain,
        "tell what an option demands, sets and says, read in SGLang's source",
    )
    parser.add_argument(
        "question",
        metavar="OPTION[=VALUE]",
        help="such as moe-a2a-backend=flashinfer, enable-torch-symm-mem or NCCL_ALGO=Tree; "
        "without a value all branches are shown",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--engine-python",
        metavar="PY",
        help="interpreter that has SGLang (default: as in gpuserve.local.yaml, else this one)",
    )
    where.add_argument("--engine-path", metavar="DIR", type=Path, help="folder of the unpacked package")
    parser.add_argument(
        "--given",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        help="what is set besides; demands that this meets are left out (may be repeated)",
    )
    parser.add_argument(
        "--against",
        metavar="DIR",
        type=Path,
        help="folder with another version: show what changes from the older to the newer one",
    )
    parser.add_argument("--all", action="store_true", help="list also what is the same without the option")
    parser.add_argument("--json", action="store_true", help="print JSON alone")


def explain(options: argparse.Namespace) -> int:
    from ..check import against, explain_text
    from ..check.explain import explain as ask
    from ..check.options import SGLANG

    package = _package(options)
    if options.against is None:
        found = ask(package, SGLANG, options.question, options.given)
        # Syntax trees of hundreds of files: the collector would walk them once more when Python ends.
        gc.freeze()
        told = explain_text.as_dict(found) if options.json else None
        print(json.dumps(told, indent=2) if told else explain_text.as_text(found, every=options.all), end="")
        return 0
    from ..check.package import at_path

    other = at_path(options.against, SGLANG.package, without=SGLANG.without)
    change = against.compare(package, other, SGLANG, options.question, options.given)
    print(json.dumps(against.as_dict(change), indent=2) if options.json else against.as_text(change), end="")
    return 0


def _package(options: argparse.Namespace) -> Package:
    from ..check.options import SGLANG
    from ..check.package import at_path, of_interpreter

    if options.engine_path is not None:
        return at_path(options.engine_path, SGLANG.package, without=SGLANG.without)
    from ..host.site import load_site

    local = load_site(Path()).engine(SGLANG.package)
    python = options.engine_python or local.python or sys.executable
    return of_interpreter(python, SGLANG.package, without=SGLANG.without, env=local.env)
