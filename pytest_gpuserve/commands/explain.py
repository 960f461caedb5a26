"""`gpuserve explain`: what an option demands, read in the engine's source."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import command, engine_python

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ..check.package import Package
    from . import Subcommands


OWN = ("--engine-python", "--engine-path", "--given", "--against", "--all", "--json", "--help")
"""Flags of this command; every other one is the engine's, of which it is asked."""


def as_words(argv: Sequence[str]) -> list[str]:
    """A command line in which the engine's flags have lost their dashes, so that argparse takes them for words.

    `explain --moe-a2a-backend flashinfer` asks the same as `explain moe-a2a-backend=flashinfer`.
    """
    return [*argv[:1], *_words(argv[1:])] if argv[:1] == ["explain"] else list(argv)


def _words(argv: Sequence[str]) -> Iterator[str]:
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if len(name) < 3 or not name.startswith("--") or any(own.startswith(name) for own in OWN):
            yield word
        elif equals or not rest or rest[0].startswith("-"):
            yield word.lstrip("-")
        else:
            yield f"{word.lstrip('-')}={rest.pop(0)}"


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
        help="such as moe-a2a-backend=flashinfer, enable-torch-symm-mem or NCCL_ALGO=Tree, with or without the "
        "dashes of a flag; without a value all branches are shown",
    )
    parser.add_argument(
        "value", nargs="?", metavar="VALUE", help="the value, where no = joins it to the option"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--engine-python",
        metavar="[sglang=]PYTHON",
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

    question = _question(options)
    package = _package(options)
    if options.against is None:
        found = ask(package, SGLANG, question, options.given)
        # Syntax trees of hundreds of files: the collector would walk them once more when Python ends.
        gc.freeze()
        told = explain_text.as_dict(found) if options.json else None
        print(json.dumps(told, indent=2) if told else explain_text.as_text(found, every=options.all), end="")
        return 0
    from ..check.package import at_path

    other = at_path(options.against, SGLANG.package, without=SGLANG.without)
    change = against.compare(package, other, SGLANG, question, options.given)
    print(json.dumps(against.as_dict(change), indent=2) if options.json else against.as_text(change), end="")
    return 0


def _question(options: argparse.Namespace) -> str:
    question: str = options.question
    if options.value is None:
        return question
    if "=" in question:
        raise InputError(f"asks of one option, and {question!r} has its value: give others by --given")
    return f"{question}={options.value}"


def _python(given: str | None) -> str | None:
    if given is None:
        return None
    engine, python = engine_python(given)
    if engine != "sglang":
        raise InputError(
            f"--engine-python {given!r}: only SGLang's source is read, and this is another engine's"
        )
    return python


def _package(options: argparse.Namespace) -> Package:
    from ..check.options import SGLANG
    from ..check.package import at_path, of_interpreter

    if options.engine_path is not None:
        return at_path(options.engine_path, SGLANG.package, without=SGLANG.without)
    from ..host.site import load_site

    local = load_site(Path()).engine(SGLANG.package)
    python = _python(options.engine_python) or local.python or sys.executable
    return of_interpreter(python, SGLANG.package, without=SGLANG.without, env=local.env)
