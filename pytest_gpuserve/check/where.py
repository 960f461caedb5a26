"""Which files and lines can have to do with an option at all: found by text, so that the rest need not be walked."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from .package import FunctionNode
from .scope import Scope, class_attributes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .package import Module
    from .readings import Readings

MANY_FILES = 150
"""A name in more files than this (`dtype`, `tp_size`) is mostly something else's: only what is written as a read of
options counts then."""
BEFORE = r"(?:args|\bcfg|\bview|\bresolved|\){groups})(?:\.\w+)?\.$|\bget_$|[\"']$"
"""What stands before a read: `server_args.`, `resolved_view(x).`, `get_exec().moe.`, a group under its own name."""
REACH = 48
"""Characters looked at before a name; longer names of groups are not known."""


class Where:
    """Paths and lines for one option; forgets what new carriers of the option make outdated."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._options = readings.options
        name = readings.focus.name
        self._name = re.compile(rf"\b(?:get_)?{re.escape(name)}\b")
        groups = "".join(rf"|\b{bag.removeprefix('get_')}" for bag in sorted(readings.bags))
        self._before = re.compile(BEFORE.format(groups=groups))
        found = readings.package.containing([name])
        self.common = len(found) > MANY_FILES
        self.direct = [path for path in found if not self.common or self._reads(path)]
        self._lines: dict[Module, list[int]] = {}

    def _reads(self, path: Path) -> bool:
        package = self._readings.package
        if path.relative_to(package.root).as_posix().startswith(self._options.layout.arguments):
            return True
        text = package.files[path].decode("utf-8", errors="replace")
        return any(self._is_read(text, match) for match in self._name.finditer(text))

    def _is_read(self, text: str, match: re.Match[str]) -> bool:
        """Whether a place where the name stands looks like a read of options."""
        if match[0].startswith("get_") or not self.common:
            return True
        start = match.start()
        return self._before.search(text, max(0, start - REACH), start) is not None

    def _named(self, text: str) -> list[int]:
        return lines_of(text, (m.start() for m in self._name.finditer(text) if self._is_read(text, m)))

    def forget(self, modules: Iterable[Module]) -> None:
        for module in modules:
            self._lines.pop(module, None)

    def lines(self, module: Module) -> list[int]:
        """Lines of a module in which the option is named, itself or through a name that carries it."""
        if module not in self._lines:
            self._lines[module] = sorted(self._find(module))
        return self._lines[module]

    def _find(self, module: Module) -> set[int]:
        if self._options.in_arguments(module):
            return set(lines_of(module.text, (m.start() for m in self._name.finditer(module.text))))
        passing, text = self._readings.passing, module.text
        names = passing.global_names(module)
        names |= {name for group in self._readings.carriers.values() for name in group if name in text}
        lines = {*self._named(text), *matching(text, _words(names))}
        for function, name in passing.functions.get(module.dotted, ()):
            end = function.end_lineno or function.lineno
            lines.update(n for n in matching(text, _words({name})) if function.lineno <= n <= end)
        for _ in range(2):  # what is set from a name that is itself set from the option
            lines.update(matching(text, _words(self._carried(module, sorted(lines)))))
        return lines

    def _carried(self, module: Module, lines: list[int]) -> set[str]:
        """Constants of the module and attributes of its classes that get the option on one of the lines."""
        found = {
            name
            for name, value in module.definitions.items()
            if isinstance(value, ast.expr)
            and within(value, lines)
            and self._readings.carries(value, self._readings.module_scope(module))
        }
        for cls in module.classes.values():
            if not within(cls, lines):
                continue
            for name, values in class_attributes(module, cls).items():
                if any(
                    within(value, lines) and self._readings.carries(value, Scope(module, function, cls))
                    for value, function in values
                ):
                    found.add(f"self.{name}")
        return found

    def concerned(self, module: Module) -> Iterator[Scope]:
        """Functions of a module that have one of the lines."""
        lines = self.lines(module)
        pending: list[tuple[list[ast.stmt], Scope]] = [
            (module.tree.body, self._readings.module_scope(module))
        ]
        while pending:
            body, scope = pending.pop()
            for statement in body:
                if isinstance(statement, FunctionNode) and within(statement, lines):
                    inner = scope.inside(statement)
                    yield inner
                    pending.append((statement.body, inner))
                elif isinstance(statement, ast.ClassDef) and within(statement, lines):
                    pending.append((statement.body, Scope(module, None, statement)))
                elif isinstance(statement, ast.If | ast.Try):
                    pending.append((statement.body, scope))


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    listed = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"\b(?:{listed})\b") if listed else None


def matching(text: str, pattern: re.Pattern[str] | None) -> list[int]:
    """Numbers of the lines on which a match begins, in order."""
    return lines_of(text, (match.start() for match in pattern.finditer(text))) if pattern else []


def lines_of(text: str, starts: Iterable[int]) -> list[int]:
    """Numbers of the lines of ascending positions, each once."""
    lines: list[int] = []
    line, at = 1, 0
    for start in starts:
        line += text.count("\n", at, start)
        at = start
        if not lines or lines[-1] != line:
            lines.append(line)
    return lines


def within(node: ast.expr | ast.stmt, lines: list[int]) -> bool:
    """Whether one of the sorted lines lies in the node's text."""
    at = bisect_left(lines, node.lineno)
    return at < len(lines) and lines[at] <= (node.end_lineno or node.lineno)
