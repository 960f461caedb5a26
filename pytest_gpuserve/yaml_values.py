"""How single values are written in our YAML files: durations, shares, expressions, days, environments.

Each function takes the file, the path to the value and what stands there, and raises the file's error, at
that place, when it makes no sense. The aliases are for msgspec structs that mirror a file; they carry what
editors check.
"""

from __future__ import annotations

import math
import re
import warnings
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

if TYPE_CHECKING:
    from .yaml_source import Source
    from .yaml_types import Keys

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Duration: TypeAlias = (
    Annotated[str, Meta(extra_json_schema={"pattern": r"^(\d+(\.\d+)?(ms|s|m|h))+$"})]
    | Annotated[float, Meta(extra_json_schema={"minimum": 0})]
)
"""Seconds, or `90s`, `30m`, `1h30m`."""

Share: TypeAlias = (
    Annotated[str, Meta(extra_json_schema={"pattern": r"^\d+(\.\d+)?\s*%$"})]
    | Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 1})]
)
"""`15%` or 0.15."""

Pattern: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "regex"})]
"""A regular expression of Python's, searched for, not anchored."""

Day: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date"})]
"""`2027-03-31`"""

Environment: TypeAlias = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"additionalProperties": {"type": ["string", "null"]}}),
]
"""Variable -> text."""


def duration(text: str) -> float | None:
    """`1h30m` in seconds; None for what is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def seconds(source: Source, keys: Keys, written: str | float, *, zero: bool = True) -> float:
    """A duration in seconds; `zero` says whether none at all is one."""
    if isinstance(written, str):
        found = duration(written)
        if found is None:
            raise source.error(keys, f"{written!r} is no duration; write seconds, or 90s, 30m, 1h30m")
        value = found
    else:
        value = float(written)
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        told = written if isinstance(written, str) else f"{written:g}"
        raise source.error(keys, f"a duration cannot be {told}{'' if value else ' here'}")
    return value


def share(source: Source, keys: Keys, written: str | float) -> float:
    """A part of a whole as a fraction from 0 to 1."""
    if isinstance(written, str):
        percent = _PERCENT.fullmatch(written)
        if not percent:
            raise source.error(keys, f"{written!r} is no share; write 15% or 0.15")
        value = float(percent[1]) / 100
    else:
        value = float(written)
    if not 0 <= value <= 1:
        bare = isinstance(written, int | float) and 1 < written <= 100
        hint = f"; did you mean {written:g}%?" if bare else ""
        raise source.error(keys, f"a share lies between 0 and 1 (or 0% and 100%), not {written}{hint}")
    return value


def pattern(source: Source, keys: Keys, written: str) -> str:
    """A regular expression that compiles, and whose meaning the next Python will not change."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(written)
    except FutureWarning as wrong:
        hint = f"{str(wrong)[0].lower()}{str(wrong)[1:]}; escape its characters with \\"
        raise source.error(keys, f"an ambiguous regular expression: {hint}") from None
    except RecursionError:
        raise source.error(keys, "a regular expression nested too deeply") from None
    except (re.error, OverflowError) as wrong:
        raise source.error(keys, f"not a regular expression: {wrong}") from None
    return written


def day(source: Source, keys: Keys, written: str) -> date:
    """A calendar day."""
    try:
        if not _DAY.fullmatch(written):
            raise ValueError
        return date.fromisoformat(written)
    except ValueError:
        raise source.error(keys, f"{written!r} is no day; write 2027-03-31") from None


def environment(source: Source, keys: Keys, written: dict[str, Any]) -> dict[str, str | None]:
    """Variables and their values, which must be text; None where the file has null."""
    for name, value in written.items():
        variable(source, (*keys, name), name)
        if value is not None and not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            quoted = f'; quote it: {name}: "{text}"' if isinstance(value, bool | int | float) else ""
            raise source.error((*keys, name), f"the value of a variable is text{quoted}")
    return dict(written)


def variable(source: Source, keys: Keys, name: str) -> str:
    """The name of an environment variable."""
    if not _VARIABLE.fullmatch(name):
        raise source.error(keys, f"{name!r} is no name for a variable")
    return name
