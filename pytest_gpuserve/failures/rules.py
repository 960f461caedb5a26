"""What a failure looks like and what it is: rules as data, read from `rules/*.yaml` and what engines bring.

The order within a file is the order of trial, the specific before the general; an engine's file comes before
the general one. A rule looks at exceptions (type, message, frames) or at single lines:

* a rule for exceptions decides over a traceback; a `vague` one only as long as nothing explains it better;
* a rule for lines is a failure by itself, unless `alone: false`: then it only explains exceptions;
* a rule for the end of a log tells a hang, when nothing follows its line.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from importlib.resources.abc import Traversable  # noqa: TC003  (used at run time by the type checker of msgspec)
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from ..errors import InputError
from ..model import Phase
from .literals import any_of, literals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FOLDER = Path(__file__).with_suffix("")


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, rename={"cls": "class"}):
    """One rule. `pattern`, `exception`, `frame` and `phases` say when it fits; all that are given must."""

    cls: str
    where: Literal["exception", "line", "usage", "end"] = "exception"
    """`usage`: the line that ends a usage page; `end`: one of the last lines of a log that stands still."""
    pattern: str | None = None
    """Regular expression, searched in the message (all its lines) or in the line."""
    exception: tuple[str, ...] = ()
    """Names of exception types without modules, any of them. For lines: the type that the line stands for."""
    frame: str | None = None
    """Regular expression, searched in each frame of the traceback (`File "...", line 1, in f`)."""
    unless: str | None = None
    """Regular expression that must not be found in the message."""
    phases: frozenset[Phase] = frozenset()
    """Only when it fails in one of these."""
    phase: Phase | Literal["first_forward"] | None = None
    """The phase, when the log tells none."""
    sure_phase: Phase | None = None
    """The phase, whatever the log tells."""
    vague: bool = False
    """Says little: what explains it, or a clearer error elsewhere, is the better answer."""
    alone: bool = True
    """For lines: a failure by itself."""
    fatal: bool = False
    """For lines: the server is going down."""
    explains: str | None = None
    """For lines that are not `alone`: regular expression of the exceptions that they explain."""
    related: str | None = None
    """With `explains`: a group of `pattern` whose beginning must also stand in the exception's message."""
    decides: bool = False
    """For lines: about the machine, so it explains whatever else failed unclearly, before or after it."""
    flood: bool = False
    """For lines that come in thousands: only the first is looked at."""
    advice: str | None = None
    """What to try, when the class's own advice is too general."""
    source: tuple[str, ...] = ()
    """Public threads, or the source files, that the rule is taken from."""

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.pattern, re.MULTILINE) if self.pattern else None

    @cached_property
    def _unless(self) -> re.Pattern[str] | None:
        return re.compile(self.unless, re.MULTILINE) if self.unless else None

    @cached_property
    def _frame(self) -> re.Pattern[str] | None:
        return re.compile(self.frame) if self.frame else None

    @cached_property
    def _explains(self) -> re.Pattern[str] | None:
        return re.compile(self.explains) if self.explains else None

    @cached_property
    def needles(self) -> tuple[str, ...] | None:
        """Plain texts without which its pattern cannot fit; None when every text must be tried."""
        return literals(self.pattern) if self.pattern else None

    def find(self, text: str) -> re.Match[str] | None:
        """Where its pattern fits."""
        if not any_of(self.needles, text):
            return None
        if self._pattern is None or (match := self._pattern.search(text)) is None:
            return None
        return None if self._unless is not None and self._unless.search(text) else match

    def fits(self, exception: str | None, text: str, frames: Sequence[str], phase: Phase | None) -> bool:
        """Whether it fits an exception: its name as printed, its message, its frames, and the phase."""
        if self.exception and (exception or "").rpartition(".")[2] not in self.exception:
            return False
        if self.phases and phase not in self.phases:
            return False
        if self.pattern is not None:
            if self.find(text) is None:
                return False
        elif self._unless is not None and self._unless.search(text):
            return False
        return self._frame is None or any(self._frame.search(frame) for frame in frames)

    def explains_text(self, text: str) -> bool:
        return self.decides or (self._explains is not None and self._explains.search(text) is not None)


class RuleSet(Struct, frozen=True):
    """Rules in the order of trial, by what they look at."""

    exceptions: tuple[Rule, ...]
    lines: tuple[Rule, ...]
    usages: tuple[Rule, ...]
    ends: tuple[Rule, ...]

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> RuleSet:
        groups: dict[str, list[Rule]] = {"exception": [], "line": [], "usage": [], "end": []}
        for rule in rules:
            groups[rule.where].append(rule)
        return cls(*(tuple(group) for group in groups.values()))

    def __iter__(self) -> Iterator[Rule]:
        return chain(self.exceptions, self.lines, self.usages, self.ends)

    def without(self, sources: frozenset[str]) -> RuleSet:
        """The rules that take nothing from these threads."""
        return RuleSet.of(rule for rule in self if not sources & set(rule.source))


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...] = field(default_factory=tuple)


def rule_set(files: Sequence[Traversable]) -> RuleSet:
    """The rules of some files and the general ones after them. Raises InputError with file, line and key."""
    return _read((*dict.fromkeys((*files, FOLDER / "general.yaml")),))


def own_files(engine: str | None) -> tuple[Traversable, ...]:
    """The rule files that this package has for an engine; for None those of every engine."""
    if engine is not None:
        file = FOLDER / f"{engine}.yaml"
        return (file,) if file.is_file() else ()
    return tuple(file for file in sorted(FOLDER.glob("*.yaml")) if file.stem != "general")


@cache
def _read(files: tuple[Traversable, ...]) -> RuleSet:
    from ..yaml_source import loads
    from .classes import classes

    rules: list[Rule] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            told = error.strerror if isinstance(error, OSError) else "is not UTF-8"
            raise InputError(f"{file}: {told or error}") from None
        source = loads(text, str(file))
        if isinstance(source.data, list):
            raise source.error((), "a list; write it below the key `rules:`")
        read = source.convert((), _File)
        for index, rule in enumerate(read.rules):
            try:
                _ = rule._pattern, rule._unless, rule._frame, rule._explains
            except re.error as wrong:
                raise source.error(("rules", index), f"not a regular expression: {wrong}") from None
            if rule.cls not in classes():
                raise source.error(
                    ("rules", index, "class"),
                    f"{rule.cls!r} is no failure class",
                    near=(rule.cls, classes()),
                )
        rules += read.rules
    return RuleSet.of(rules)
