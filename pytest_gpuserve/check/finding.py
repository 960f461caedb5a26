"""What a check found: one line for people, one struct for programs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "note"]
"""error: it does not start, or not as written; warning: hardly what was meant; note: good to know."""
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Topic = Literal[
    "suite", "host", "engine", "flag", "variable", "package", "model", "gpu", "disk", "port", "dead end"
]


class Finding(Struct, frozen=True, kw_only=True):
    """Something that can be known before a start."""

    severity: Severity
    topic: Topic
    text: str
    advice: str = ""
    """What to do about it; empty when the text says it."""

    def __str__(self) -> str:
        return f"{self.text}. {self.advice}" if self.advice else self.text


def worst(findings: list[Finding]) -> Severity | None:
    """The gravest severity of all; None without any."""
    found = {one.severity for one in findings}
    return next((one for one in SEVERITIES if one in found), None)
