"""A config's flags against what the installed engine takes: names, abbreviations, values, choices."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model import Config
    from .help_page import Flag, Found, Page


class Removed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flag that an engine gave up, or wants to see no more."""

    instead: str
    flags: tuple[str, ...] = ()
    """Those that take its place."""
    gone: str | None = None
    """First version without it; None: still taken."""
    source: str = ""


class Given(Struct, frozen=True):
    """A flag as a config gives it. `values` None: not known, as for words of `extra_args`."""

    name: str
    values: tuple[str, ...] | None


@cache
def removed(engine: str) -> dict[str, Removed]:
    """The table `removed.yaml`, for one engine."""
    import yaml

    text = files(__package__).joinpath("removed.yaml").read_text(encoding="utf-8")
    table = msgspec.convert(yaml.safe_load(text), dict[str, dict[str, Removed]])
    return table.get(engine, {})


def check_flags(config: Config, page: Page, version: str) -> Iterator[Finding]:
    """What is wrong with the flags that a config passes; `version` is the installed engine's."""
    installed = f"{config.engine} {version}"
    for given in _given(config):
        found = page.find(given.name)
        flag = found.flag
        old = removed(config.engine).get(given.name)
        if found.kind in ("unknown", "ambiguous") or flag is None:
            yield _not_there(given, found, page, config.engine, installed, old)
            continue
        if found.kind == "abbreviation":
            yield Finding(
                severity="warning",
                topic="flag",
                text=f"--{given.name} is an abbreviation of --{found.name}",
                advice="Write it out: a later version may have another flag that begins alike",
            )
        for one in _values(given, flag, installed):
            # Plugins add choices while the engine runs, which its source does not show.
            known = page.origin == "help" or "none of the choices" not in one.text
            yield one if known else replace(one, severity="warning")
        if old is not None or flag.deprecated:
            yield _deprecated(given, flag, installed, old)


def _given(config: Config) -> Iterator[Given]:
    for name, value in config.args.items():
        if value is not None and value is not False:
            yield Given(name, _texts(value))
    for word in config.extra_args:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            yield Given(name, (value,) if equals else None)


def _texts(value: Any) -> tuple[str, ...]:
    if value is True:
        return ()
    if isinstance(value, list):
        return tuple(_text(one) for one in value)
    return (_text(value),)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)


def _not_there(
    given: Given, found: Found, page: Page, engine: str, installed: str, old: Removed | None
) -> Finding:
    what = f"{installed} has no flag --{given.name}"
    if old is not None and (old.gone is not None or found.kind == "ambiguous"):
        since = f" since {old.gone} at the latest" if old.gone else ""
        return Finding(severity="error", topic="flag", text=f"{what}{since}", advice=f"Write {old.instead}")
    if found.kind == "ambiguous":
        listed = ", ".join(f"--{name}" for name in found.candidates)
        return Finding(
            severity="error",
            topic="flag",
            text=f"--{given.name} is ambiguous in {installed}: it could be {listed}",
        )
    newer = [
        name
        for name, one in removed(engine).items()
        if given.name in one.flags and page.find(name).kind == "exact"
    ]
    if newer:
        told = " or ".join(f"--{name}" for name in newer)
        return Finding(
            severity="error", topic="flag", text=what, advice=f"It came later; this version has {told}"
        )
    near = difflib.get_close_matches(given.name, page.names, 2, 0.75)
    advice = f"Did you mean {' or '.join(f'--{name}' for name in near)}?" if near else ""
    return Finding(severity="error", topic="flag", text=what, advice=advice)


def _values(given: Given, flag: Flag, installed: str) -> Iterator[Finding]:
    values = given.values
    if values is None:
        return
    if flag.switch and values:
        negative = [name for name in flag.names if name.startswith("no-")]
        way = f"; `false` is --{negative[0]}" if negative else ""
        yield _error(
            f"--{given.name} of {installed} is a switch and takes no value, here it has {' '.join(values)!r}",
            f"Write `true`{way}, or leave it out",
        )
    elif len(values) < flag.least:
        yield _error(f"--{given.name} of {installed} needs a value")
    elif flag.most is not None and len(values) > max(flag.most, 0):
        yield _error(f"--{given.name} of {installed} takes {flag.most} value(s), here are {len(values)}")
    for value in values if flag.choices else ():
        if value not in flag.choices:
            near = difflib.get_close_matches(value, flag.choices, 1, 0.6)
            advice = f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(flag.choices)}"
            yield _error(f"{value!r} is none of the choices that {installed} has for --{given.name}", advice)


def _error(text: str, advice: str = "") -> Finding:
    return Finding(severity="error", topic="flag", text=text, advice=advice)


def _deprecated(given: Given, flag: Flag, installed: str, old: Removed | None) -> Finding:
    if flag.deprecated:
        return Finding(
            severity="note",
            topic="flag",
            text=f"--{given.name} is deprecated in {installed}",
            advice=f"Write {old.instead}" if old else f"It says: {flag.help}",
        )
    assert old is not None
    later = f"is gone in {old.gone}" if old.gone else "is deprecated in later versions"
    return Finding(
        severity="note", topic="flag", text=f"--{given.name} {later}", advice=f"There it is {old.instead}"
    )
