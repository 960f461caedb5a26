"""Which plain text a regular expression cannot do without: most lines are dismissed without running it."""

from __future__ import annotations

import re

SHORTEST = 3
"""Shorter texts stand in too many lines to be worth a look."""

_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_OPTIONAL = re.compile(r"[*?]|\{0?,?\d*\}")
_REPEATED = re.compile(r"[+?*]|\{\d*,?\d*\}")


def runs(pattern: str) -> tuple[tuple[str, ...], ...] | None:
    """For each alternative of `pattern` the texts that every match of it contains; None where one has none.

    Only what stands outside groups is looked at. Errs on the side of None.
    """
    if "(?i" in pattern or "(?x" in pattern:
        return None
    alternatives: list[list[str]] = [[""]]
    at = 0
    while at < len(pattern):
        char, width, literal = pattern[at], 1, ""
        if char == "\\":
            width = 2
            literal = "" if pattern[at + 1].isalnum() else pattern[at + 1]
        elif char == "[":
            match = _CLASS.match(pattern, at)
            width = len(match.group()) if match else 1
        elif char == "(":
            width = _group(pattern, at)
        elif char == "|":
            alternatives.append([""])
            at += 1
            continue
        elif char not in ".^$":
            literal = char
        at += width
        repeated = _REPEATED.match(pattern, at)
        if literal and not _OPTIONAL.match(pattern, at):
            alternatives[-1][-1] += literal
        if not literal or repeated:
            alternatives[-1].append("")
        if repeated:
            at = repeated.end()
            at += pattern.startswith("?", at)  # not greedy
    found = tuple(tuple(run for run in one if len(run) >= SHORTEST) for one in alternatives)
    return found if all(found) else None


def literals(pattern: str) -> tuple[str, ...] | None:
    """Texts of which every match of `pattern` contains at least one; None where there are none."""
    found = runs(pattern)
    return None if found is None else tuple(max(one, key=len) for one in found)


def any_of(needles: tuple[str, ...] | None, text: str) -> bool:
    """Whether a text holds one of the needles; without any it must be looked at."""
    if needles is None:
        return True
    for needle in needles:  # noqa: SIM110  (a generator would cost more than the search)
        if needle in text:
            return True
    return False


def cover(patterns: list[str], stems: tuple[str, ...]) -> tuple[str, ...]:
    """`stems`, and what must be looked for besides them so that no line that fits a pattern is missed."""
    wanted = list(stems)
    for pattern in patterns:
        found = runs(pattern)
        if found is None:
            return ("",)  # a pattern that says nothing plain makes every line worth a look
        for one in found:
            if not any(stem in run for stem in wanted for run in one):
                wanted.append(max(one, key=len))
    return tuple(wanted)


def _group(pattern: str, start: int) -> int:
    """Length of the group that begins at `start`."""
    depth, at = 0, start
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if char == "[" and (match := _CLASS.match(pattern, at)):
            at = match.end()
            continue
        depth += (char == "(") - (char == ")")
        at += 1
        if depth == 0:
            break
    return at - start
