"""`gpuserve classify`: the root error of a log that somebody has at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import command

if TYPE_CHECKING:
    import argparse

    from . import Subcommands


def add(commands: Subcommands) -> None:
    parser = command(commands, "classify", classify, "tell the root error of a server's log, and what to try")
    parser.add_argument("log", metavar="LOGFILE", help="what the server printed; - is the standard input")
    parser.add_argument("--engine", metavar="NAME", help="whose log it is (default: recognised from the log)")
    parser.add_argument(
        "--exit-code", type=int, metavar="N", help="how the server ended, as a shell or subprocess gives it"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON alone; its `class` is null when nothing failed"
    )


def classify(options: argparse.Namespace) -> int:
    from ..failures.classify import classify_file
    from ..report.failure import as_dict, as_text

    _check_engine(options.engine)
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


def _check_engine(name: str | None) -> None:
    from ..failures.phases import engines
    from ..yaml_source import did_you_mean

    if name is not None and name not in engines():
        near = did_you_mean(name, engines()) or f"; there are {', '.join(engines())}"
        raise InputError(f"no engine is called {name!r}{near}")
