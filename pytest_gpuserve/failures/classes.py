"""The classes a failure can have: what each means, what to try, and whose matter it is (`classes.yaml`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

Group = Literal[
    "hardware",
    "dependency",
    "configuration",
    "model",
    "memory",
    "communication",
    "machine",
    "running",
    "result",
]


class FailureClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"try_": "try"}):
    """What a class of failures means."""

    group: Group
    """`machine` is the state of this host at this moment, gone tomorrow: never a dead end."""
    meaning: str
    try_: str
    """What to try, in one or two sentences."""
    silent: bool = False
    """Seen only in results, never in a log."""

    @property
    def environment(self) -> bool:
        return self.group == "machine"


@cache
def classes() -> dict[str, FailureClass]:
    """Every class by name, in the order in which they are explained."""
    from ..yaml_source import load

    source = load(Path(__file__).with_suffix(".yaml"))
    return source.convert((), dict[str, FailureClass])
