"""A classified failure for people and for other tools: what `gpuserve classify` prints."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import msgspec

from ..failures.classes import classes
from .figures import root_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..failures.documented import Documented
    from ..record import Failure

KEYS = ("class", "phase", "exception", "message", "rank", "line", "environment", "excerpt")
WIDTH = 100


def as_dict(failure: Failure | None, documented: Sequence[Documented] = ()) -> dict[str, Any]:
    """The keys of `--json`; all of them null, and the class as well, when nothing failed. `dead_ends` is a list
    of what is documented of such a failure, which may be empty."""
    ends = {"dead_ends": msgspec.to_builtins(list(documented))}
    if failure is None:
        return dict.fromkeys(KEYS) | ends
    values = {key: getattr(failure, "failure_class" if key == "class" else key) for key in KEYS}
    return values | {"advice": failure.advice} | ends


def as_text(
    failure: Failure | None, log: str, documented: Sequence[Documented] = (), *, recognised: bool = True
) -> str:
    """What failed and where, what it means, what to try, what is documented of it, and the lines of the log.

    `recognised`: whether any engine's log is in it; nothing can be told of another text.
    """
    if failure is None and not recognised:
        return (
            f"{log}: no engine's log is recognised in this, and no error that is known; "
            "--engine NAME says whose it is\n"
        )
    if failure is None:
        return f"{log}: nothing failed, as far as the log tells\n"
    known = classes().get(failure.failure_class)
    where = [log if failure.line is None else f"{log}:{failure.line}"]
    if failure.rank is not None:
        where.append(f"rank {failure.rank}")
    if failure.exit_status is not None:
        where.append(f"exit status {failure.exit_status}")
    phase = f" in phase {failure.phase}" if failure.phase else ""
    parts = [f"{failure.failure_class}{phase}: {root_error(failure)}\n  {', '.join(where)}\n"]
    if known is not None:
        parts.append(_told("means", known.meaning))
    if failure.environment:
        parts.append(
            _told("note", "this is the state of the machine, so never a dead end of the configuration")
        )
    if failure.advice:
        parts.append(_told("try", failure.advice))
    for one in documented:
        which = f"{one.entry} ({one.engine})" if one.engine else one.entry
        parts.append(_told("documented", f"{which}: {one.way_out or one.link or one.title}"))
    if failure.excerpt:
        parts.append("\n" + textwrap.indent(failure.excerpt.rstrip("\n"), "  | ") + "\n")
    return "".join(parts)


def _told(what: str, text: str) -> str:
    lead = f"  {what + ':':<6} "
    return textwrap.fill(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)) + "\n"
