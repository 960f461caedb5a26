"""`gpuserve classify`: the root error of a log that somebody has at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import command

if TYPE_CHECKING:
    import argparse

    from ..failures.classify import Classifier
    from ..failures.documented import Documented
    from ..record import Failure
    from . import Subcommands


def add(commands: Subcommands) -> None:
    parser = command(commands, "classify", classify, "tell the root error of a server's log, and what to try")
    parser.add_argument("log", metavar="LOGFILE", help="what the server printed; - is the standard input")
    parser.add_argument("--engine", metavar="NAME", help="whose log it is (default: recognised from the log)")
    parser.add_argument(
        "--exit-code", type=int, metavar="N", help="how the server ended, as a shell or subprocess gives it"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON alone; its `class` is null when nothing failed, `dead_ends` lists what is documented of it",
    )


def classify(options: argparse.Namespace) -> int:
    """0, whatever the log tells: what was asked for is told."""
    from ..failures.classify import read_log
    from ..report.failure import as_dict, as_text

    given = _classifier(options.engine) if options.engine is not None else None
    path = Path("/dev/stdin" if options.log == "-" else options.log)
    try:
        classifier = read_log(path, given)
    except OSError as error:
        raise InputError(f"{options.log}: {error.strerror or error}") from None
    failure = classifier.finish(options.exit_code)
    found = _documented(failure, classifier.engine) if failure is not None else []
    if options.json:
        print(json.dumps(as_dict(failure, found), indent=2, ensure_ascii=False))
    else:
        recognised = classifier.engine is not None or bool(classifier.phases_seen)
        print(as_text(failure, options.log, found, recognised=recognised), end="")
    return 0


def _documented(failure: Failure, engine: str | None) -> list[Documented]:
    from ..failures.documented import documented
    from ..failures.known import Registry
    from .ini import known_folders

    return documented(failure, engine, Registry.load(known_folders(Path())))


def _classifier(name: str) -> Classifier:
    """For the log of an engine that has a table here, or that is registered and brings its own."""
    from ..engines import registry
    from ..failures.classify import Classifier
    from ..failures.phases import engines
    from ..yaml_source import did_you_mean

    if name in engines():
        return Classifier(engine=name)
    known = sorted({*engines(), *registry.names()})
    if name not in known:
        near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise InputError(f"no engine is called {name!r}{near}")
    engine = registry.find(name)
    rules = engine.rules()
    return Classifier(engine.phases, () if rules is None else (rules,), engine=name)
