"""Which nodes of a syntax tree read an option or a variable, in all the ways in which SGLang does it."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .options import Option
from .package import FunctionNode, Module
from .values import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .options import Options
    from .scope import Scope

ARGUMENT_NAMES = re.compile(r"^(cfg|view|resolved|sargs|args)$|args$")
"""Names under which SGLang hands its options about."""
ARGUMENT_CALLS = re.compile(r"^_?resolv(ed|ing)_view$|^get_\w*args$|^get_(global_)?server_args$")
VARIABLE_CALLS = {"get_bool_env_var": "bool", "get_int_env_var": "int", "get_float_env_var": "float"}
"""Readers of variables that convert; every other one gives the text."""


class Assumed(Struct, frozen=True, kw_only=True):
    """An option with the value that it is assumed to have; UNKNOWN stands for any."""

    option: Option
    value: Any = UNKNOWN
    written: str | None = None
    """The value as the user wrote it."""

    @property
    def name(self) -> str:
        return self.option.name


class Read(Struct, frozen=True):
    """A node that reads an option. `form`: `plain`, or how a variable is read (`text`, `bool`, `set`)."""

    name: str
    form: str = "plain"
    default: ast.expr | None = None
    home: tuple[Module, ast.ClassDef] | None = None


class Recogniser:
    """Recognises reads of the options with an assumed value."""

    def __init__(self, options: Options, assumed: Mapping[str, Assumed]) -> None:
        self.options = options
        self.package = options.package
        self.assumed = assumed
        # Remembered by identity, and with the node, so that no other one can get its identity meanwhile.
        self._reads: dict[int, tuple[ast.expr, Read | None]] = {}

    def read(self, node: ast.expr, scope: Scope) -> Read | None:
        """The option that this very node reads."""
        rule = _RULES.get(type(node))
        if rule is None:
            return None
        if id(node) not in self._reads:
            self._reads[id(node)] = node, rule(self, node, scope)
        return self._reads[id(node)][1]

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Read | None:
        if (
            node.attr in self.assumed
            and isinstance(node.ctx, ast.Load)
            and self.holds_options(node.value, scope)
        ):
            return None if self.assumed[node.attr].option.variable else Read(node.attr)
        return None

    def holds_options(self, node: ast.expr, scope: Scope, depth: int = 4) -> bool:
        """Whether an object is the engine's options, or a view of them."""
        if depth == 0:
            return False
        match node:
            case ast.Name(id="self"):
                return self._in_arguments(scope) or (scope.cls is not None and scope.cls.name == "ServerArgs")
            case ast.Name(id=name):
                if (
                    self._in_arguments(scope)
                    or ARGUMENT_NAMES.search(name)
                    or "ServerArgs" in scope.annotation(name)
                ):
                    return True
                return any(
                    self.holds_options(value, where, depth - 1) for value, where in scope.sources(name)
                )
            case ast.Attribute(value=inner, attr=name):
                return (
                    bool(ARGUMENT_NAMES.search(name))
                    or self._is_bag(inner)
                    or any(
                        self.holds_options(value, where, depth - 1) for value, where in scope.attributes(node)
                    )
                )
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return bool(ARGUMENT_CALLS.search(name)) or name in self.bags
        return False

    def _is_bag(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return name in self.bags
        return False

    @cached_property
    def bags(self) -> frozenset[str]:
        """Accessors of groups of options, such as `get_exec`, by the groups' `_NS_PATH`."""
        pattern = re.compile(rb'_NS_PATH = "(\w+)')
        return frozenset(
            f"get_{match.decode()}"
            for path, text in self.package.files.items()
            if path.parent.name == "fields"
            for match in pattern.findall(text)
        )

    def _name(self, node: ast.Name, scope: Scope) -> Read | None:
        is_parameter = (
            node.id in self.assumed and isinstance(node.ctx, ast.Load) and node.id in scope.parameters
        )
        return Read(node.id) if is_parameter and self._in_arguments(scope) else None

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Read | None:
        match node.slice:
            case ast.Constant(value=str(name)) if name in self.assumed and isinstance(node.ctx, ast.Load):
                if self.assumed[name].option.variable:
                    return Read(name, "text") if _is_environ(node.value) else None
                return Read(name) if self._in_arguments(scope) else None
        return None

    def _compare(self, node: ast.Compare, scope: Scope) -> Read | None:
        match node:
            case ast.Compare(left=ast.Constant(value=str(name)), ops=[operation], comparators=[where]):
                if name in self.assumed and _is_environ(where):
                    return Read(name, "set" if isinstance(operation, ast.In) else "unset")
        return None

    def _call(self, node: ast.Call, scope: Scope) -> Read | None:
        function = node.func
        called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        match function, node.args:
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="envs"), attr=name)), _ if (
                name in self.assumed
            ):
                forms = {"get": self.assumed[name].option.type, "is_set": "set"}
                return Read(name, forms[called]) if called in forms else None
            case ast.Name(id="getattr"), [holder, ast.Constant(value=str(name)), *_] if name in self.assumed:
                return Read(name) if self.holds_options(holder, scope) else None
            case _, [ast.Constant(value=str(name)), *rest] if name in self.assumed:
                default = (
                    rest[0] if rest else next((k.value for k in node.keywords if k.arg == "default"), None)
                )
                if self.assumed[name].option.variable:
                    reads = "env" in ast.unparse(function).lower() and called not in ("pop", "setdefault")
                    return Read(name, VARIABLE_CALLS.get(called, "text"), default) if reads else None
                return Read(name) if called == "get" and self._in_arguments(scope) else None
            case ast.Name(id=called_name), [] if called_name.removeprefix("get_") in self.assumed:
                if called_name.startswith("get_"):
                    return Read(
                        called_name.removeprefix("get_"), home=self._returned_class(scope.module, called_name)
                    )
        return None

    def _returned_class(self, module: Module, function: str) -> tuple[Module, ast.ClassDef] | None:
        """The enumeration in which an accessor such as `get_moe_a2a_backend` hands the option out."""
        resolved = self.package.resolve(module, function)
        if resolved is None or not isinstance(resolved[1], FunctionNode) or resolved[1].returns is None:
            return None
        home = resolved[0]
        annotation = resolved[1].returns
        for _ in range(2):  # an alias such as `Backend | RegisteredBackend` is looked through once
            for part in ast.walk(annotation):
                if isinstance(part, ast.Name):
                    found = self.package.resolve(home, part.id)
                    if found and isinstance(found[1], ast.ClassDef):
                        return found[0], found[1]
                    if found and isinstance(found[1], ast.expr):
                        annotation = found[1]
        return None

    def _in_arguments(self, scope: Scope) -> bool:
        return self.options.in_arguments(scope.module)


def _is_environ(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")


_RULES: dict[type[ast.expr], Callable[..., Read | None]] = {
    ast.Attribute: Recogniser._attribute,
    ast.Name: Recogniser._name,
    ast.Subscript: Recogniser._subscript,
    ast.Compare: Recogniser._compare,
    ast.Call: Recogniser._call,
}
