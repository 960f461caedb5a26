"""A config's `args` as command-line flags, the same for every engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import SuiteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..model import Config


def render(args: Mapping[str, Any]) -> tuple[str, ...]:
    """`{"tp-size": 8, "trust-remote-code": True}` -> `("--tp-size", "8", "--trust-remote-code")`.

    True is the bare flag; False and None leave it out; a list is several values after one flag; a mapping
    is JSON. A value that begins with a dash is joined with `=`, because argparse takes it for another flag.
    """
    flags: list[str] = []
    for key, value in args.items():
        flag = f"--{key}"
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, list):
            flags += [flag, *(_word(item) for item in value)]
        elif (word := _word(value)).startswith("-") and not isinstance(value, int | float):
            flags.append(f"{flag}={word}")
        else:
            flags += [flag, word]
    return tuple(flags)


def _word(value: Any) -> str:
    if isinstance(value, bool | dict | list):
        return json.dumps(value)
    return str(value)


def refuse(config: Config, reserved: Mapping[str, str]) -> None:
    """Raise SuiteError when the config sets a flag that is ours; `reserved` says what to do instead."""
    for key in given(config):
        if key in reserved:
            raise SuiteError(
                f"config {config.id!r}: the flag `{key}` is set by gpuserve; {reserved[key]}", config.place
            )


def given(config: Config) -> Iterable[str]:
    """Every flag that a config sets, without its dashes."""
    yield from config.args
    for word in config.extra_args:
        if word.startswith("--"):
            yield word[2:].partition("=")[0]
