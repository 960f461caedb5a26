"""What an engine's log says against a round that was measured while it was written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HEAD_BYTES = 8 << 20
"""How much of the log before the round is searched: the start of a server fits, days of serving do not."""


class RoundRule(Struct, frozen=True):
    """A line that should not be there. `text` may use `{n}`, the number of such lines."""

    pattern: str
    text: str
    invalid: bool = False
    """The numbers must not be used; otherwise it is a warning."""
    only_after: str | None = None
    """Applies when some line before the round fits this: what was never asked for cannot be missed."""


def read_round(log: Path, start: int, end: int, rules: Sequence[RoundRule]) -> tuple[list[str], list[str]]:
    """(reasons that the round is invalid, warnings) from the bytes [start, end) of a log."""
    with log.open("rb") as file:
        head = file.read(min(start, _HEAD_BYTES)).decode(errors="replace")
        file.seek(start)
        lines = file.read(max(end - start, 0)).decode(errors="replace").splitlines()
    invalid: list[str] = []
    warnings: list[str] = []
    for rule in rules:
        count = sum(1 for line in lines if re.search(rule.pattern, line))
        if count and (rule.only_after is None or re.search(rule.only_after, head)):
            (invalid if rule.invalid else warnings).append(rule.text.format(n=count))
    return invalid, warnings
