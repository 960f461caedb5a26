"""Which plain text a regular expression cannot do without: most lines are dismissed without running it."""

from __future__ import annotations

import re

SHORTEST = 3
"""Shorter texts stand in too many lines to be worth a look."""

_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPEAT = re.compile(r"[*?]|\{0?,?\d*\}")
_MORE = re.compile(r"[+?*]|\{\d+,?\d*\}")


def literals(pattern: str) -> tuple[str, ...] | None:
    """Texts of which every match of `pattern` contains at least one, or None where there are none that help.

    Only what stands outside groups is looked at, one text an alternative. Errs on the side of None.
    """
    found: list[str] = []
    longest = run = ""
    at = 0
    while at < len(pattern):
        char, width = pattern[at], 1
        literal = ""
        if char == "\\":
            width = 2
            literal = "" if pattern[at + 1].isalnum() else pattern[at + 1]
        elif char == "[":
            match = _CLASS.match(pattern, at)
            width = len(match.group()) if match else 1
        elif char == "(":
            if pattern.startswith("(?i", at):
                return None
            width = _group(pattern, at)
        elif char == "|":
            if len(longest := max(longest, run, key=len)) < SHORTEST:
                return None
            found.append(longest)
            longest = run = ""
            at += 1
            continue
        elif char not in ".^$":
            literal = char
        at += width
        optional = _REPEAT.match(pattern, at)
        repeated = _MORE.match(pattern, at)
        if literal and not optional:
            run += literal
        if not literal or optional or repeated:
            longest, run = max(longest, run, key=len), ""
        if repeated:
            at = repeated.end()
            if at < len(pattern) and pattern[at] == "?":  # not greedy
                at += 1
    if len(longest := max(longest, run, key=len)) < SHORTEST:
        return None
    return (*found, longest)


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
