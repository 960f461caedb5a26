"""The registry of dead ends as tables: what does not work where, and what changes between two versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import InputError
from . import ranges
from .classes import classes
from .gpus import gpu as find_gpu
from .known import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..model import Requires
    from .entry import Behaviour, Entry

HEADINGS = ("entry", "set by", "engine", "where", "kind", "phases", "reason", "evidence", "way out")
CHANGE_HEADINGS = ("entry", "where", "change", "before", "after", "way out")

PAGE = """\
# Dead ends

<!-- Drawn from pytest_gpuserve/failures/known/*.yaml by `python -m pytest_gpuserve.failures.table`. -->

Paths that are documented not to work, by engine version, build and host. A config that sets one of the flags or
variables itself is marked by the entry, or names it with `known:`. Ranges exclude their upper bound; a release
candidate counts as its release, a post-release belongs to its release. `gpuserve dead-ends` prints the same, filtered
by GPU, version and flag, and with `--since` and `--until` what an upgrade changes. How entries are written, and how to
add your own: [failures.md](failures.md).
"""


class Filters(Struct, frozen=True, kw_only=True):
    """What to show; None: everything."""

    engine: str | None = None
    """Name of the engine."""
    version: str | None = None
    gpu: str | None = None
    """A compute capability (`12.0`, `sm120`), or a product that is known (`H200`), which stands for its own."""
    flag: str | None = None
    """A part of a flag or variable."""


def listing(registry: Registry, filters: Filters) -> list[tuple[str, ...]]:
    """A row under `HEADINGS` for every behaviour that passes the filters.

    Raises InputError for a version or a GPU that is none.
    """
    _check_gpu(filters)
    return [
        (
            entry.name,
            ", ".join(_set_by(entry)),
            f"{entry.engine} {behaviour.engine or 'any'}",
            where(behaviour),
            behaviour.dead_end.kind,
            ", ".join(sorted(behaviour.dead_end.phases)),
            behaviour.dead_end.reason,
            _evidence(behaviour),
            behaviour.dead_end.way_out or "",
        )
        for entry in _entries(registry, filters)
        for behaviour in entry.behaviours
        if _shown(behaviour, filters)
    ]


def changes(registry: Registry, since: str, until: str, filters: Filters) -> list[tuple[str, ...]]:
    """A row under `CHANGE_HEADINGS` for every path that opens, closes or fails differently in an upgrade.

    Raises InputError when a version or a GPU is none.
    """
    _check_gpu(filters)
    for version in (since, until):
        _check_version(version)
    rows = []
    for entry in _entries(registry, filters):
        for situation in _situations(entry, filters):
            before, after = (_at(entry, situation, version) for version in (since, until))
            if before is after:
                continue
            way_out = (after or before or situation).dead_end.way_out or ""
            rows.append(
                (entry.name, where(situation), _change(before, after), _told(before), _told(after), way_out)
            )
    return list(dict.fromkeys(rows))


def page(registry: Registry) -> str:
    """The Markdown page of the whole registry."""
    parts = [PAGE]
    for engine in dict.fromkeys(entry.engine for entry in registry.entries):
        entries = [entry for entry in registry.entries if entry.engine == engine]
        parts.append(f"## {engine}\n")
        parts.append(
            _markdown(("path", "set by", "versions", "kinds"), [_summary(entry) for entry in entries])
        )
        parts += [_section(entry) for entry in entries]
    return "\n".join(parts)


def class_table() -> str:
    """The Markdown table of failure classes."""
    rows = [(f"`{name}`", known.group, known.meaning, known.try_) for name, known in classes().items()]
    return _markdown(("class", "whose matter", "means", "try"), rows)


def where(behaviour: Behaviour) -> str:
    """The conditions beside the version: build, host, packages."""
    told = [f"{behaviour.build} build"] if behaviour.build else []
    told += _host(behaviour.host)
    told += behaviour.packages
    told += [f"without {name}" for name in behaviour.missing_packages]
    return ", ".join(told)


# --- rows -------------------------------------------------------------------------------------------


def _entries(registry: Registry, filters: Filters) -> Iterator[Entry]:
    for entry in registry.entries:
        if filters.engine is not None and entry.engine != filters.engine:
            continue
        if filters.flag is None or any(
            _flag_in(filters.flag, told) for told in (*_set_by(entry), entry.name)
        ):
            yield entry


def _flag_in(wanted: str, told: str) -> bool:
    return wanted.lstrip("-").replace("_", "-").lower() in told.replace("_", "-").lower()


def _shown(behaviour: Behaviour, filters: Filters) -> bool:
    if filters.version is not None:
        _check_version(filters.version)
        if not ranges.contains(behaviour.engine, filters.version):
            return False
    return filters.gpu is None or _gpu_fits(behaviour.host, filters.gpu)


def _gpu_fits(demand: Requires, written: str) -> bool:
    """Whether a condition may hold on a GPU of which only the capability, or also the name, is known."""
    from packaging.specifiers import SpecifierSet

    gpu = find_gpu(written)
    named = demand.product is None or gpu.product is None or re.search(demand.product, gpu.product, re.I)
    wanted = demand.compute_capability
    if wanted is None or not named:
        return bool(named)
    if re.fullmatch(r"\d+\.\d+", wanted):
        return gpu.capability == wanted
    return gpu.capability in SpecifierSet(wanted)


def _set_by(entry: Entry) -> Iterator[str]:
    for one in entry.selects:
        yield " with ".join(one.settings.told())


def _evidence(behaviour: Behaviour) -> str:
    evidence = behaviour.dead_end.evidence
    return f"{evidence.kind}: {evidence.source}".rstrip(": ") if evidence else ""


def _host(demand: Requires) -> list[str]:
    told = []
    if demand.compute_capability:
        told.append(f"compute capability {demand.compute_capability}")
    if demand.product:
        told.append(f"GPU {demand.product}")
    if demand.topology:
        told.append(demand.topology)
    if demand.gpus:
        told.append(f"{demand.gpus} GPUs or more")
    if demand.memory_gib:
        told.append(f"{demand.memory_gib:g} GiB or more")
    return told


# --- what an upgrade changes ------------------------------------------------------------------------


def _situations(entry: Entry, filters: Filters) -> Iterator[Behaviour]:
    """One behaviour for every set of conditions that an entry tells apart."""
    seen = set()
    for behaviour in entry.behaviours:
        if where(behaviour) not in seen and (filters.gpu is None or _gpu_fits(behaviour.host, filters.gpu)):
            seen.add(where(behaviour))
            yield behaviour


def _at(entry: Entry, situation: Behaviour, version: str) -> Behaviour | None:
    """How a path behaves in a situation with a version."""
    return next(
        (
            one
            for one in entry.behaviours
            if ranges.contains(one.engine, version)
            and one.build in (None, situation.build)
            and one.host in (situation.host, type(one.host)())
            and set(one.packages) <= set(situation.packages)
            and set(one.missing_packages) <= set(situation.missing_packages)
        ),
        None,
    )


def _change(before: Behaviour | None, after: Behaviour | None) -> str:
    if after is None:
        return "opens"
    if before is None:
        return "closes"
    kinds = before.dead_end.kind, after.dead_end.kind
    return "changes its kind" if kinds[0] != kinds[1] else "fails otherwise"


def _told(behaviour: Behaviour | None) -> str:
    if behaviour is None:
        return "no dead end"
    return f"{behaviour.dead_end.kind}: {behaviour.dead_end.reason}"


def _check_gpu(filters: Filters) -> None:
    if filters.gpu is not None:
        find_gpu(filters.gpu)


def _check_version(version: str) -> None:
    from packaging.version import InvalidVersion, Version

    try:
        Version(version)
    except InvalidVersion:
        raise InputError(f"{version!r} is no version such as 0.5.14") from None


# --- Markdown ---------------------------------------------------------------------------------------


def _summary(entry: Entry) -> tuple[str, ...]:
    return (
        f"[{entry.name}](#{entry.name})",
        ", ".join(f"`{told}`" for told in _set_by(entry)) or "`known:` alone",
        "; ".join(dict.fromkeys(one.engine or "any" for one in entry.behaviours)),
        ", ".join(dict.fromkeys(one.dead_end.kind for one in entry.behaviours)),
    )


def _section(entry: Entry) -> str:
    lines = [f"\n### {entry.name}\n", f"{entry.title}.\n"]
    rows = []
    for one in entry.behaviours:
        end = one.dead_end
        expect = (
            f" ({end.expect.metric} {end.expect.value:g} within {end.expect.tolerance:.0%})"
            if end.expect
            else ""
        )
        rows.append(
            (
                one.engine or "any",
                where(one),
                end.kind + expect,
                ", ".join(sorted(end.phases)),
                end.reason,
                _evidence(one),
            )
        )
    lines.append(_markdown(("version", "where", "kind", "phases", "reason", "evidence"), rows))
    for name, values in _below(entry).items():
        lines.append(f"{name}: {'; '.join(values)}\n")
    return "\n".join(lines)


def _below(entry: Entry) -> Mapping[str, list[str]]:
    ends = [one.dead_end for one in entry.behaviours]
    below = {
        "Way out": [end.way_out for end in ends if end.way_out],
        "See": [f"<{end.link}>" for end in ends if end.link],
        "To be reviewed": [str(end.review) for end in ends if end.review],
    }
    return {name: list(dict.fromkeys(values)) for name, values in below.items() if values}


def _markdown(headings: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    from tabulate import tabulate

    names = list(headings)
    shown = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    used = [index for index, _ in enumerate(names) if any(row[index] for row in shown)]
    return (
        tabulate(
            [[row[index] for index in used] for row in shown],
            headers=[names[index] for index in used],
            tablefmt="github",
            disable_numparse=True,
        )
        + "\n"
    )


if __name__ == "__main__":
    print(page(Registry.load()), end="")
