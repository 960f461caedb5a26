"""What a statement does that someone who sets an option would want to know: demand, set, warn."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG_LEVELS = {
    "warning": "warning",
    "warn": "warning",
    "error": "error",
    "critical": "error",
    "info": "info",
    "warning_once": "warning",
    "info_once": "info",
    "print_warning_once": "warning",
    "print_info_once": "info",
    "log_info_on_rank0": "info",
    "log_warning_on_rank0": "warning",
}
SETTERS = frozenset({"declare_resolution", "declare_load_time_override", "update", "override"})
"""Calls whose keywords are options that get a value."""


class Setting(Struct, frozen=True):
    """`name` (an option, an attribute, or an environment variable) gets `value`."""

    name: str
    value: str
    variable: bool = False
    on_options: bool = False
    """Set through one of the calls that are only used on options."""
    holder: ast.expr | None = None


class Message(Struct, frozen=True):
    level: str
    text: str


def settings(statement: ast.stmt) -> Iterator[Setting]:
    """Everything that a simple statement sets, in any of the shapes SGLang uses."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, ast.unparse(value))
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield from _assigned(target, ast.unparse(value))
        case ast.AugAssign(target=target, op=op, value=value):
            symbol = ast.unparse(ast.BinOp(ast.Name("a"), op, ast.Name("b")))[2:-2]
            for one in _assigned(target, ast.unparse(value)):
                yield Setting(
                    one.name, f"{one.name} {symbol} {one.value}", one.variable, one.on_options, one.holder
                )
        case ast.Return(value=ast.Dict(keys=keys, values=values)):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield Setting(key.value, ast.unparse(value), on_options=True)
        case ast.Expr(value=ast.Call() as call):
            yield from _called(call)


def _assigned(target: ast.expr, value: str) -> Iterator[Setting]:
    match target:
        case ast.Attribute(value=holder, attr=name):
            path = [name]
            while isinstance(holder, ast.Attribute):  # self.cuda_graph_config.decode.backend
                path.append(holder.attr)
                holder = holder.value
            yield Setting(".".join(reversed(path)), value, holder=target.value)
        case ast.Subscript(value=holder, slice=ast.Constant(value=str(name))):
            variable = ast.unparse(holder) in ("os.environ", "environ")
            yield Setting(name, value, variable=variable, on_options=not variable, holder=holder)
        case ast.Name(id=name):
            yield Setting(name, value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _assigned(part, value)


def _called(call: ast.Call) -> Iterator[Setting]:
    name = call_name(call)
    if name in SETTERS:
        for keyword in call.keywords:
            if keyword.arg:
                yield Setting(keyword.arg, ast.unparse(keyword.value), on_options=True)
        for argument in call.args:
            if isinstance(argument, ast.Dict):
                yield from settings(ast.Return(argument))
    match call:
        case ast.Call(func=ast.Name(id="setattr"), args=[holder, ast.Constant(value=str(key)), value]):
            yield Setting(key, ast.unparse(value), holder=holder)
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="envs"), attr=key), attr="set")
        ):
            yield Setting(key, ", ".join(ast.unparse(one) for one in call.args), variable=True)
        case ast.Call(func=ast.Attribute(attr="setdefault"), args=[ast.Constant(value=str(key)), value]):
            variable = "environ" in ast.unparse(call.func)
            yield Setting(key, ast.unparse(value), variable=variable, on_options=not variable)


def message(statement: ast.stmt) -> Message | None:
    """What a statement logs or warns of."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    level = LOG_LEVELS.get(call_name(call))
    if level is None:
        return None
    texts = [text for one in call.args if (text := spoken(one))]
    return Message(level, texts[0]) if texts else None


def declares(statement: ast.stmt) -> bool:
    """Whether a statement only registers an option with the parser."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument"))):
            return True
    return False


def call_name(call: ast.Call) -> str:
    """The last part of what is called."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def spoken(node: ast.expr | None) -> str:
    """The text of a message, its variable parts in braces; empty when it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_part(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return spoken(left) + spoken(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return spoken(left)
        case ast.Call(func=ast.Attribute(value=text, attr="format" | "join")):
            return spoken(text)
    return ""


def _part(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
    return ""


def raised(statement: ast.Raise) -> tuple[str, str]:
    """(exception's name, its text)."""
    match statement.exc:
        case ast.Call(args=arguments) as call:
            return call_name(call), next((text for one in arguments if (text := spoken(one))), "")
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name, ""
    return "", ""


def ends(body: list[ast.stmt]) -> bool:
    """Whether what follows a block is not reached once the block has run."""
    if not body:
        return False
    match body[-1]:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.If(body=then, orelse=otherwise):
            return ends(then) and ends(otherwise)
        case ast.With(body=inner):
            return ends(inner)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="sys" | "os"), attr="exit" | "_exit"))
        ):
            return True
    return False


def refuses(body: list[ast.stmt]) -> bool:
    """Whether a block ends in an error: what follows is the ordinary case, and no branch of its own."""
    return bool(body) and isinstance(body[-1], ast.Raise)


_OPPOSITE: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.Lt: ast.GtE(),
    ast.GtE: ast.Lt(),
    ast.Gt: ast.LtE(),
    ast.LtE: ast.Gt(),
}


def negated(node: ast.expr) -> ast.expr:
    """The opposite condition, written as a person would."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return inner
        case ast.Compare(left=left, ops=[operation], comparators=right):
            return ast.Compare(left, [_OPPOSITE[type(operation)]], right)
    return ast.UnaryOp(ast.Not(), node)
