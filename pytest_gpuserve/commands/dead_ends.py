"""`gpuserve dead-ends`: what is documented not to work, and what an upgrade changes about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from . import add_format, command, width

if TYPE_CHECKING:
    import argparse

    from ..failures.known import Registry
    from . import Subcommands

USUAL_ENGINE = "sglang"


def add(commands: Subcommands) -> None:
    parser = command(
        commands, "dead-ends", dead_ends, "list what is documented not to work, and what an upgrade changes"
    )
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help=f"of this engine (default: all; {USUAL_ENGINE} where a version is given)",
    )
    parser.add_argument("--engine-version", metavar="V", help="in this version")
    parser.add_argument(
        "--gpu",
        metavar="GPU",
        help="on this GPU: a compute capability (12.0, sm120) or a product (H200, RTX PRO 6000)",
    )
    parser.add_argument("--flag", metavar="TEXT", help="set by a flag or variable that has this in its name")
    parser.add_argument("--since", metavar="V", help="with --until: what changes from this version ...")
    parser.add_argument("--until", metavar="V", help="... to this one")
    parser.add_argument(
        "--known",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of your own dead ends, besides those of the ini gpuserve_known",
    )
    add_format(parser)


def dead_ends(options: argparse.Namespace) -> int:
    from ..failures import table
    from ..failures.known import Registry
    from ..report.draw import draw
    from ..report.known import known, upgrade
    from .ini import known_folders

    if (options.since is None) != (options.until is None):
        raise InputError("--since and --until belong together: an upgrade goes from one version to another")
    if options.since is not None and options.engine_version is not None:
        raise InputError("--engine-version tells of one version, --since and --until of two: leave one out")
    registry = Registry.load(known_folders(Path(), options.known))
    _check_engine(options.engine, registry)
    versioned = options.since is not None or options.engine_version is not None
    filters = table.Filters(
        engine=options.engine or (USUAL_ENGINE if versioned else None),
        version=options.engine_version,
        gpu=options.gpu,
        flag=options.flag,
    )
    if options.format == "markdown" and options.since is None and filters == table.Filters():
        print(table.page(registry), end="")
        return 0
    if options.since is not None:
        found = upgrade(registry, options.since, options.until, filters)
    else:
        found = known(registry, filters)
    if found.rows or options.format in {"json", "csv"}:
        print(draw([found], options.format, width=width()), end="")
    else:
        print(f"{found.title}: none")
    return 0


def _check_engine(name: str | None, registry: Registry) -> None:
    from ..yaml_source import did_you_mean

    engines = sorted({entry.engine for entry in registry.entries})
    if name is not None and name not in engines:
        raise InputError(
            f"no dead end of an engine {name!r} is documented"
            f"{did_you_mean(name, engines) or '; there are those of ' + ', '.join(engines)}"
        )
