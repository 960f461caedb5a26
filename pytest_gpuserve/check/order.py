"""In which order an engine comes by the functions that resolve its options."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .package import FunctionNode
from .scope import own_nodes

if TYPE_CHECKING:
    from .options import Options
    from .package import Module

Path = tuple[int, ...]
"""Lines of the calls that lead to a function, the entry's first: comparing them compares the time."""


def call_order(options: Options) -> dict[tuple[str, int], Path]:
    """(file, line of a function) -> where it is first reached from the entry. Empty without a known entry."""
    package = options.package
    for file, name in options.layout.entry:
        module = package.module(package.root / file)
        for node in ast.walk(module.tree) if module else ():
            if isinstance(node, FunctionNode) and node.name == name and module:
                found: dict[tuple[str, int], Path] = {}
                _visit(options, module, node, (), found)
                return found
    return {}


def _visit(
    options: Options, module: Module, function: FunctionNode, path: Path, found: dict[tuple[str, int], Path]
) -> None:
    key = (module.file, function.lineno)
    if key in found or not options.in_arguments(module):
        return
    found[key] = path
    calls = [node for node in own_nodes(function) if isinstance(node, ast.Call)]
    methods = _methods(module)
    for call in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
        for target in (call.func, *call.args):
            match target:
                case ast.Name(id=name):
                    resolved = options.package.resolve(module, name)
                    if resolved and isinstance(resolved[1], FunctionNode):
                        _visit(options, resolved[0], resolved[1], (*path, call.lineno), found)
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in methods:
                    _visit(options, module, methods[name], (*path, call.lineno), found)


def _methods(module: Module) -> dict[str, FunctionNode]:
    return {
        statement.name: statement
        for cls in module.classes.values()
        for statement in cls.body
        if isinstance(statement, FunctionNode)
    }
