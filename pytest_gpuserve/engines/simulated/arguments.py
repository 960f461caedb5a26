"""SGLang's command line from data: argparse refuses what that version refuses."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from .profile import load_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .profile import Flag

REQUIRED, DEPRECATED = "<req>", "<deprecated>"
TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}
ACTIONS: dict[str, Any] = {
    "bool": "store_true",
    "optional-bool": argparse.BooleanOptionalAction,
    "store-false": "store_false",
}


class Refused(Exception):
    """The text with which argparse would leave."""


class _Parser(argparse.ArgumentParser):
    """Raises instead of leaving, for those who only want to know."""

    def error(self, message: str) -> Any:
        raise Refused(f"{self.format_usage()}{self.prog}: error: {message}\n")


def parse(flags: str, argv: Sequence[str]) -> dict[str, Any]:
    """All fields of SGLang's `ServerArgs`, those not given with their defaults. Raises Refused.

    Abbreviations are taken as SGLang takes them, by argparse, so an ambiguous one is refused too.
    """
    parser = _Parser(prog="sglang serve")
    for flag in load_flags(flags):
        _add(parser, flag)
    found = vars(parser.parse_args(list(argv)))
    return {name: value for name, value in found.items() if value != DEPRECATED}


def defaults(flags: str) -> dict[str, Any]:
    """The fields as they are when nothing is given."""
    return {
        flag.field: flag.default for flag in load_flags(flags) if flag.default not in (REQUIRED, DEPRECATED)
    }


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    options: dict[str, Any] = {"dest": flag.field}
    if flag.default == REQUIRED:
        options["required"] = True
    elif flag.default == DEPRECATED:
        options["default"] = argparse.SUPPRESS
    else:
        options["default"] = flag.default
    if flag.kind in ACTIONS:
        parser.add_argument(*flag.names, action=ACTIONS[flag.kind], **options)
        return
    kind = flag.kind.removeprefix("list:")
    if flag.kind.startswith("list:"):
        options["nargs"] = "*" if kind.endswith("*") else "+"
    elif kind.endswith("?"):
        options["nargs"] = "?"
    kind = kind.rstrip("*?")
    options["type"] = TYPES[kind]
    if flag.choices:
        options["choices"] = [TYPES[kind](choice) for choice in flag.choices]
    parser.add_argument(*flag.names, **options)


def as_text(fields: dict[str, Any]) -> str:
    """As Python writes a dataclass: what SGLang prints as `server_args=ServerArgs(...)`."""
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def plain(value: Any) -> Any:
    """A value as JSON can carry it."""
    return json.loads(json.dumps(value, default=str))
