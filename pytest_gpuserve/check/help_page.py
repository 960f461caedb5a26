"""The page that an argparse program prints for `--help`, read back into flags: what can be given, and how."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

_ENTRY = re.compile(r"^  (-\S.*)$")
_NAME = re.compile(r"--?[A-Za-z0-9][\w.-]*")
_BRACES = re.compile(r"\{([^{}]*)\}")
_DEPRECATED = re.compile(r"(?i)^\W*(deprecated|removed)\b|\bis deprecated\b")


class Flag(Struct, frozen=True, kw_only=True):
    """One option of the program."""

    names: tuple[str, ...]
    """Without dashes, in the page's order; single letters are left out."""
    choices: tuple[str, ...] = ()
    least: int = 1
    """Values that must follow; 0 for a switch."""
    most: int | None = 1
    """Values that may follow; None: any number."""
    help: str = ""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def switch(self) -> bool:
        return self.most == 0

    @property
    def deprecated(self) -> bool:
        return bool(_DEPRECATED.search(self.help))


class Found(Struct, frozen=True, kw_only=True):
    """What argparse would make of a flag that somebody wrote."""

    kind: Literal["exact", "abbreviation", "ambiguous", "unknown"]
    flag: Flag | None = None
    name: str = ""
    """The full name that is meant."""
    candidates: tuple[str, ...] = ()
    """Of an ambiguous one."""


class Page(Struct, frozen=True, kw_only=True):
    """All flags of a program. `origin` is `help`, or `source` where they were read in the program's source."""

    flags: tuple[Flag, ...]
    origin: Literal["help", "source"] = "help"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for flag in self.flags for name in flag.names)

    def find(self, written: str) -> Found:
        """As argparse finds it, prefixes included: a name that is one is no abbreviation of longer ones."""
        matches = {name: flag for flag in self.flags for name in flag.names if name.startswith(written)}
        if written in matches:
            return Found(kind="exact", flag=matches[written], name=written)
        # argparse counts names, not flags: two names of one flag are ambiguous before Python 3.12.
        if len({flag.name for flag in matches.values()}) == 1:
            name, flag = next(iter(matches.items()))
            return Found(kind="abbreviation", flag=flag, name=name)
        if matches:
            return Found(kind="ambiguous", candidates=tuple(matches))
        return Found(kind="unknown")


def parse(text: str) -> Page:
    """The flags of a help page; none when it is no such page."""
    heads: list[tuple[str, list[str]]] = []
    for line in text.expandtabs().splitlines():
        entry = _ENTRY.match(line)
        if entry:
            head, told = _split(entry[1])
            heads.append((head, [told] if told else []))
        elif heads and line.startswith("   ") and line.strip():
            heads[-1][1].append(line.strip())
        elif line.strip() and not line.startswith(" "):
            heads.append(("", []))  # a heading; what follows it belongs to no flag yet
    # argparse breaks lines after hyphens too.
    flags = (_flag(head, " ".join(told).replace("- ", "-")) for head, told in heads if head)
    return Page(flags=tuple(flag for flag in flags if flag.names))


def _split(entry: str) -> tuple[str, str]:
    """The head of an entry and the help that begins on its line: two blanks or more set them apart."""
    head, _, told = re.sub(r"\s{2,}", "\n", entry, count=1).partition("\n")
    return head.strip(), told.strip()


def _flag(head: str, told: str) -> Flag:
    names: list[str] = []
    values = ""
    for part in _parts(head):
        name = _NAME.match(part)
        if name is None:
            continue
        if part.startswith("--"):
            names.append(name[0][2:])
        values = part[name.end() :].strip() or values
    least, most = _count(values)
    choices = _BRACES.search(values)
    return Flag(
        names=tuple(names),
        choices=tuple(choices[1].split(",")) if choices else (),
        least=least,
        most=most,
        help=told,
    )


def _parts(head: str) -> list[str]:
    """`--model-path MODEL_PATH, --model MODEL_PATH` at its commas, but not those within braces."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, letter in enumerate(head):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(head[start:position].strip())
            start = position + 1
    return [*parts, head[start:].strip()]


def _count(values: str) -> tuple[int, int | None]:
    """How many values follow: `` none, `X` one, `[X]` at most one, `X [X ...]` one or more, `[X ...]` any."""
    if not values:
        return 0, 0
    bare = _BRACES.sub("X", values)
    required = [word for word in re.sub(r"\[.*\]", "", bare).split() if word != "..."]
    optional = re.search(r"\[(.*)\]", bare)
    if optional is None:
        return len(required), None if "..." in bare else len(required)
    return len(required), None if "..." in optional[1] else len(required) + 1
