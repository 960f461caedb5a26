"""Where an option is read, and which names, functions and attributes carry it further."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from .package import FunctionNode
from .passing import Passing
from .recognise import Recogniser
from .scope import Scope, class_attributes, own_nodes
from .where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .options import Options
    from .package import Definition, Module, Package
    from .recognise import Assumed, Read

_ANSWERS = (ast.Constant, ast.BoolOp, ast.Compare, ast.UnaryOp)
_PARTS = (ast.Name, ast.Attribute, ast.Subscript, ast.Compare, ast.Call)


class Sought(NamedTuple):
    """What `carries` looks for."""

    names: frozenset[str]
    directly: bool = False


class Readings:
    """Recognises reads of the option in focus and of those that are given besides."""

    def __init__(self, options: Options, focus: Assumed, given: Iterable[Assumed] = ()) -> None:
        self.options = options
        self.package: Package = options.package
        self.focus = focus
        self.passing = Passing()
        self.assumed = {one.name: one for one in (*given, focus)}
        self._recogniser = Recogniser(options, self.assumed)
        self._scopes: dict[Module, Scope] = {}
        # Remembered by identity, and with the node, so that no other one can get its identity meanwhile.
        self._mentions: dict[tuple[int, int, Sought], tuple[ast.expr, bool]] = {}
        self._carriers: dict[tuple[int, str, Sought], bool] = {}
        self.where = Where(self)
        self.passing.follow(self)

    # --- where to look ---

    @cached_property
    def carriers(self) -> dict[str, set[str]]:
        """Module -> its top-level names that pass the option on: constants and one-line functions."""
        found: dict[str, set[str]] = {}
        for path in self.where.direct:
            module = self.package.module(path)
            if module is None or self.options.in_arguments(module):
                continue
            for name, definition in module.definitions.items():
                if len(name) >= 5 and self._passes_on(definition, self.module_scope(module)):
                    found.setdefault(module.dotted, set()).add(name)
        return found

    def _passes_on(self, definition: Definition, scope: Scope) -> bool:
        """A constant that holds the option, or a function that answers a question about it."""
        if isinstance(definition, ast.expr):
            return self.carries(definition, scope)
        if not isinstance(definition, FunctionNode):
            return False
        inner = scope.inside(definition)
        nodes = list(own_nodes(definition))
        returned = [node.value for node in nodes if isinstance(node, ast.Return)]
        if len(returned) == 1 and returned[0] is not None and self.carries(returned[0], inner):
            return True
        # Several returns: plain answers alone, so that what is built from the option does not count as it.
        plain = all(value is None or isinstance(value, _ANSWERS) for value in returned)
        return (
            plain
            and len(returned) > 1
            and any(
                (isinstance(node, ast.If) and self.mentions(node.test, inner))
                or (
                    isinstance(node, ast.Return)
                    and node.value is not None
                    and self.mentions(node.value, inner)
                )
                for node in nodes
            )
        )

    def passes_on(self, call: ast.Call, scope: Scope) -> bool:
        """Whether a call asks one of the functions that answer a question about the option."""
        return (
            isinstance(call.func, ast.Name)
            and not scope.is_local(call.func.id)
            and "carriers" in self.__dict__
            and self._is_carrier(scope.module, call.func.id)
        )

    @cached_property
    def paths(self) -> list[Path]:
        """Sources that may read the option, itself or through a carrier."""
        names = {name for group in self.carriers.values() for name in group}
        passed = [
            path
            for path in (self.package.containing(names) if names else [])
            if (module := self.package.module(path)) and self._passes(module, names)
        ]
        found = {*self.where.direct, *passed, *self._passed_to()}
        return [path for path in self.package.files if path in found]

    def _passed_to(self) -> list[Path]:
        found = [self.package.find(dotted) for dotted in self.passing.functions]
        return [module.path for module in found if module is not None]

    def forget(self, changed: Iterable[str]) -> None:
        """What was remembered is outdated when more is known of how the option travels through modules."""
        self._mentions.clear()
        self._carriers.clear()
        found = (self.package.find(dotted) for dotted in changed)
        self.where.forget(module for module in found if module is not None)
        self.__dict__.pop("paths", None)

    def _passes(self, module: Module, names: Iterable[str]) -> bool:
        return any(self._is_carrier(module, name) for name in names)

    def _is_carrier(self, module: Module, name: str) -> bool:
        if name in self.carriers.get(module.dotted, ()):
            return True
        inner = module.imports[name][1] if name in module.imports else name
        if inner not in self._carrier_names or name in module.definitions:
            return False  # the common case, and no reason to parse where it comes from
        resolved = self.package.resolve(module, name)
        return resolved is not None and inner in self.carriers.get(resolved[0].dotted, ())

    @cached_property
    def _carrier_names(self) -> frozenset[str | None]:
        return frozenset(name for group in self.carriers.values() for name in group)

    # --- what a node reads ---

    def read(self, node: ast.expr, scope: Scope) -> Read | None:
        """The option that this very node reads, one that is in focus or given."""
        return self._recogniser.read(node, scope)

    @property
    def bags(self) -> frozenset[str]:
        """Accessors of groups of options, such as `get_exec`."""
        return self._recogniser.bags

    def holds_options(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an object is the engine's options, or a view of them."""
        return self._recogniser.holds_options(node, scope)

    def mentions(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the option in focus plays a part in the expression, through names that carry it as well."""
        return self._within(node, scope, Sought(frozenset((self.focus.name,))))

    def concerns(self, node: ast.expr, scope: Scope) -> bool:
        """The same for any option with an assumed value: what else is there needs no folding."""
        return self._within(node, scope, Sought(frozenset(self.assumed)))

    def carries(self, node: ast.expr, scope: Scope, *, directly: bool = False) -> bool:
        """Whether the expression's value is the option in focus, or a condition on it.

        `directly`: no other value that is chosen or computed with it, such as `1 if option else 2`.
        """
        return self._carries(node, scope, Sought(frozenset((self.focus.name,)), directly))

    def _within(self, node: ast.expr, scope: Scope, sought: Sought) -> bool:
        key = (id(node), id(scope.function), sought)
        if key not in self._mentions:
            self._mentions[key] = (
                node,
                any(
                    self._carries(part, scope, sought) for part in ast.walk(node) if isinstance(part, _PARTS)
                ),
            )
        return self._mentions[key][1]

    def _carries(self, node: ast.expr, scope: Scope, sought: Sought) -> bool:
        """Whether an expression's value is the option's, or a condition on it.

        An object that is built with the option as one argument of many is not: all that uses the object would
        count as reading the option.
        """
        found = self.read(node, scope)
        if found is not None:
            return found.name in sought.names

        def carry(*parts: ast.expr) -> bool:
            return any(self._carries(part, scope, sought) for part in parts)

        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return self._carrier(name, scope, sought)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                return self._carrier(f"self.{name}", scope, sought)
            case ast.Attribute(value=inner, ctx=ast.Load()):
                return carry(inner)
            case ast.BoolOp(values=parts):
                return carry(*parts)
            case ast.UnaryOp(operand=inner) | ast.NamedExpr(value=inner) | ast.FormattedValue(value=inner):
                return carry(inner)
            case ast.Compare(left=left, comparators=others):
                return carry(left, *others)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return carry(body, otherwise) or (not sought.directly and carry(test))
            case ast.BinOp(left=left, right=right) if not sought.directly:
                return carry(left, right)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                if len(arguments) == 1 and not keywords and not sought.directly and carry(arguments[0]):
                    return True
                return carry(function)
        return False

    def _carrier(self, name: str, scope: Scope, sought: Sought) -> bool:
        """Whether a name, or `self.name`, carries one of the options; remembered, which also ends circles."""
        owner = scope.cls if name.startswith("self.") else scope.function
        key = (id(owner or scope.module), name, sought)
        if key not in self._carriers:
            self._carriers[key] = False
            self._carriers[key] = (
                self._attribute_carries(name.removeprefix("self."), scope, sought)
                if name.startswith("self.")
                else self._name_carries(name, scope, sought)
            )
        return self._carriers[key]

    def _attribute_carries(self, name: str, scope: Scope, sought: Sought) -> bool:
        if self._in_arguments(scope) or scope.cls is None:
            return False
        return any(
            self._carries(value, Scope(scope.module, function, scope.cls), sought)
            for value, function in class_attributes(scope.module, scope.cls).get(name, ())
        )

    def _name_carries(self, name: str, scope: Scope, sought: Sought) -> bool:
        if scope.is_local(name):
            if self.focus.name in sought.names and self.passing.holds(scope.function, name):
                return True
            return any(self._carries(value, where, sought) for value, where in scope.sources(name))
        if self.focus.name in sought.names and (scope.module.dotted, name) in self.passing.globals:
            return True
        definition = scope.module.definitions.get(name)
        if isinstance(definition, ast.expr):
            return self._carries(definition, self.module_scope(scope.module), sought)
        return "carriers" in self.__dict__ and self._is_carrier(scope.module, name)

    def same_name(self, node: ast.expr, scope: Scope) -> bool:
        """An attribute of the option's name on an object that is not known to hold the options."""
        return (
            isinstance(node, ast.Attribute)
            and node.attr == self.focus.name
            and isinstance(node.ctx, ast.Load)
            and self.read(node, scope) is None
            and not scope.attributes(node)
        )

    def _in_arguments(self, scope: Scope) -> bool:
        return self.options.in_arguments(scope.module)

    # --- for Fold ---

    def sources(self, name: str, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """What a parameter, or a `global` name, holds of the option."""
        if scope.is_local(name):
            return self.passing.holds(scope.function, name)
        return self.passing.globals.get((scope.module.dotted, name), [])

    def resolve(self, module: Module, name: str) -> tuple[Module, Definition] | None:
        return self.package.resolve(module, name)

    def module_scope(self, module: Module) -> Scope:
        return self._scopes.setdefault(module, Scope(module))
