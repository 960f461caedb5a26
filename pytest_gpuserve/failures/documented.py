"""Which entries of the registry describe a failure that a log tells, when nobody says which config it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from .classes import classes
from .dead_end import fits_match

if TYPE_CHECKING:
    from ..model import DeadEnd
    from ..record import Failure
    from .known import Registry


class Documented(Struct, frozen=True, kw_only=True):
    """An entry that describes a failure."""

    entry: str
    title: str
    engine: str
    """Version range; empty: every version."""
    way_out: str | None
    link: str | None


def documented(failure: Failure, engine: str | None, registry: Registry) -> list[Documented]:
    """The entries of an engine with a behaviour whose match, phases and all, fits the failure; one each.

    Version and host are not known from a log: the range says where it holds. The state of the machine is
    described by none.
    """
    known = classes().get(failure.failure_class)
    if failure.environment or (known is not None and known.environment):
        return []
    found = []
    for entry in registry.entries:
        if entry.engine != engine:
            continue
        fitting = [one for one in entry.behaviours if _fits(one.dead_end, failure)]
        if fitting:
            end = fitting[0].dead_end
            ranges = dict.fromkeys(one.engine for one in fitting)
            found.append(
                Documented(
                    entry=entry.name,
                    title=entry.title,
                    engine=" or ".join(ranges) if all(ranges) else "",
                    way_out=end.way_out,
                    link=end.link,
                )
            )
    return found


def _fits(end: DeadEnd, failure: Failure) -> bool:
    """A match of a class or a type alone says too little without the config that it is about."""
    if end.phases and failure.phase is not None and failure.phase not in end.phases:
        return False
    return any(match.message is not None and fits_match(match, failure) for match in end.match)
