"""Whether a case ended as its dead end says, and the three messages: changed, open, due for review."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from msgspec import Struct

from ..record import Verdict
from .classes import classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from ..errors import CaseError
    from ..model import Case, DeadEnd, DeadEndKind, EngineBuild, Match
    from ..record import Comparison, Failure

ENDS: Mapping[DeadEndKind, frozenset[Verdict]] = {
    "start": frozenset({Verdict.START_FAILED, Verdict.CRASHED}),
    "missing": frozenset({Verdict.START_FAILED}),
    "serve": frozenset({Verdict.CRASHED, Verdict.STALLED, Verdict.INVALID, Verdict.START_FAILED}),
    "slower": frozenset({Verdict.SLOWER, Verdict.REGRESSED}),
    "inert": frozenset({Verdict.INERT}),
    "garbage": frozenset({Verdict.GARBAGE}),
}
"""With which verdicts a dead end of a kind may show itself."""

ON_THE_OTHER_SIDE: Mapping[DeadEndKind, Verdict] = {
    "start": Verdict.CRASHED,
    "serve": Verdict.START_FAILED,
}
"""Only where the entry names the phase: a warm-up request serves already, and can be switched off."""

MISSING = frozenset({"dependency_missing"})
"""Classes that a dead end of kind `missing` can have."""

_COLUMN = 56


class Fit(Struct, frozen=True):
    """Whether a failure is the documented one; `why` says in what it is, or in what it is not."""

    fits: bool
    why: str


def judge_failure(dead_end: DeadEnd, error: CaseError) -> Fit:
    """Hold a bad end against a documented one.

    The state of the machine is never a dead end, whatever else fits; out of GPU memory counts only where the
    GPUs were seen idle before the start, as somebody else's memory looks the same.
    """
    failure = error.failure
    if failure is not None and (reason := _machine(failure)):
        return Fit(False, reason)
    expected = ENDS[dead_end.kind]
    if error.verdict not in expected:
        return Fit(False, f"it ended as {error.verdict}; a dead end of kind {dead_end.kind} ends as "
                   + " or ".join(sorted(expected)))  # fmt: skip
    if dead_end.kind == "slower":
        return _slower(dead_end, error)
    if dead_end.kind == "inert":
        return Fit(True, f"inert as documented: {error}")
    return _failed(dead_end, error)


def _machine(failure: Failure) -> str | None:
    """Why a failure says nothing of the configuration, if so."""
    known = classes().get(failure.failure_class)
    if failure.environment or (known is not None and known.environment):
        return f"{failure.failure_class} is the state of the machine, which is never a dead end"
    if known is not None and known.group == "memory" and not failure.gpus_idle_before:
        return f"{failure.failure_class} counts only when the GPUs were seen idle before the start"
    return None


def _failed(dead_end: DeadEnd, error: CaseError) -> Fit:
    failure = error.failure
    phase = failure.phase if failure else None
    differs = list(_phase_differs(dead_end, error, phase))
    if dead_end.kind == "missing" and failure is not None and failure.failure_class not in MISSING:
        differs.append(f"its class is {failure.failure_class}, not {' or '.join(MISSING)}")
    against = [list(_differs(match, failure, str(error))) for match in dead_end.match]
    if against and all(against):
        nearest: list[str] = min(against, key=len)
        differs += nearest
    if differs:
        return Fit(False, "; ".join(differs))
    return Fit(True, f"as documented{f' in phase {phase}' if phase else ''}: {root_line(error)}")


def _phase_differs(dead_end: DeadEnd, error: CaseError, phase: str | None) -> Iterator[str]:
    if dead_end.phases and phase not in dead_end.phases:
        documented = " or ".join(sorted(dead_end.phases))
        yield f"it failed in {f'phase {phase}' if phase else 'no phase that is known'}, not in {documented}"
    elif not dead_end.phases and error.verdict is ON_THE_OTHER_SIDE.get(dead_end.kind):
        yield f"it ended as {error.verdict}, which kind {dead_end.kind} does only in phases that are named"


def _differs(match: Match, failure: Failure | None, text: str) -> Iterator[str]:
    """In what a failure is not what a match describes."""
    if match.failure_class and (failure is None or failure.failure_class not in match.failure_class):
        yield f"its class is {failure.failure_class if failure else 'not known'}, not " + " or ".join(
            match.failure_class
        )
    if match.exception is not None:
        raised = (failure.exception if failure else None) or "no exception that is known"
        if raised.rpartition(".")[2] != match.exception:
            yield f"it raised {raised}, not {match.exception}"
    message = failure.message if failure else text
    if match.message is not None and not re.search(match.message, message, re.MULTILINE):
        yield f"its message does not fit {match.message!r}"


def fits_match(match: Match, failure: Failure) -> bool:
    """Whether a match alone fits a failure, without phases and verdicts."""
    return not list(_differs(match, failure, ""))


def _slower(dead_end: DeadEnd, error: CaseError) -> Fit:
    """Slower than the partner, and about as slow as documented. Faster than that, it stays, with a note."""
    if dead_end.expect is None:
        return Fit(True, f"slower as documented: {_first(error)}")
    held = next((one for one in error.comparisons if one.against == "expect"), None)
    if held is None:
        return Fit(False, f"no {dead_end.expect.metric} was measured to hold against the documented figure")
    fits, note = _EXPECTED.get(held.decision, (True, "as slow as documented"))
    return Fit(fits, f"{note}: {_figure(held)}")


_EXPECTED: Mapping[str, tuple[bool, str]] = {
    "worse": (False, "slower than was ever documented"),
    "better": (True, "still slower than its partner, but faster than documented (correct the figure)"),
}


def _figure(held: Comparison) -> str:
    return held.text or f"{held.metric} {held.value:g}, documented as {held.reference:g}"


def root_line(error: CaseError) -> str:
    """The root error in one line: exception and message, or what the case says of itself."""
    failure = error.failure
    if failure is None:
        return _first(error)
    first = failure.message.split("\n", 1)[0]
    if failure.exception and failure.exception not in first:
        return f"{failure.exception}: {first}" if first else failure.exception
    return first or _first(error)


def _first(error: CaseError) -> str:
    return str(error).split("\n", 1)[0]


# --- the three messages -----------------------------------------------------------------------------


def changed(dead_end: DeadEnd, error: CaseError, fit: Fit) -> str:
    """A dead end that fails in another way: what is documented and what happened, side by side."""
    failure = error.failure
    matches = dead_end.match
    beside = {ON_THE_OTHER_SIDE.get(dead_end.kind)}
    rows: list[tuple[str, str, str | None]] = [
        ("ends as", " or ".join(sorted(ENDS[dead_end.kind] - beside)), str(error.verdict)),
        ("phase", " or ".join(sorted(dead_end.phases)) or "any", failure.phase if failure else None),
        (
            "class",
            _either(one for match in matches for one in match.failure_class),
            failure.failure_class if failure else None,
        ),
        ("exception", _either(m.exception for m in matches), failure.exception if failure else None),
        ("message", _either(m.message for m in matches), failure.message if failure else str(error)),
    ]
    if dead_end.expect is not None:
        expect = dead_end.expect
        held = next((one for one in error.comparisons if one.against == "expect"), None)
        documented = f"{expect.metric} {expect.value:g} within {expect.tolerance:.0%}"
        rows.append(("figure", documented, f"{held.value:g}" if held else None))
    lines = [
        f"This dead end has changed: {fit.why}.",
        f"Documented at {dead_end.place}{_named(dead_end)}: {dead_end.reason}",
        "",
        *_side_by_side(rows),
    ]
    if dead_end.link:
        lines += ["", f"See {dead_end.link}"]
    return "\n".join(lines)


def open_(dead_end: DeadEnd, *, case: Case, nodeid: str, build: EngineBuild | None = None) -> str:
    """A dead end that works now: what to change, where, and how to record the case's baseline."""
    here = f"{build.name} {build.version}" if build else "the version that runs here"
    if dead_end.entry is None:
        what = f"delete the `xfail:` of config {case.config.id!r} at {dead_end.place}"
    else:
        bound = f"`,<{_release(build.version)}`" if build else "an upper bound below that version"
        known = f"the range `{dead_end.engine_range or 'any'}` of entry {dead_end.entry}"
        what = (
            f"end {known} at {dead_end.place}: {here} no longer belongs to it ({bound}). If the file is not "
            "yours, write an entry of the same name in a folder of your own (ini `gpuserve_known`)"
        )
    return "\n".join(
        [
            f"This dead end is open: {case.id} works with {here}.",
            f"It was documented as: {dead_end.reason}",
            f"1. {what}.",
            f"2. Record its baseline: pytest '{nodeid}' --gpuserve-update-baselines",
        ]
    )


def review_due(dead_end: DeadEnd, today: date) -> str | None:
    """What to say of a dead end past its review date; None while it has time."""
    if dead_end.review is None or today < dead_end.review:
        return None
    link = f", see {dead_end.link}" if dead_end.link else ""
    return (
        f"the dead end at {dead_end.place}{_named(dead_end)} was to be reviewed by {dead_end.review}{link}: "
        "look whether it still holds, then move the date"
    )


def _named(dead_end: DeadEnd) -> str:
    if dead_end.entry is None:
        return ""
    of = f", {dead_end.engine_range}" if dead_end.engine_range else ""
    return f" ({dead_end.entry}{of})"


def _release(version: str) -> str:
    """The version that a range should end below: that of a pre-release is the release it leads to."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).base_version
    except InvalidVersion:
        return version


def _either(values: Iterator[str | None]) -> str:
    return " or ".join(dict.fromkeys(value for value in values if value)) or "any"


def _side_by_side(rows: list[tuple[str, str, str | None]]) -> list[str]:
    lines = [f"  {'':<10} {'documented':<{_COLUMN}}  now"]
    for name, documented, now in rows:
        left = textwrap.wrap(documented, _COLUMN) or [""]
        right = [part for line in (now or "-").split("\n") for part in textwrap.wrap(line, _COLUMN)] or ["-"]
        for index in range(max(len(left), len(right))):
            first, second = (column[index] if index < len(column) else "" for column in (left, right))
            lines.append(f"  {name if index == 0 else '':<10} {first:<{_COLUMN}}  {second}".rstrip())
    return lines
