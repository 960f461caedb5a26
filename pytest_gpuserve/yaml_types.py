"""msgspec's messages about data from YAML, told in the words of the file: which key, what is expected."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

    import msgspec

Keys: TypeAlias = tuple[str | int, ...]
"""A path into the data: keys of mappings and indices of lists."""


_AT = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<field>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*?)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.*?)`")
_ENUM = re.compile(r"Invalid enum value (?P<value>.+)", re.DOTALL)
_TYPE = re.compile(r"Expected `(?P<wanted>.*?)`, got `(?P<got>.*?)`")
_LIMIT = re.compile(r"Expected `(?P<wanted>\w+)` (?P<limit>[<>]=? \S+)$")
_TYPE_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "date": "a date such as 2027-03-31",
}


def explain(
    wrong: msgspec.ValidationError, kind: Any
) -> tuple[Keys, str, tuple[str, Collection[str]] | None]:
    """What a conversion to `kind` found wrong: the path to it, the text, and for a wrong word those right."""
    message = str(wrong)
    at = _AT.search(message)
    keys = _steps(at["path"]) if at else ()
    text = message[: at.start()] if at else message
    if unknown := _UNKNOWN.search(text):
        word = unknown["field"]
        return (*keys, word), "unknown key", (word, _fields(_type_at(kind, keys)))
    if missing := _MISSING.search(text):
        return keys, f"the key {missing['field']!r} is missing", None
    if enum := _ENUM.search(text):
        words = _choices(_type_at(kind, keys))
        value = enum["value"].strip("'")
        return keys, f"{value!r} is none of {', '.join(words)}", (value, words)
    text = _LIMIT.sub(lambda m: f"expected {_TYPE_WORDS.get(m['wanted'], m['wanted'])} {m['limit']}", text)
    return keys, _TYPE.sub(_type_error, text), None


def _type_error(found: re.Match[str]) -> str:
    wanted = [_TYPE_WORDS.get(w, w) for w in found["wanted"].split(" | ") if w != "null"]
    got = _TYPE_WORDS.get(found["got"], found["got"])
    return f"expected {' or '.join(wanted)}, got {got}"


def _steps(path: str) -> Keys:
    keys: list[str | int] = []
    for step in _STEP.finditer(path):
        if step["index"] == "...":  # msgspec does not say which key of a mapping
            break
        keys.append(step["field"] if step["field"] else int(step["index"]))
    return tuple(keys)


def _type_at(kind: Any, keys: Keys) -> list[Any]:
    """The msgspec.inspect types that may stand at a path."""
    from msgspec import inspect

    found: list[Any] = _alternatives(inspect.type_info(kind))
    for key in keys:
        found = [
            inner
            for outer in found
            for step in _inner(outer, key)
            for inner in _alternatives(step)
        ]  # fmt: skip
    return found


def _alternatives(kind: Any) -> list[Any]:
    from msgspec import inspect

    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [inner for part in kind.types for inner in _alternatives(part)]
    return [kind]


def _inner(kind: Any, key: str | int) -> list[Any]:
    from msgspec import inspect

    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == key]
    if isinstance(kind, inspect.DictType):
        return [kind.value_type]
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return [kind.item_type]
    return []


def _fields(kinds: list[Any]) -> list[str]:
    return [field.encode_name for kind in kinds for field in getattr(kind, "fields", ())]


def _choices(kinds: list[Any]) -> list[str]:
    return [str(value) for kind in kinds for value in getattr(kind, "values", ())]
