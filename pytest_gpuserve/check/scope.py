"""Which names an expression sees: a function's own, those around it, and `self.x = ...` of its class."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .package import FunctionNode

if TYPE_CHECKING:
    from .package import Module

_ATTRIBUTES, _ASSIGNED, _NODES = "_gpuserve_attributes", "_gpuserve_assigned", "_gpuserve_nodes"
_INNER = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.expr_context,
    ast.operator,
    ast.cmpop,
)

Assigned = dict[str, list[ast.expr] | None]
"""Local name -> what is assigned to it; None when one of the assignments is none that we can follow."""


class Scope:
    """A module's level, or a function in it. `bound` gives names a value from outside, such as `self`."""

    def __init__(
        self,
        module: Module,
        function: FunctionNode | None = None,
        cls: ast.ClassDef | None = None,
        parent: Scope | None = None,
        bound: dict[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.function = function
        self.cls = cls
        self.parent = parent
        self.bound = bound or {}

    def inside(self, function: FunctionNode, cls: ast.ClassDef | None = None) -> Scope:
        return Scope(self.module, function, cls or self.cls, self if self.function else None)

    def with_value(self, name: str, value: Any) -> Scope:
        return Scope(self.module, self.function, self.cls, self.parent, {**self.bound, name: value})

    @property
    def title(self) -> str:
        """`Class.function`, as people would look for it; empty at module level."""
        names = [self.cls.name] if self.cls else []
        return ".".join([*names, self.function.name]) if self.function else ".".join(names)

    @cached_property
    def parameters(self) -> frozenset[str]:
        if self.function is None:
            return frozenset()
        given = self.function.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        return frozenset(one.arg for one in every if one)

    @cached_property
    def _assigned(self) -> Assigned:
        return assignments(self.function) if self.function else {}

    def assigned(self, name: str) -> list[tuple[ast.expr, Scope]] | None:
        """What is assigned to a local name, and where that is to be read; None when we cannot tell."""
        if name in self._assigned and name not in self.parameters:
            values = self._assigned[name]
            return None if values is None else [(value, self) for value in values]
        if self.is_local(name) and (name in self._assigned or name in self.parameters):
            return None
        return self.parent.assigned(name) if self.parent else None

    def sources(self, name: str) -> list[tuple[ast.expr, Scope]]:
        """Everything ever assigned to a local name, for the question what it depends on."""
        values = self._assigned.get(name)
        if values:
            return [(value, self) for value in values]
        return self.parent.sources(name) if self.parent and name not in self.parameters else []

    def is_local(self, name: str) -> bool:
        if name in self._assigned or name in self.parameters:
            return True
        return self.parent.is_local(name) if self.parent else False

    def annotation(self, name: str) -> str:
        """The annotation of a parameter as text; empty when there is none."""
        if self.function is not None:
            given = self.function.args
            for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]:
                if one.arg == name:
                    return ast.unparse(one.annotation) if one.annotation else ""
        return self.parent.annotation(name) if self.parent else ""

    def attribute(self, node: ast.Attribute) -> tuple[ast.expr, Scope] | None:
        """What `self.x` was set to, when the class sets it in one place."""
        found = self.attributes(node)
        return found[0] if len(found) == 1 else None

    def attributes(self, node: ast.Attribute) -> list[tuple[ast.expr, Scope]]:
        if self.cls is None or not isinstance(node.value, ast.Name) or node.value.id != "self":
            return []
        return [
            (value, Scope(self.module, function, self.cls))
            for value, function in class_attributes(self.module, self.cls).get(node.attr, [])
        ]


def own_nodes(function: FunctionNode) -> list[ast.AST]:
    """All nodes of a function's body without nested functions and classes; remembered on the node."""
    known: list[ast.AST] | None = getattr(function, _NODES, None)
    if known is None:
        known = []
        pending: list[ast.AST] = list(function.body)
        while pending:
            node = pending.pop()
            known.append(node)
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    pending += [
                        one for one in value if isinstance(one, ast.AST) and not isinstance(one, _INNER)
                    ]
                elif isinstance(value, ast.AST) and not isinstance(value, _INNER):
                    pending.append(value)
        setattr(function, _NODES, known)
    return known


def assignments(function: FunctionNode) -> Assigned:
    """A function's local names and what they are set to; remembered on the node."""
    known: Assigned | None = getattr(function, _ASSIGNED, None)
    if known is None:
        known = _assignments(function)
        setattr(function, _ASSIGNED, known)
    return known


def _assignments(function: FunctionNode) -> Assigned:
    found: Assigned = {}

    def note(name: str, value: ast.expr | None) -> None:
        if value is None:
            found[name] = None
        elif (before := found.setdefault(name, [])) is not None:
            before.append(value)

    for node in own_nodes(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        note(target.id, value)
                    else:
                        for name in _names(target):
                            note(name, None)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                note(name, value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                note(name, value)
            case ast.AugAssign(target=ast.Name(id=name)):
                note(name, None)
            case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
                for name in _names(target):
                    note(name, None)
            case ast.withitem(optional_vars=target) if target is not None:
                for name in _names(target):
                    note(name, None)
            case ast.ExceptHandler(name=name) if name:
                note(name, None)
    return found


def _names(target: ast.expr) -> list[str]:
    """Names that an unpacking assigns; `x.y` and `x[y]` assign none."""
    match target:
        case ast.Name(id=name):
            return [name]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [name for part in parts for name in _names(part)]
        case ast.Starred(value=inner):
            return _names(inner)
    return []


def class_attributes(module: Module, cls: ast.ClassDef) -> dict[str, list[tuple[ast.expr, FunctionNode]]]:
    """Attribute -> what `self.attribute` is set to in the class's methods, and in which method."""
    known: dict[str, list[tuple[ast.expr, FunctionNode]]] | None = getattr(cls, _ATTRIBUTES, None)
    if known is not None:
        return known
    found: dict[str, list[tuple[ast.expr, FunctionNode]]] = {}
    for method in cls.body:
        if not isinstance(method, FunctionNode):
            continue
        for node in own_nodes(method):
            targets: list[ast.expr] = []
            value: ast.expr | None = None
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign):
                targets, value = [node.target], node.value
            for target in targets:
                if (
                    value is not None
                    and isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    found.setdefault(target.attr, []).append((value, method))
    setattr(cls, _ATTRIBUTES, found)
    return found
