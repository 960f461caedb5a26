"""What an expression comes to when some options are known: a value, or UNKNOWN. Python's rules, three-valued.

`Fold` also gives a *key*: equal keys under two assumptions mean that the assumption makes no difference.
"""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from .values import UNKNOWN, Member, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from .package import Module
    from .scope import Scope
    from .values import Reader


COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,  # with None, True, False or a member: equality says the same
    ast.IsNot: operator.ne,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
}
STRING_METHODS = frozenset({"lower", "upper", "strip", "startswith", "endswith", "split", "replace"})
CONTAINERS: dict[str, Callable[[Any], Any]] = {"frozenset": list, "set": list, "tuple": list, "list": list}
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "str": str,
    "float": float,
    "len": len,
}
_DEPTH = 12
_FELL_THROUGH = object()


class Fold:
    """Folds expressions for one set of assumptions."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._locals: dict[tuple[int, str], Any] = {}

    def value(self, node: ast.expr, scope: Scope, depth: int = _DEPTH) -> Any:
        """The value of an expression, UNKNOWN where the source does not tell. Never raises."""
        if depth == 0:
            return UNKNOWN
        known, value = self.reader.value(node, scope)
        if known:
            return value
        rule = _RULES.get(type(node))
        try:
            return rule(self, node, scope, depth - 1) if rule else UNKNOWN
        except (TypeError, ValueError, AttributeError, ZeroDivisionError, IndexError, KeyError):
            return UNKNOWN

    def truth(self, node: ast.expr, scope: Scope) -> bool | None:
        """Whether a condition holds; None when that depends on something else."""
        if not isinstance(node, ast.Constant) and not self.reader.concerns(node, scope):
            return None
        value = self.value(node, scope)
        if isinstance(value, Unknown):
            return None
        return bool(value.value if isinstance(value, Member) else value)

    def key(self, node: ast.expr, scope: Scope) -> str:
        """What remains of a condition once the options are put in."""
        if (truth := self.truth(node, scope)) is not None:
            return str(truth)
        if isinstance(node, ast.BoolOp):
            neutral = str(isinstance(node.op, ast.And))
            parts = [key for part in node.values if (key := self.key(part, scope)) != neutral]
            return f"({type(node.op).__name__} {' '.join(parts)})" if len(parts) > 1 else parts[0]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(Not {self.key(node.operand, scope)})"
        value = f" with {self.reader.focus_key()}" if self.reader.mentions(node, scope) else ""
        return f"[{ast.unparse(node)}{value}]"

    # --- one rule for each kind of expression ---

    def _constant(self, node: ast.Constant, scope: Scope, depth: int) -> Any:
        return node.value

    def _name(self, node: ast.Name, scope: Scope, depth: int) -> Any:
        if node.id in scope.bound:
            return scope.bound[node.id]
        if scope.is_local(node.id) or self.reader.sources(node.id, scope):
            return self._local(node.id, scope, depth)
        resolved = self.reader.resolve(scope.module, node.id)
        if resolved is None:
            return UNKNOWN
        module, expression = resolved
        if not isinstance(expression, ast.expr):
            return UNKNOWN
        return self.value(expression, self.reader.module_scope(module), depth)

    def _local(self, name: str, scope: Scope, depth: int) -> Any:
        """A local name has a value when all that is assigned to it comes to the same."""
        key = (id(scope.function if scope.is_local(name) else scope.module), name)
        if key not in self._locals:
            self._locals[key] = UNKNOWN  # what depends on itself
            sources = scope.assigned(name) or self.reader.sources(name, scope)
            values = [self.value(value, where, depth) for value, where in sources]
            if values and all(_same(values[0], value) for value in values):
                self._locals[key] = values[0]
        return self._locals[key]

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Any:
        home = self._class(node.value, scope)
        if home is not None:
            return self._member(home, node.attr, depth)
        base = self.value(node.value, scope, depth)
        if isinstance(base, Member) and node.attr == "value":
            return base.value
        found = scope.attribute(node)
        if found is not None and self.reader.settled(scope):
            expression, where = found
            return self.value(expression, where, depth)
        return UNKNOWN

    def _class(self, node: ast.expr, scope: Scope) -> tuple[Module, ast.ClassDef] | None:
        if not isinstance(node, ast.Name) or scope.is_local(node.id):
            return None
        resolved = self.reader.resolve(scope.module, node.id)
        if resolved is None or not isinstance(resolved[1], ast.ClassDef):
            return None
        return resolved[0], resolved[1]

    def _member(self, home: tuple[Module, ast.ClassDef], name: str, depth: int) -> Any:
        module, definition = home
        for statement in definition.body:
            if isinstance(statement, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in statement.targets
            ):
                value = self.value(statement.value, self.reader.module_scope(module), depth)
                if _is_call(statement.value, "auto"):
                    value = name
                return value if isinstance(value, Unknown) else Member(value, home)
        return UNKNOWN

    def _compare(self, node: ast.Compare, scope: Scope, depth: int) -> Any:
        left = self.value(node.left, scope, depth)
        result: Any = True
        for operation, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope, depth)
            if isinstance(operation, ast.In | ast.NotIn):
                single = _contains(right, left)
                if isinstance(operation, ast.NotIn) and not isinstance(single, Unknown):
                    single = not single
            elif isinstance(left, Unknown) or isinstance(right, Unknown):
                single = UNKNOWN
            else:
                single = COMPARE[type(operation)](left, right)
            if isinstance(single, Unknown):
                result = UNKNOWN
            elif not single:
                return False
            left = right
        return result

    def _boolean(self, node: ast.BoolOp, scope: Scope, depth: int) -> Any:
        decisive = isinstance(node.op, ast.Or)
        unknown = False
        value: Any = UNKNOWN
        for part in node.values:
            value = self.value(part, scope, depth)
            if isinstance(value, Unknown):
                unknown = True
            elif bool(value) is decisive:
                # An unknown part before it decides what the value is, but not its truth.
                return decisive if unknown else value
        return UNKNOWN if unknown else value

    def _unary(self, node: ast.UnaryOp, scope: Scope, depth: int) -> Any:
        value = self.value(node.operand, scope, depth)
        if isinstance(value, Unknown):
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) else UNKNOWN

    def _conditional(self, node: ast.IfExp, scope: Scope, depth: int) -> Any:
        truth = self.value(node.test, scope, depth)
        if isinstance(truth, Unknown):
            values = [self.value(part, scope, depth) for part in (node.body, node.orelse)]
            return values[0] if _same(*values) else UNKNOWN
        return self.value(node.body if truth else node.orelse, scope, depth)

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope, depth: int) -> Any:
        found: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = self.value(element.value, scope, depth)
                found += inner if isinstance(inner, list) else [UNKNOWN]
            else:
                found.append(self.value(element, scope, depth))
        return found

    def _arithmetic(self, node: ast.BinOp, scope: Scope, depth: int) -> Any:
        left, right = (self.value(part, scope, depth) for part in (node.left, node.right))
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return UNKNOWN
        if isinstance(left, list) and isinstance(right, list):
            return left + right if isinstance(node.op, ast.Add | ast.BitOr) else UNKNOWN
        return ARITHMETIC[type(node.op)](left, right)

    def _walrus(self, node: ast.NamedExpr, scope: Scope, depth: int) -> Any:
        return self.value(node.value, scope, depth)

    def _call(self, node: ast.Call, scope: Scope, depth: int) -> Any:
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func, scope, depth)
        if not isinstance(node.func, ast.Name):
            return UNKNOWN
        if self.reader.passes_on(node, scope):
            return self._returned(scope.module, node.func.id, depth)
        if node.keywords:
            return UNKNOWN
        name, arguments = node.func.id, [self.value(one, scope, depth) for one in node.args]
        if name in CONTAINERS and len(arguments) == 1 and isinstance(arguments[0], list):
            return arguments[0]
        if name in CONVERSIONS and len(arguments) == 1 and not isinstance(arguments[0], Unknown):
            return CONVERSIONS[name](arguments[0])
        home = self._class(node.func, scope)
        if home is not None:
            return self._wrap(home, arguments)
        return UNKNOWN

    def _method(self, node: ast.Call, function: ast.Attribute, scope: Scope, depth: int) -> Any:
        home = self._class(function.value, scope)
        if home is not None and function.attr.startswith("from_") and len(node.args) == 1:
            return self._wrap(home, [self.value(node.args[0], scope, depth)])
        base = self.value(function.value, scope, depth)
        if isinstance(base, str) and function.attr in STRING_METHODS:
            arguments = [self.value(one, scope, depth) for one in node.args]
            if any(isinstance(one, Unknown) for one in arguments):
                return UNKNOWN
            return getattr(base, function.attr)(*arguments)
        if isinstance(base, Member) and base.home is not None:
            return self._answer(base, base.home, function.attr, depth)
        return UNKNOWN

    def _wrap(self, home: tuple[Module, ast.ClassDef], arguments: list[Any]) -> Any:
        """`Backend(option)` and `Backend.from_string(option)`: the member of that value, or of that name."""
        if len(arguments) != 1 or isinstance(arguments[0], Unknown | list):
            return UNKNOWN
        value = arguments[0].value if isinstance(arguments[0], Member) else arguments[0]
        if isinstance(value, str) and value.upper() == value.upper().strip():
            named = self._member(home, value.upper().replace("-", "_"), _DEPTH)
            if isinstance(named, Member):
                return named
        return Member(value, home)

    def _answer(self, base: Member, home: tuple[Module, ast.ClassDef], method: str, depth: int) -> Any:
        """What `backend.is_x()` returns: the method's single `return`, with `self` put in."""
        module, definition = home
        for statement in definition.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == method and statement.args.args:
                returned = single_return(statement)
                if returned is None:
                    return UNKNOWN
                inner = self.reader.module_scope(module).with_value(statement.args.args[0].arg, base)
                return self.value(returned, inner, depth)
        return UNKNOWN

    def _returned(self, module: Module, name: str, depth: int) -> Any:
        resolved = self.reader.resolve(module, name)
        if resolved is None or not isinstance(resolved[1], ast.FunctionDef):
            return UNKNOWN
        scope = self.reader.module_scope(resolved[0]).inside(resolved[1])
        value = self._run(resolved[1].body, scope, depth)
        return None if value is _FELL_THROUGH else value

    def _run(self, body: list[ast.stmt], scope: Scope, depth: int) -> Any:
        """What a predicate returns, as far as its `if`s can be told."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return self.value(statement.value, scope, depth) if statement.value else None
            if isinstance(statement, ast.If):
                truth = self.truth(statement.test, scope)
                if truth is None:
                    return UNKNOWN
                value = self._run(statement.body if truth else statement.orelse, scope, depth)
                if value is not _FELL_THROUGH:
                    return value
            elif not isinstance(statement, ast.Expr | ast.Import | ast.ImportFrom | ast.Global | ast.Assign):
                return UNKNOWN
        return _FELL_THROUGH


def single_return(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """The expression a function returns, when its body is nothing but that (and a docstring)."""
    body = [
        one
        for one in function.body
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        and not isinstance(one, ast.Import | ast.ImportFrom | ast.Global)
    ]
    if len(body) == 1 and isinstance(body[0], ast.Return):
        return body[0].value
    return None


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _same(left: Any, right: Any) -> bool:
    return not isinstance(left, Unknown) and not isinstance(right, Unknown) and bool(left == right)


def _contains(container: Any, item: Any) -> Any:
    if isinstance(container, Unknown) or isinstance(item, Unknown):
        return UNKNOWN
    if isinstance(container, list):
        if any(_same(element, item) for element in container):
            return True
        return UNKNOWN if any(isinstance(element, Unknown) for element in container) else False
    return item in container


_RULES: dict[type[ast.expr], Callable[..., Any]] = {
    ast.Constant: Fold._constant,
    ast.Name: Fold._name,
    ast.Attribute: Fold._attribute,
    ast.Compare: Fold._compare,
    ast.BoolOp: Fold._boolean,
    ast.UnaryOp: Fold._unary,
    ast.IfExp: Fold._conditional,
    ast.List: Fold._sequence,
    ast.Tuple: Fold._sequence,
    ast.Set: Fold._sequence,
    ast.BinOp: Fold._arithmetic,
    ast.NamedExpr: Fold._walrus,
    ast.Call: Fold._call,
}
