"""How an option travels: as an argument to functions and constructors, and through `global` names.

`set_torch_symm_mem_all_reduce(server_args.enable_torch_symm_mem)` is the last place that names that option,
and all that matters is behind it. Followed round by round, while it stays a manageable number of places.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .package import FunctionNode
from .scope import own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .package import Module
    from .readings import Readings
    from .scope import Scope

ROUNDS = 6
LIMIT = 150
"""Parameters beyond which an option (such as `tp_size`) goes everywhere, so that nothing is learned."""

Source = tuple[ast.expr, "Scope"]


class Passing:
    """Parameters and global names that hold the option in focus, with the expressions that they come from."""

    def __init__(self) -> None:
        self.parameters: dict[tuple[int, str], list[Source]] = {}
        self.globals: dict[tuple[str, str], list[Source]] = {}
        self.functions: dict[str, list[tuple[FunctionNode, str]]] = {}
        """Module -> functions and the parameter of theirs that holds the option."""
        self.complete = True
        self._seen: set[int] = set()
        self._changed: set[str] = set()

    def holds(self, function: FunctionNode | None, name: str) -> list[Source]:
        return self.parameters.get((id(function), name), []) if function else []

    def global_names(self, module: Module) -> set[str]:
        return {name for dotted, name in self.globals if dotted == module.dotted}

    def follow(self, readings: Readings) -> None:
        """Fill from the package's source."""
        pending = list(readings.paths)
        for _ in range(ROUNDS):
            self._changed = set()
            for path in pending:
                module = readings.package.module(path)
                if module is not None:
                    self._module(readings, module)
            if len(self.parameters) > LIMIT:
                changed = set(self.functions)
                self.parameters.clear()
                self.globals.clear()
                self.functions.clear()
                self.complete = False
                readings.forget(changed)
                return
            readings.forget(self._changed)
            found = [readings.package.find(dotted) for dotted in sorted(self._changed)]
            pending = [module.path for module in found if module is not None]
            if not pending:
                return

    def _module(self, readings: Readings, module: Module) -> None:
        for scope in readings.where.concerned(module):
            assert scope.function is not None
            shared = {
                name for node in scope.function.body if isinstance(node, ast.Global) for name in node.names
            }
            for node in own_nodes(scope.function):
                if isinstance(node, ast.Call):
                    self._call(readings, node, scope)
                elif isinstance(node, ast.Assign) and shared and readings.mentions(node.value, scope):
                    for target in node.targets:
                        if isinstance(target, ast.Name) and target.id in shared:
                            self._note_global(module, target.id, (node.value, scope))

    def _call(self, readings: Readings, call: ast.Call, scope: Scope) -> None:
        if id(call) in self._seen:
            return
        given = [
            (position, None, value)
            for position, value in enumerate(call.args)
            if readings.carries(value, scope, directly=True)
        ] + [
            (-1, keyword.arg, keyword.value)
            for keyword in call.keywords
            if keyword.arg and readings.carries(keyword.value, scope, directly=True)
        ]
        if not given:
            return
        self._seen.add(id(call))
        for module, function, skip in _callees(readings, call.func, scope):
            if readings.options.in_arguments(module):
                continue  # they are read there under the option's own name
            names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][skip:]
            every = {*names, *(one.arg for one in function.args.kwonlyargs)}
            for position, keyword, value in given:
                name = keyword or (names[position] if position < len(names) else None)
                if name in every and name is not None:
                    self._note(module, function, name, (value, scope))

    def _note(self, module: Module, function: FunctionNode, name: str, source: Source) -> None:
        key = (id(function), name)
        if key not in self.parameters:
            self.functions.setdefault(module.dotted, []).append((function, name))
            self._changed.add(module.dotted)
        self.parameters.setdefault(key, []).append(source)

    def _note_global(self, module: Module, name: str, source: Source) -> None:
        sources = self.globals.setdefault((module.dotted, name), [])
        if all(value is not source[0] for value, _ in sources):
            self._changed.add(module.dotted)
            sources.append(source)


def _callees(
    readings: Readings, target: ast.expr, scope: Scope
) -> Iterator[tuple[Module, FunctionNode, int]]:
    """(module, function, leading parameters that the call does not give)."""
    if not isinstance(target, ast.Name) or scope.is_local(target.id):
        return
    resolved = readings.resolve(scope.module, target.id)
    if resolved is None:
        return
    module, definition = resolved
    if isinstance(definition, FunctionNode):
        yield module, definition, 0
    elif isinstance(definition, ast.ClassDef):
        for statement in definition.body:
            if isinstance(statement, FunctionNode) and statement.name == "__init__":
                yield module, statement, 1
