"""What `gpuserve check --start` prints: config by config, then a line of counts."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from .rehearse import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .rehearse import Start

WIDTH = 110
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
QUIET: frozenset[Outcome] = frozenset({"confirmed", "starts", "skipped", "not checked"})
"""Not told under `--quiet`."""


def as_text(starts: Sequence[Start], *, title: str = "", quiet: bool = False) -> str:
    """The starts for people. `title` names a simulated host; `quiet` tells only what is not as documented."""
    lines = [title] if title else []
    common = _common(starts)
    lines += [line for change in common for line in _wrapped(change, "cheap starts: ")]
    for start in starts:
        if start.bad or not quiet or start.outcome not in QUIET:
            lines += _told(start, common)
    lines += ["", _summary(starts)] if lines else [_summary(starts)]
    return "\n".join(lines) + "\n"


def _common(starts: Sequence[Start]) -> tuple[str, ...]:
    """Changes that every start had, told once when there are several."""
    started = [start.changes for start in starts if start.changes]
    if len(started) < 2:
        return ()
    return tuple(one for one in started[0] if all(one in changes for changes in started))


def _told(start: Start, common: Sequence[str]) -> Iterator[str]:
    yield f"{start.suite}::{start.config}  ({start.place})"
    of = f" ({', '.join(filter(None, (start.kind, start.entry)))})" if start.kind else ""
    took = f" after {start.seconds:.1f} s" if start.seconds is not None else ""
    first, *rest = start.text.split("\n")
    yield from _wrapped(first, f"  {start.outcome}{of}{took}: ")
    yield from (f"    {line}".rstrip() for line in rest)
    for change in start.changes:
        if change not in common:
            yield from _wrapped(change, "    with ")
    if start.left:
        yield from _wrapped(start.left, "    and then ")
    if start.bad and start.log:
        yield f"    log: {start.log}"


def _wrapped(text: str, head: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(starts: Sequence[Start]) -> str:
    counts = Counter(start.outcome for start in starts)
    told = ", ".join(f"{counts[one]} {one}" for one in OUTCOMES if counts[one])
    left = sum(bool(start.left) for start in starts)
    told += f"; {left} not stopped cleanly" if left else ""
    return f"{sum(start.log is not None for start in starts)} started: {told or 'nothing is documented of any start'}"


def as_dict(starts: Sequence[Start]) -> dict[str, Any]:
    """The starts for programs."""
    counts = Counter(start.outcome for start in starts)
    return {
        "counts": {one: counts[one] for one in OUTCOMES},
        "starts": [msgspec.to_builtins(start) for start in starts],
    }
