"""YAML as plain data that knows where its parts are written, so that every error can name file, line and key.

What is read: one document of mappings, lists and scalars by the rules of YAML 1.2 (only `true` and `false`
are booleans, `010` is ten, dates and times are strings), plus aliases and the merge key `<<`. Keys are always
strings, as written. Refused, each with its place: tags, duplicate keys, several documents, files or nestings
beyond `Limits`, and aliases that expand beyond them.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from .errors import InputError
from .model import Place
from .yaml_types import Keys, explain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

T = TypeVar("T")


class Limits(Struct, frozen=True, kw_only=True):
    """What a file may be at most; far beyond what people write, far below what hurts."""

    size: int = 4 << 20
    """Bytes."""
    depth: int = 40
    nodes: int = 500_000
    """Keys and values, each alias counted with all that it stands for."""


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """Where a value is written: its key's line in a mapping, its own first line in a list, from 1."""

    line: int
    children: dict[str, Mark] | list[Mark] | None = None


class Source:
    """The content of one file.

    `data` holds dict, list, str, int, float, bool and None; aliases share objects, so do not change it.
    """

    def __init__(self, file: str, data: Any, mark: Mark, error_type: type[InputError]) -> None:
        self.file = file
        self.data = data
        self._mark = mark
        self._error_type = error_type

    def get(self, *keys: str | int) -> Any:
        """The value at a path; KeyError or IndexError when there is none."""
        found = self.data
        for key in keys:
            found = found[key]
        return found

    def place(self, *keys: str | int) -> Place:
        """Where the value at a path is written, or the nearest part around it that exists."""
        mark = self._mark
        for key in keys:
            child: Mark | None = None
            if isinstance(mark.children, dict) and isinstance(key, str):
                child = mark.children.get(key)
            elif isinstance(mark.children, list) and isinstance(key, int) and key < len(mark.children):
                child = mark.children[key]
            if child is None:
                break
            mark = child
        return Place(self.file, mark.line)

    def error(
        self, keys: Keys, message: str, *, near: tuple[str, Collection[str]] | None = None
    ) -> InputError:
        """An error to raise: `<file>:<line>: <key path>: <message>; did you mean 'x'?`

        `near` is the wrong word and the words that would have been right.
        """
        text = message + (did_you_mean(*near) if near else "")
        path = path_text(keys)
        return self._error_type(f"{path}: {text}" if path else text, self.place(*keys))

    def convert(self, keys: Keys, kind: type[T]) -> T:
        """The value at a path as a msgspec type; what does not fit is raised as an error at its key."""
        try:
            return msgspec.convert(self.get(*keys), kind)
        except msgspec.ValidationError as wrong:
            found, message, near = explain(wrong, kind, self.get(*keys))
            raise self.error((*keys, *found), message, near=near) from None


def load(path: Path, error: type[InputError] = InputError, *, limits: Limits = Limits()) -> Source:  # noqa: B008
    """Read a file. Whatever is wrong with it is raised as `error` with file and line.

    Places name the file relative to the current folder when it lies below it, else absolutely.
    """
    file = shown(path)
    try:
        # A pipe or a device would block or never end.
        if not path.is_file():
            raise error("is not a file" if path.exists() else "does not exist", Place(file, 1))
        with path.open("rb") as stream:
            raw = stream.read(limits.size + 1)
    except OSError as wrong:
        raise error(f"cannot be read: {wrong.strerror}", Place(file, 1)) from wrong
    if len(raw) > limits.size:
        raise error(f"is larger than {limits.size >> 10} KiB", Place(file, 1))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = raw.count(b"\n", 0, wrong.start) + 1
        raise error(f"is not UTF-8 (byte {raw[wrong.start]:#04x})", Place(file, line)) from None
    return loads(text, file, error, limits=limits)


def loads(
    text: str,
    file: str,
    error: type[InputError] = InputError,
    *,
    limits: Limits = Limits(),  # noqa: B008
) -> Source:
    """The same for text at hand; `file` is the name that places show."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data, mark = _Builder(file, error, limits).document(iter(yaml.parse(text, Loader=loader)))
    except yaml.YAMLError as wrong:
        raise _syntax_error(wrong, text, file, error) from None
    return Source(file, data, mark, error)


def shown(path: Path) -> str:
    """A path as messages show it."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


def did_you_mean(word: str, candidates: Collection[str]) -> str:
    """`; did you mean 'x'?` for the candidate nearest to a word, or nothing when none is near."""
    plain = {candidate.lower().replace("-", "_"): candidate for candidate in candidates}
    found = difflib.get_close_matches(str(word).lower().replace("-", "_"), plain, n=1)
    return f"; did you mean {plain[found[0]]!r}?" if found else ""


def path_text(keys: Keys) -> str:
    """`configs[2].xfail.kind`"""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            shown_key = key if key.isprintable() else repr(key)
            text += f".{shown_key}" if text else shown_key
    return text


# --- building data from parser events ---------------------------------------------------------------

_NUMBER_START = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_WORDS: dict[str, bool | float | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def plain_scalar(text: str) -> str | int | float | bool | None:
    """An unquoted scalar by YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _OCTAL_HEX.fullmatch(text):
        return int(text, 0)
    if _INFINITY.fullmatch(text):
        return float(text.replace(".", ""))
    return text


class _Anchor(Struct):
    """What an alias stands for; unfinished while its own content is being read."""

    data: Any = None
    children: dict[str, Mark] | list[Mark] | None = None
    nodes: int = 0
    finished: bool = False


class _Builder:
    """Turns the events of one document into data and marks, counting as it goes."""

    def __init__(self, file: str, error: type[InputError], limits: Limits) -> None:
        self.file = file
        self.error = error
        self.limits = limits
        self.nodes = 0
        self.anchors: dict[str, _Anchor] = {}

    def fail(self, event: Any, message: str) -> NoReturn:
        raise self.error(message, Place(self.file, event.start_mark.line + 1))

    def document(self, events: Iterator[Any]) -> tuple[Any, Mark]:
        from yaml import DocumentStartEvent, StreamEndEvent

        next(events)  # stream start
        first = next(events)
        if isinstance(first, StreamEndEvent):
            return None, Mark(1)
        start = next(events)
        data, children = self.node(start, events, 1)
        next(events)  # document end
        if isinstance(rest := next(events), DocumentStartEvent):
            self.fail(rest, "a second document (`---`); a file holds one")
        return data, Mark(start.start_mark.line + 1, children)

    def node(
        self, event: Any, events: Iterator[Any], depth: int
    ) -> tuple[Any, dict[str, Mark] | list[Mark] | None]:
        from yaml import AliasEvent, MappingStartEvent, ScalarEvent

        if isinstance(event, AliasEvent):
            return self.alias(event)
        self.count(event, 1)
        if event.tag is not None:
            self.fail(event, f"the tag {event.tag!r}; only plain data is read (quote it to make it text)")
        anchor = _Anchor() if event.anchor is not None else None
        if anchor:
            self.anchors[event.anchor] = anchor
        before = self.nodes
        data: Any
        children: dict[str, Mark] | list[Mark] | None = None
        if isinstance(event, ScalarEvent):
            data = self.scalar(event)
        elif depth >= self.limits.depth:
            self.fail(event, f"nested more than {self.limits.depth} deep")
        elif isinstance(event, MappingStartEvent):
            data, children = self.mapping(events, depth)
        else:
            data, children = self.sequence(events, depth)
        if anchor:
            anchor.data, anchor.children = data, children
            anchor.nodes, anchor.finished = self.nodes - before + 1, True
        return data, children

    def count(self, event: Any, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.limits.nodes:
            self.fail(event, f"more than {self.limits.nodes:,} values once its aliases are followed")

    def alias(self, event: Any) -> tuple[Any, dict[str, Mark] | list[Mark] | None]:
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            self.fail(
                event, f"the alias *{event.anchor} has no anchor" + did_you_mean(event.anchor, self.anchors)
            )
        if not anchor.finished:
            self.fail(event, f"the alias *{event.anchor} stands inside what it refers to")
        self.count(event, anchor.nodes)
        return anchor.data, anchor.children

    def scalar(self, event: Any) -> str | int | float | bool | None:
        if "\0" in event.value:
            self.fail(event, "a NUL character (\\0), which no flag, variable or path can hold")
        if not event.implicit[0]:
            return str(event.value)
        try:
            return plain_scalar(event.value)
        except ValueError:  # Python refuses integers of thousands of digits
            self.fail(event, "a number of too many digits")

    def sequence(self, events: Iterator[Any], depth: int) -> tuple[list[Any], list[Mark]]:
        from yaml import SequenceEndEvent

        data: list[Any] = []
        marks: list[Mark] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            value, children = self.node(event, events, depth + 1)
            data.append(value)
            marks.append(Mark(event.start_mark.line + 1, children))
        return data, marks

    def mapping(self, events: Iterator[Any], depth: int) -> tuple[dict[str, Any], dict[str, Mark]]:
        from yaml import MappingEndEvent, ScalarEvent

        data: dict[str, Any] = {}
        marks: dict[str, Mark] = {}
        merged: list[tuple[Any, Any]] = []
        while not isinstance(event := next(events), MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, ScalarEvent) or event.tag is not None or event.anchor is not None:
                self.fail(event, "a key that is not a plain word or string")
            key = str(event.value)
            if not key:
                self.fail(event, "an empty key")
            merge = key == "<<" and event.implicit[0]
            if key in data or (merge and merged):
                first = f" (first on line {marks[key].line})" if key in marks else ""
                self.fail(event, f"the key {key!r} is given twice{first}")
            self.count(event, 1)
            value, children = self.node(next(events), events, depth + 1)
            if merge:
                merged = self.merged(event, value, children)
                continue
            data[key] = value
            marks[key] = Mark(line, children)
        for values, places in merged:
            for key in values.keys() - data.keys():
                marks[key] = places[key]
            data = {**values, **data}
        return data, marks

    def merged(self, event: Any, value: Any, children: Any) -> list[tuple[Any, Any]]:
        """The mappings that `<<` brings in, the strongest first."""
        if isinstance(value, dict):
            return [(value, children)]
        if not isinstance(value, list) or not value or not all(isinstance(part, dict) for part in value):
            self.fail(event, "`<<` takes a mapping or a list of mappings")
        return [(part, mark.children) for part, mark in zip(value, children, strict=True)]


def _syntax_error(wrong: Exception, text: str, file: str, error: type[InputError]) -> InputError:
    """What the YAML parser stumbled over, in one line and with the usual causes named."""
    mark = getattr(wrong, "problem_mark", None)
    problem = getattr(wrong, "problem", None) or getattr(wrong, "reason", None) or str(wrong)
    if mark is None:
        position = getattr(wrong, "position", 0)
        character = getattr(wrong, "character", None)
        line = text.count("\n", 0, position) + 1
        shown_character = f" ({character!r})" if character is not None else ""
        return error(f"not YAML: {problem}{shown_character}", Place(file, line))
    lines = text.splitlines()
    for index in range(min(mark.line, len(lines) - 1), max(mark.line - 2, -1), -1):
        indentation = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
        if "\t" in indentation:
            return error("a tab in the indentation; YAML is indented with spaces", Place(file, index + 1))
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    hint = ""
    context = getattr(wrong, "context", None)
    if rest.startswith("\t"):
        hint = " (a tab; write spaces)"
    elif rest[:1] in tuple("%@`"):
        hint = f" (text that begins with {rest[0]!r} must be quoted)"
    elif "mapping values are not allowed" in problem:
        hint = " (text that holds ': ' must be quoted)"
    elif context and "block scalar" in context:
        hint = " (text that begins with '>' or '|' must be quoted)"
    return error(f"not YAML: {f'{context}: ' if context else ''}{problem}{hint}", Place(file, mark.line + 1))
