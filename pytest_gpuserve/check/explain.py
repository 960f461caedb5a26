"""`gpuserve explain`: every place in an engine's source that reads an option, and what else it then demands.

The engine is not imported: its files are searched for the option's name and parsed with `ast`, and conditions
are folded with the value that is asked about.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import InputError
from .options import Layout, Option, Options, is_variable
from .order import Path as CallPath
from .order import call_order
from .package import Package
from .readings import Readings
from .recognise import Assumed
from .sides import Side, convert
from .site import Site
from .sites import Walk
from .values import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable


class Explanation(Struct, frozen=True, kw_only=True):
    """All that an engine's source says of an option with a value."""

    package: Package
    option: Option
    flag: str
    """The option's name as it was asked about, or its first flag."""
    value: Any
    written: str | None
    given: tuple[Assumed, ...]
    sites: tuple[Site, ...]
    """Demands in the order in which they come, then settings, what overrides it, warnings and other reads."""
    same_name: tuple[tuple[str, int], ...]
    """(file, line) of attributes of that name on objects that may hold something else."""
    known: frozenset[str]
    """Names of all options, for those who compare."""
    followed: bool = True
    """The option was followed through the parameters it is passed to."""

    def of_kind(self, kind: str, *, every: bool = False) -> list[Site]:
        """Sites of a kind; those that are the same without the flag only if `every`."""
        return [site for site in self.sites if site.kind == kind and (every or site.telling)]


KINDS = ("demand", "setting", "overridden", "warning", "read")


def explain(package: Package, layout: Layout, question: str, given: Iterable[str] = ()) -> Explanation:
    """Answer `moe-a2a-backend=flashinfer`, `enable-torch-symm-mem` or `NCCL_ALGO=Tree` from the source.

    Without a value all branches are shown; a switch without one counts as switched on. `given` are further
    options that are set besides, written alike. InputError for an option that the engine does not have, or a
    value that is none of its choices.
    """
    # A hundred syntax trees at once: the garbage collector would walk them again and again, and find none.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _explain(package, layout, question, given)
    finally:
        if collecting:
            gc.enable()


def _explain(package: Package, layout: Layout, question: str, given: Iterable[str]) -> Explanation:
    options = Options(package, layout)
    focus = assumed(options, question)
    besides = tuple(assumed(options, one) for one in given)
    readings = Readings(options, focus, besides)
    known = frozenset(options.fields)
    default = focus.option.default
    asked = Side(readings, focus.value, is_set=True)
    without = Side(
        readings,
        # With the value that holds anyway, or with none, nothing is told apart.
        UNKNOWN if focus.value == default or isinstance(focus.value, Unknown) else default,
        is_set=False,
    )
    walk = Walk(readings, asked, without, known)
    found: list[Site] = []
    for path in readings.paths:
        module = package.module(path)
        if module is not None:
            found += walk.module(module)
    if isinstance(focus.value, Unknown) or focus.value == default:
        found = [replace(site, telling=True) for site in found]
    return Explanation(
        package=package,
        option=focus.option,
        flag=_flag(focus.option, question),
        value=focus.value,
        written=focus.written,
        given=besides,
        sites=tuple(_sorted(_single(found), call_order(options))),
        same_name=tuple(sorted(set(walk.same_name))),
        known=known,
        followed=readings.passing.complete,
    )


def _flag(option: Option, question: str) -> str:
    written = question.partition("=")[0].strip().lstrip("-").replace("_", "-")
    return written if written in option.flags else option.title


def assumed(options: Options, written: str) -> Assumed:
    """`tp-size=8` as an option and its value, in the type that the engine declares."""
    name, equals, text = written.partition("=")
    option = options.find(name.strip())
    version = f"{options.package.name} {options.package.version}"
    if option is None:
        near = options.near(name)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"{version} has no option {name.lstrip('-')!r}{hint}")
    if not equals:
        return Assumed(option=option, value=True if option.switch and not option.variable else UNKNOWN)
    if option.choices and text not in option.choices:
        raise InputError(
            f"{version}: {text!r} is none of the choices of {option.title}: {', '.join(option.choices)}"
        )
    if option.variable or is_variable(option.name):
        return Assumed(option=option, value=text, written=text)
    value = convert(text, option.type)
    if isinstance(value, Unknown):
        raise InputError(f"{version}: {option.title} takes {option.type}, not {text!r}")
    return Assumed(option=option, value=value, written=text)


def _single(sites: Iterable[Site]) -> list[Site]:
    """One site for each place and thing it sets: the one reached most directly."""
    best: dict[tuple[str, int, str, str], Site] = {}
    for site in sites:
        key = (site.file, site.line, site.kind, site.sets)
        before = best.get(key)
        if before is None or (not site.telling, len(site.via)) < (not before.telling, len(before.via)):
            best[key] = site
    return list(best.values())


def _sorted(sites: list[Site], order: dict[tuple[str, int], CallPath]) -> list[Site]:
    """Demands that every configuration meets come first, by the time at which they are met."""

    def key(site: Site) -> tuple[Any, ...]:
        reached = order.get((site.file, site.function_line), ())
        unsure = sum(one.holds is None for one in site.conditions)
        return (
            KINDS.index(site.kind),
            not site.in_arguments,
            not site.reached,
            (*reached, site.line)
            if site.reached and site.in_arguments
            else (not site.fails, not site.message, unsure),
            site.file,
            site.line,
        )

    return sorted(
        (
            replace(one, reached=not one.in_arguments or not order or (one.file, one.function_line) in order)
            for one in sites
        ),
        key=key,
    )
