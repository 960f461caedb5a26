"""What `gpuserve explain` prints: demands, settings, what overrides the option, messages, other reads."""

from __future__ import annotations

import ast
import re
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .values import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .explain import Explanation
    from .site import Condition, Site

WIDTH = 110
FEW = 8
"""Demands and reads in the engine's other code that are shown without `--all`."""
WORDED = ("except ", "case ")
"""Beginnings of conditions that are no expressions."""
FLAG = re.compile(r"--([a-z][a-z0-9-]+)")


def as_text(found: Explanation, *, every: bool = False) -> str:
    """The explanation for people. `every` adds what is the same without the flag, and all reads."""
    blocks = [_head(found)]
    demands = found.of_kind("demand", every=every)
    first, later = [[one for one in demands if one.in_arguments is early] for early in (True, False)]
    reached = [one for one in first if one.reached]
    special = [one for one in first if not one.reached]
    blocks += [
        _block("Demands while options are resolved, in the order in which they come", reached),
        _block("Demands of particular models and features", special, None if every else FEW),
        _block("Demands later, in the engine", later, None if every else FEW),
        _block("Sets", found.of_kind("setting", every=every)),
        _block("Is overridden", found.of_kind("overridden", every=True)),
        _block("Says", found.of_kind("warning", every=every)),
        _reads(found.of_kind("read", every=every), every=every),
        _foot(found, every=every),
    ]
    if not any(
        found.of_kind(kind, every=True) for kind in ("demand", "setting", "overridden", "warning", "read")
    ):
        blocks.append(f"Nothing in {found.package.name} {found.package.version} reads it.")
    return "\n\n".join(block for block in blocks if block) + "\n"


def title(found: Explanation) -> str:
    """`--moe-a2a-backend flashinfer`, or `NCCL_ALGO=Tree`."""
    if found.option.variable:
        return found.option.name + (f"={found.written}" if found.written is not None else "")
    name = f"--{found.flag}" if found.option.flags else found.option.name
    return f"{name} {found.written}" if found.written is not None else name


def _head(found: Explanation) -> str:
    option = found.option
    lines = [f"{found.package.name} {found.package.version}: {title(found)}"]
    told = [f"default {_shown(option.default)}"]
    if option.choices:
        told.append(f"choices {', '.join(option.choices)}")
    if option.place:
        told.append(f"declared at {option.place}")
        lines += textwrap.wrap("; ".join(told), WIDTH, initial_indent="  ", subsequent_indent="  ")
    elif not option.variable:
        lines.append("  not declared")
    lines += [f"  --{flag} is deprecated: {text}" for flag, text in option.deprecated.items()]
    others = demanded(found)
    if others:
        lines += textwrap.wrap(
            f"  It demands something of: {', '.join(others)}", WIDTH, subsequent_indent="    "
        )
    if found.given:
        lines.append(
            f"  with {', '.join(f'{one.option.title}={one.written}' for one in found.given)} besides"
        )
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, Unknown):
        return "computed"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def demanded(found: Explanation) -> list[str]:
    """Other options that the demands which hold for every model speak of, in order."""
    names: dict[str, None] = {}
    for site in found.of_kind("demand"):
        if site.in_arguments and site.reached and all(_certain(one) for one in site.conditions):
            names.update(dict.fromkeys(options_of(site, found)))
    return list(names)


def _certain(condition: Condition) -> bool:
    return condition.implied or bool(condition.holds)


def options_of(site: Site, found: Explanation) -> list[str]:
    """Options that a site speaks of besides the one in question, as flags."""
    names: dict[str, None] = {}
    for node in ast.walk(site.node) if site.node else ():
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.Name(id=name):
                if name in found.known and name != found.option.name:
                    names[name.replace("_", "-")] = None
    for flag in FLAG.findall(site.message):
        if flag.replace("-", "_") in found.known and flag not in found.option.flags:
            names[flag] = None
    return list(names)


def _block(heading: str, sites: list[Site], limit: int | None = None) -> str:
    if not sites:
        return ""
    shown = sites if limit is None else sites[:limit]
    lines = [f"{heading}:"]
    for (where, conditions), group in groupby(shown, key=lambda one: (_function(one), _conditions(one))):
        lines.append(f"  {where}")
        lines += [wrapped(one if one.startswith(WORDED) else f"if {one}", "    ") for one in conditions]
        indent = "      " if conditions else "    "
        for site in group:
            lines += [wrapped(line, indent) for line in _told(site)]
    if len(shown) < len(sites):
        lines.append(f"  ... and {len(sites) - len(shown)} more; --all lists them")
    return "\n".join(lines)


def _function(site: Site) -> str:
    via = (
        f", called by {' < '.join(one.rpartition(' at ')[2] for one in reversed(site.via))}"
        if site.via
        else ""
    )
    return f"{site.file}  {site.function}{via}" if site.function else site.file


def _told(site: Site) -> Iterator[str]:
    at = f"{site.line}: "
    if site.kind == "demand":
        yield at + site.code if not site.code.startswith("raise") else f"{at}raise"
        never = "can never hold with this value; " if site.fails else ""
        yield f"   {never}{site.exception}{': ' if site.message else ''}{site.message}"
    elif site.kind == "warning":
        yield f"{at}{site.level}: {site.message}"
    elif site.code.startswith(("return", "declare", "overrides.", "envs.")):
        yield f"{at}{site.sets} = {site.value}"
    else:
        yield at + site.code


def wrapped(text: str, indent: str) -> str:
    """Broken at blanks alone, so that code and paths stay as they are."""
    lines = text.splitlines()
    return "\n".join(
        textwrap.fill(
            line,
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
        if line.strip()
    )


def conditions_of(site: Site) -> list[Condition]:
    """The conditions worth telling, without what is certain anyway and the opposite of earlier branches."""
    certain = [one for one in site.conditions if one.of_option and one.holds]
    last = next((one for one in reversed(certain) if one.telling), certain[-1] if certain else None)
    return [
        one
        for one in site.conditions
        if one is last or (one not in certain and not (one.implied and not one.of_option))
    ]


def _conditions(site: Site) -> tuple[str, ...]:
    return tuple(one.code for one in conditions_of(site))


def _reads(sites: list[Site], *, every: bool) -> str:
    if not sites:
        return ""
    lines = ["Other places that read it:"]
    files = [
        (file, list(group)) for file, group in groupby(sorted(sites, key=_place), key=lambda one: one.file)
    ]
    shown = files if every else files[:FEW]
    for file, group in shown:
        lines.append(f"  {file}")
        kept = group if every else group[:4]
        lines += [_short(f"    {site.line}: {site.code}") for site in kept]
        if len(kept) < len(group):
            lines.append(f"    ... and lines {_numbers(one.line for one in group[len(kept) :])}")
    if len(shown) < len(files):
        rest = files[len(shown) :]
        count = sum(len(group) for _, group in rest)
        lines.append(f"  ... and {count} places in {len(rest)} other files; --all lists them")
    return "\n".join(lines)


def _place(site: Site) -> tuple[bool, str, int]:
    return not site.in_arguments, site.file, site.line


def _short(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..."


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _foot(found: Explanation, *, every: bool) -> str:
    notes: list[str] = []
    same = len(found.sites) - sum(site.telling for site in found.sites)
    if same and not every:
        notes.append(f"{same} places come out the same without it; --all lists them.")
    if found.same_name:
        notes.append(
            f"{len(found.same_name)} attributes of the same name on other objects may be copies of it"
            + ("." if not every else f": {', '.join(f'{file}:{line}' for file, line in found.same_name)}.")
        )
    if not found.followed:
        notes.append("It is passed on to too many functions to follow it through their parameters.")
    return "\n".join(notes)


def as_dict(found: Explanation) -> dict[str, Any]:
    """The whole explanation, for programs."""
    option = found.option
    return {
        "engine": found.package.name,
        "version": found.package.version,
        "path": str(found.package.root),
        "option": found.flag,
        "field": option.name,
        "variable": option.variable,
        "value": None if isinstance(found.value, Unknown) else found.value,
        "any_value": isinstance(found.value, Unknown),
        "flags": list(option.flags),
        "choices": list(option.choices),
        "default": None if isinstance(option.default, Unknown) else option.default,
        "deprecated": option.deprecated,
        "declared": str(option.place) if option.place else None,
        "demands_of": demanded(found),
        "demands": [_site(one, found) for one in found.of_kind("demand", every=True)],
        "settings": [_site(one, found) for one in found.of_kind("setting", every=True)],
        "overridden": [_site(one, found) for one in found.of_kind("overridden", every=True)],
        "warnings": [_site(one, found) for one in found.of_kind("warning", every=True)],
        "reads": [_site(one, found) for one in found.of_kind("read", every=True)],
    }


def _site(site: Site, found: Explanation) -> dict[str, Any]:
    told: dict[str, Any] = {
        "file": site.file,
        "line": site.line,
        "end_line": site.end_line,
        "function": site.function,
        "when": list(_conditions(site)),
        "conditions": [
            {"code": one.code, "of_option": one.of_option, "holds": one.holds} for one in site.conditions
        ],
        "statement": site.code,
        "stage": "arguments" if site.in_arguments else "engine",
        "same_without": not site.telling,
        "via": list(site.via),
    }
    if site.kind == "demand":
        told |= {
            "exception": site.exception,
            "message": site.message,
            "fails": site.fails,
            "options": options_of(site, found),
        }
    elif site.kind == "warning":
        told |= {"level": site.level, "message": site.message}
    elif site.kind in ("setting", "overridden"):
        told |= {"sets": site.sets, "value": site.value}
    return told
