"""msgspec's messages about data from YAML, in the words of the file: which key, what is expected there."""

from __future__ import annotations

import re
import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection

Keys: TypeAlias = tuple[str | int, ...]
"""A path into the data: keys of mappings and indices of lists."""

_AT = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<field>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*?)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.*?)`")
_ENUM = re.compile(r"Invalid enum value (?P<value>.+)", re.DOTALL)
_TYPE = re.compile(r"Expected `(?P<wanted>.*?)`, got `(?P<got>.*?)`")
_LIMIT = re.compile(r"Expected `(?P<wanted>\w+)` (?P<limit>[<>]=? \S+)$")
_LENGTH = re.compile(r"Expected `(?P<wanted>\w+)` of length (?P<limit>[<>]=?) (?P<length>\d+)$")
_TYPE_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}

Complaint: TypeAlias = "tuple[Keys, str, tuple[str, Collection[str]] | None]"
"""The path to what is wrong, the text, and for a wrong word the words that would have been right."""


def explain(wrong: msgspec.ValidationError, kind: Any, data: Any) -> Complaint:
    """What msgspec found wrong when it converted `data` to the type `kind`."""
    text = str(wrong)
    keys: Keys = ()
    if at := _AT.search(text):
        text = text[: at.start()]
        keys, hidden = _steps(at["path"])
        if hidden and (inner := _hidden_in_mapping(keys, kind, data)):
            return inner
    if unknown := _UNKNOWN.search(text):
        word = unknown["field"]
        return (*keys, word), "unknown key", (word, _field_names(_types_at(kind, keys)))
    if missing := _MISSING.search(text):
        return keys, f"the key {missing['field']!r} is missing", None
    if enum := _ENUM.search(text):
        words = _literals(_types_at(kind, keys))
        value = enum["value"].strip("'")
        return keys, f"{value!r} is none of {', '.join(words)}", (value, words)
    text = _LIMIT.sub(lambda m: f"expected {_TYPE_WORDS.get(m['wanted'], m['wanted'])} {m['limit']}", text)
    text = _LENGTH.sub(_length_error, text)
    return keys, _TYPE.sub(_type_error, text), None


def _length_error(found: re.Match[str]) -> str:
    what = _TYPE_WORDS.get(found["wanted"], found["wanted"])
    if found["limit"] == ">=" and found["length"] == "1":
        return f"expected {what} that is not empty"
    return f"expected {what} of length {found['limit']} {found['length']}"


def _type_error(found: re.Match[str]) -> str:
    wanted = [_TYPE_WORDS.get(w, w) for w in found["wanted"].split(" | ") if w != "null"]
    got = _TYPE_WORDS.get(found["got"], found["got"])
    return f"expected {' or '.join(wanted)}, got {got}"


def _steps(path: str) -> tuple[Keys, bool]:
    """The keys of msgspec's path up to the first mapping whose key it hides, and whether there is one."""
    keys: list[str | int] = []
    for step in _STEP.finditer(path):
        if step["index"] == "...":
            return tuple(keys), True
        keys.append(step["field"] if step["field"] else int(step["index"]))
    return tuple(keys), False


def _hidden_in_mapping(keys: Keys, kind: Any, data: Any) -> Complaint | None:
    """The complaint about the value of a mapping whose key msgspec does not tell: found by trying each."""
    for key in keys:
        data = data[key]
    if not isinstance(data, dict):
        return None
    for outer in _types_at(kind, keys):
        for value_type in _inner(outer, ""):
            for key, value in data.items():
                try:
                    msgspec.convert(value, value_type)
                except msgspec.ValidationError as wrong:
                    inner, text, near = explain(wrong, value_type, value)
                    return (*keys, key, *inner), text, near
    return None


def _types_at(kind: Any, keys: Keys) -> list[Any]:
    """The types that may stand at a path below `kind`."""
    found = _alternatives(kind)
    for key in keys:
        found = [inner for outer in found for step in _inner(outer, key) for inner in _alternatives(step)]
    return found


def _alternatives(kind: Any) -> list[Any]:
    """A type without its annotations, each member of a union by itself."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _alternatives(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return [inner for part in get_args(kind) for inner in _alternatives(part)]
    return [kind]


def _inner(kind: Any, key: str | int) -> list[Any]:
    """The type of what stands under a key: a field, the values of a mapping, the items of a list."""
    if _is_struct(kind):
        return [f.type for f in msgspec.structs.fields(kind) if f.encode_name == key]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return [arguments[1]]
    if origin in (list, tuple):
        return [arguments[0]]
    return []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _field_names(kinds: list[Any]) -> list[str]:
    return [f.encode_name for kind in kinds if _is_struct(kind) for f in msgspec.structs.fields(kind)]


def _literals(kinds: list[Any]) -> list[str]:
    return [str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
