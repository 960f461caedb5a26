"""Plain data as YAML that `yaml_source` reads back to the same: few styles, a value a line, good in a diff.

PyYAML's dumper quotes by YAML 1.1, so `1e5` or `0o17` as text would come back as numbers under 1.2.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9_./+]([A-Za-z0-9_./@+,;()%' -]*[A-Za-z0-9_./@+)%-])?")
"""What needs no quotes outside of brackets, unless it reads as something other than text."""

INDENT = "  "


class Flow:
    """A mapping or list to be written on one line."""

    def __init__(self, content: Any) -> None:
        self.content = content


def dump(data: dict[str, Any]) -> str:
    """A document of nested mappings and lists; keys in the order in which they come."""
    return "".join(line + "\n" for line in _block(data, ""))


def _block(data: Any, indent: str) -> list[str]:
    if isinstance(data, dict):
        lines: list[str] = []
        for key, value in data.items():
            if isinstance(value, dict | list) and value:
                lines += [f"{indent}{scalar(key)}:", *_block(value, indent + INDENT)]
            else:
                lines.append(f"{indent}{scalar(key)}: {line(value)}")
        return lines
    return [f"{indent}- {line(value)}" for value in data]


def line(value: Any) -> str:
    """What follows a key or a dash."""
    return flow(value) if isinstance(value, Flow | dict | list | tuple) else scalar(value)


def flow(value: Any) -> str:
    """A value inside brackets, where commas part things."""
    if isinstance(value, Flow):
        return flow(value.content)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    text = scalar(value)
    return _quoted(text) if "," in text and not text.startswith('"') else text


def scalar(value: str | int | float | bool | None) -> str:
    """A single value; text is quoted where it would be read as anything else."""
    from ..yaml_source import plain_scalar

    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not value.startswith("...") and plain_scalar(value) == value:
        return value
    return _quoted(value)


def _quoted(text: str) -> str:
    """JSON's quotes are YAML's double quotes, except for characters that YAML wants escaped."""
    body = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in body)
