"""Files of the registry: how entries are written, and what is checked when they are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from ..errors import SuiteError
from ..model import Requires
from ..written import DeadEndSpec, EvidenceKind, EvidenceSpec, RequiresSpec, dead_end, listed, requires
from . import ranges
from .classes import classes
from .entry import NONE, Behaviour, Entry, Example, Selects, Settings, as_flag, as_text

if TYPE_CHECKING:
    from pathlib import Path

    from ..yaml_source import Source
    from ..yaml_types import Keys

ANY = "*"
"""In `selects`: whatever the value."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9.]+)*")


class SettingsSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """Flags (without dashes) and variables with their values; a list: any of them; `*`: any at all."""

    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)


class SelectsSpec(SettingsSpec, forbid_unknown_fields=True, kw_only=True):
    """Which settings mark a config as this path, when it sets them itself: all of these."""

    unless: SettingsSpec | None = None
    """Settings with which it is another path, wherever they are set."""


class HostSpec(RequiresSpec, forbid_unknown_fields=True, kw_only=True):
    """Conditions on a host; `RequiresSpec` without what is about the engine."""


class ExampleSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """What the failure looks like in a log, kept so that the match can be held against it."""

    source: Annotated[str, Meta(min_length=1)]
    log: str | None = None
    file: str | None = None
    """Beside the entry's file, instead of `log`."""


class BehaviourSpec(DeadEndSpec, forbid_unknown_fields=True, kw_only=True):
    """How a path behaves where the conditions hold."""

    reason: str = ""
    engine: Annotated[str, Meta(description="Version range, the upper bound exclusive.")] = ""
    build: str | None = None
    host: HostSpec | None = None
    packages: str | list[str] | None = None
    missing_packages: str | list[str] | None = None
    example: ExampleSpec | list[ExampleSpec] = field(default_factory=list)


class EntrySpec(Struct, forbid_unknown_fields=True, kw_only=True):
    title: Annotated[str, Meta(min_length=1)]
    selects: SelectsSpec | list[SelectsSpec] = field(default_factory=list)
    behaviours: Annotated[list[BehaviourSpec], Meta(min_length=1)]
    reason: str = ""
    way_out: str | None = None
    link: str | None = None
    evidence: EvidenceKind | EvidenceSpec | None = None


class FileSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    engine: Annotated[str, Meta(description="The engine that the entries are about.")]
    entries: dict[str, EntrySpec]


def read(file: Path) -> tuple[Entry, ...]:
    """The entries of a file. Raises SuiteError with file, line and key."""
    from ..yaml_source import load

    source = load(file, SuiteError)
    spec = source.convert((), FileSpec)
    return tuple(
        _entry(source, ("entries", name), name, spec.engine, entry, file.parent)
        for name, entry in spec.entries.items()
    )


def _entry(source: Source, keys: Keys, name: str, engine: str, spec: EntrySpec, folder: Path) -> Entry:
    if not _NAME.fullmatch(name) or name == NONE:
        raise source.error(keys, f"{name!r} is no name for an entry; write small letters, digits and dashes")
    selects = spec.selects if isinstance(spec.selects, list) else [spec.selects]
    return Entry(
        name=name,
        engine=engine,
        title=spec.title,
        place=source.place(*keys),
        selects=tuple(
            Selects(_settings(one), _settings(one.unless) if one.unless else Settings()) for one in selects
        ),
        behaviours=tuple(
            _behaviour(source, (*keys, "behaviours", index), name, spec, one, folder)
            for index, one in enumerate(spec.behaviours)
        ),
    )


def _behaviour(
    source: Source, keys: Keys, name: str, entry: EntrySpec, spec: BehaviourSpec, folder: Path
) -> Behaviour:
    if wrong := ranges.problem(spec.engine):
        raise source.error((*keys, "engine"), wrong)
    reason = spec.reason or entry.reason
    if not reason:
        raise source.error(keys, "has no reason, and neither has its entry")
    for index, match in enumerate(spec.match if isinstance(spec.match, list) else [spec.match]):
        at: Keys = (*keys, "match", index) if isinstance(spec.match, list) else (*keys, "match")
        for word in listed(match.failure_class):
            if word not in classes():
                raise source.error((*at, "class"), f"{word!r} is no failure class", near=(word, classes()))
    several = isinstance(spec.example, list)
    examples = spec.example if isinstance(spec.example, list) else [spec.example]
    given = spec.host
    if given is not None and (given.engine or given.build or given.packages or given.missing_packages):
        raise source.error(
            (*keys, "host"), "is about the host alone; engine, build and packages stand beside it"
        )
    demand = RequiresSpec(packages=spec.packages, missing_packages=spec.missing_packages)
    software = requires(source, keys, demand)
    written = msgspec.structs.replace(
        spec,
        reason=reason,
        way_out=spec.way_out or entry.way_out,
        link=spec.link or entry.link,
        evidence=spec.evidence or entry.evidence,
    )
    end = msgspec.structs.replace(
        dead_end(source, keys, written),
        entry=name,
        engine_range=spec.engine or None,
        place=source.place(*keys, "engine"),
    )
    return Behaviour(
        dead_end=end,
        engine=spec.engine,
        build=spec.build,
        host=requires(source, (*keys, "host"), given) if given else Requires(),
        packages=software.packages,
        missing_packages=software.missing_packages,
        examples=tuple(
            _example(source, (*keys, "example", index) if several else (*keys, "example"), one, folder)
            for index, one in enumerate(examples)
        ),
    )


def _example(source: Source, keys: Keys, spec: ExampleSpec, folder: Path) -> Example:
    if (spec.log is None) == (spec.file is None):
        raise source.error(keys, "give `log` or `file`, one of the two")
    if spec.log is not None:
        return Example(spec.source, spec.log)
    try:
        return Example(spec.source, (folder / str(spec.file)).read_text(encoding="utf-8"))
    except OSError as wrong:
        raise source.error((*keys, "file"), f"cannot be read: {wrong.strerror}") from None


def _settings(spec: SettingsSpec) -> Settings:
    return Settings(
        {as_flag(name): _values(value) for name, value in spec.args.items()},
        {name: _values(value) for name, value in spec.env.items()},
    )


def _values(written: Any) -> tuple[str, ...] | None:
    if written == ANY:
        return None
    return tuple(as_text(value) for value in (written if isinstance(written, list) else [written]))
