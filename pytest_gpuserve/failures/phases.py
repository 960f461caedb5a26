"""Where in its life a server is, told from its log. The tables are data: `phases/<engine>.yaml`.

A table has line patterns (which phase begins with a line), frame patterns (in which phase code of that name
runs), lines that an engine prints only when it is going down, and marks by which its logs are recognised.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..model import Phase, PhaseRule
from .literals import literals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDER = Path(__file__).with_suffix("")
GENERAL = "general"

_AFTER_START: frozenset[Phase] = frozenset({"ready", "serving", "shutdown"})


class PhaseTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one engine's log says of its phases."""

    first_forward: Phase
    """The phase of the first forward pass, where a missing kernel shows."""
    lines: tuple[PhaseRule, ...]
    frames: tuple[PhaseRule, ...] = ()
    fatal: tuple[str, ...] = ()
    hindsight: tuple[PhaseRule, ...] = ()
    """Lines that follow a failure and tell in which phase it was."""
    marks: tuple[str, ...] = ()


@cache
def engines() -> tuple[str, ...]:
    """Names of the engines that have a table."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.yaml") if file.stem != GENERAL))


@cache
def table(engine: str | None) -> PhaseTable:
    """The table of an engine; the general one for None and for engines that have none."""
    from ..yaml_source import load

    name = engine if engine in engines() else GENERAL
    return load(FOLDER / f"{name}.yaml").convert((), PhaseTable)


def phase_rules(engine: str) -> tuple[PhaseRule, ...]:
    """Line patterns of an engine, in the order in which they are tried; the general ones if it has none."""
    return table(engine).lines


@cache
def _marks() -> dict[str, re.Pattern[str]]:
    return {name: re.compile("|".join(table(name).marks)) for name in engines() if table(name).marks}


def recognise(lines: Iterable[str]) -> str | None:
    """The engine that wrote a log, or None. The engine whose marks fit the most lines wins."""
    score = dict.fromkeys(_marks(), 0)
    for line in lines:
        for name, mark in _marks().items():
            if mark.search(line):
                score[name] += 1
    best = max(score, key=lambda name: score[name])
    return best if score[best] else None


class PhaseTracker:
    """Follows the phases of a server and of each of its ranks through the lines of its log.

    A start goes forward and back between its phases, because a draft model loads weights again and ranks are
    not in step. Once the server is ready only `serving` and `shutdown` can follow; before that nothing can be
    `serving`, since engines send themselves requests to warm up.
    """

    def __init__(self, rules: Sequence[PhaseRule]) -> None:
        self.rules = tuple(rules)
        self._tried = [(rule.phase, literals(rule.pattern), re.compile(rule.pattern)) for rule in rules]
        self.phase: Phase | None = None
        self.seen: list[Phase] = []
        """Every phase in the order of its first line."""
        self._of_rank: dict[int, Phase] = {}

    @property
    def started(self) -> bool:
        """Whether the server has been ready."""
        return "ready" in self.seen or "serving" in self.seen

    def of_rank(self, rank: int | None) -> Phase | None:
        """The phase a rank is in, or the server's where the rank has not told its own."""
        if rank is None or self.started:
            return self.phase
        return self._of_rank.get(rank, self.phase)

    def feed(self, text: str, rank: int | None = None) -> Phase | None:
        """Take a line without its prefixes; gives the phase that it begins or continues, if it tells one."""
        for phase, needles, pattern in self._tried:
            if needles is not None:
                for needle in needles:
                    if needle in text:
                        break
                else:
                    continue
            if self.possible(phase) and pattern.search(text):
                self.phase = phase
                if phase not in self.seen:
                    self.seen.append(phase)
                if rank is not None:
                    self._of_rank[rank] = phase
                return phase
        return None

    def possible(self, phase: Phase) -> bool:
        """Whether the server can go to a phase from where it is."""
        if phase == "serving":
            return self.phase is None or self.started
        return phase in _AFTER_START or not self.started
