"""Walks a module's statements and keeps those that an option has to do with, each under its conditions."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from . import effects
from .package import FunctionNode
from .scope import Scope
from .site import Condition, Kind, Place, Site
from .where import within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .package import Module
    from .readings import Readings
    from .sides import Side

_COMMON = 8
"""Files that name a class beyond which it is used all over the engine, and says nothing of one option."""
_CALLS, _CONSTRUCTORS = 2, 5
"""Calls followed from a branch which the option decides: of helpers, and of constructors in other code."""


class Walk:
    """Finds the sites of one module after another. `known` are the names of all options."""

    def __init__(self, readings: Readings, asked: Side, without: Side, known: frozenset[str]) -> None:
        self.readings = readings
        self.asked = asked
        self.without = without
        self.known = known
        self.same_name: list[tuple[str, int]] = []
        """Attributes of that name on objects of another kind: (file, line)."""

    def module(self, module: Module) -> Iterator[Site]:
        yield from self._body(module.tree.body, Place(self.readings.module_scope(module)))

    # --- statements ---

    def _body(self, body: list[ast.stmt], place: Place) -> Iterator[Site]:
        for statement in body:
            yield from self._statement(statement, place)
            if isinstance(statement, ast.If):
                leaves = effects.ends(statement.body), effects.ends(statement.orelse)
                truth = self.asked.fold.truth(statement.test, place.scope)
                if (leaves[0] and truth is True) or (leaves[1] and truth is False):
                    return
                refuses = effects.refuses(statement.body if leaves[0] else statement.orelse)
                if leaves[0] != leaves[1] and not refuses:
                    place = place.under(self._condition(statement.test, place.scope, opposite=leaves[0]))
            elif effects.ends([statement]):
                return

    def _statement(self, statement: ast.stmt, place: Place) -> Iterator[Site]:
        match statement:
            case ast.If(test=test, body=body, orelse=otherwise):
                yield from self._reads(test, statement, place)
                yield from self._lookups(test, statement, place)
                chained = len(otherwise) == 1 and isinstance(otherwise[0], ast.If)
                for block, opposite in ((body, False), (otherwise, True)):
                    condition = self._condition(test, place.scope, opposite=opposite)
                    condition = replace(condition, implied=opposite and chained)
                    if block and condition.holds is not False:
                        yield from self._body(block, place.under(condition))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if place.via or self._concerns(statement, place.scope.module):
                    inner = place.scope.inside(statement)
                    yield from self._body(statement.body, replace(place, scope=inner))
            case ast.ClassDef():
                if self._concerns(statement, place.scope.module):
                    scope = Scope(place.scope.module, None, statement)
                    yield from self._body(statement.body, replace(place, scope=scope))
            case ast.For() | ast.AsyncFor() | ast.While():
                header = statement.test if isinstance(statement, ast.While) else statement.iter
                yield from self._reads(header, statement, place)
                yield from self._body(statement.body, place)
                yield from self._body(statement.orelse, place)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    yield from self._reads(item.context_expr, statement, place)
                yield from self._body(body, place)
            case ast.Try():
                yield from self._body(statement.body, place)
                for handler in statement.handlers:
                    caught = f"except {ast.unparse(handler.type)}" if handler.type else "except"
                    yield from self._body(handler.body, place.under(_plain(caught)))
                yield from self._body([*statement.orelse, *statement.finalbody], place)
            case ast.Match():
                yield from self._match(statement, place)
            case _:
                yield from self._simple(statement, place)

    def _match(self, statement: ast.Match, place: Place) -> Iterator[Site]:
        yield from self._reads(statement.subject, statement, place)
        for case in statement.cases:
            values = _case_values(case.pattern)
            if values is None:
                condition = _plain(f"case {ast.unparse(case.pattern)}")
            else:
                test = ast.Compare(statement.subject, [ast.In()], [ast.Tuple(values, ast.Load())])
                condition = self._condition(test, place.scope)
            if condition.holds is not False:
                yield from self._body(case.body, place.under(condition))

    def _simple(self, statement: ast.stmt, place: Place) -> Iterator[Site]:
        if effects.declares(statement):
            return
        found = [
            *self._demand(statement, place),
            *self._settings(statement, place),
            *self._warning(statement, place),
        ]
        yield from found
        expressions = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
        for expression in expressions:
            yield from self._lookups(expression, statement, place)
        if not any(site.kind != "setting" or site.in_arguments for site in found):
            for expression in expressions:
                yield from self._reads(expression, statement, place)
        limit = _CALLS if self.readings.options.in_arguments(place.scope.module) else _CONSTRUCTORS
        if place.guarded and len(place.callers) < limit:
            for expression in expressions:
                yield from self._follow(expression, place)

    # --- what a statement does ---

    def _demand(self, statement: ast.stmt, place: Place) -> Iterator[Site]:
        if isinstance(statement, ast.Assert):
            reads = self.readings.mentions(statement.test, place.scope)
            truth = self.asked.fold.truth(statement.test, place.scope)
            if (reads or place.guarded) and truth is not True:
                site = self._site("demand", statement, place)
                telling = self._differs(statement.test, place.scope) if reads else False
                yield replace(
                    site,
                    exception="AssertionError",
                    message=effects.spoken(statement.msg),
                    code=f"assert {ast.unparse(statement.test)}",
                    fails=truth is False and reads,
                    telling=site.telling or telling,
                )
        elif isinstance(statement, ast.Raise) and statement.exc is not None:
            # A text that tells the option's value is about it, whatever the condition was.
            told = self.readings.mentions(statement.exc, place.scope)
            if place.guarded or told:
                name, text = effects.raised(statement)
                site = self._site("demand", statement, place)
                yield replace(site, exception=name, message=text, telling=site.telling or not place.guarded)

    def _lookups(self, expression: ast.expr, statement: ast.stmt, place: Place) -> Iterator[Site]:
        """Tables of constants that the option's own code looks into: a KeyError for what is not there."""
        if not place.via or not place.telling or self.readings.options.in_arguments(place.scope.module):
            return
        for node in ast.walk(expression):
            match node:
                case ast.Subscript(value=ast.Name(id=name), slice=key, ctx=ast.Load()) if not isinstance(
                    key, ast.Constant
                ):
                    resolved = self.readings.resolve(place.scope.module, name)
                    if resolved is None or not isinstance(resolved[1], ast.Dict):
                        continue
                    keys = [one for one in resolved[1].keys if isinstance(one, ast.Constant)]
                    if keys and len(keys) == len(resolved[1].keys):
                        there = ", ".join(ast.unparse(one) for one in keys)
                        yield replace(
                            self._site("demand", statement, place),
                            exception="KeyError",
                            code=_line(ast.unparse(node)),
                            message=f"{name} has entries for {there} alone",
                        )

    def _settings(self, statement: ast.stmt, place: Place) -> Iterator[Site]:
        focus = self.readings.focus.option
        in_arguments = self.readings.options.in_arguments(place.scope.module)
        if place.scope.function is None and place.scope.cls is not None:
            return  # a declaration
        for one in effects.settings(statement):
            holds = one.holder is None or self.readings.holds_options(one.holder, place.scope)
            if one.name == focus.name and one.variable == focus.variable:
                # A plain name in other code is a local variable, which carries the option.
                set_here = one.variable or (holds and (in_arguments or one.holder is not None))
                if set_here and re.split(r"[.\s]", one.value)[-1] != focus.name:
                    site = self._site("overridden", statement, place)
                    yield replace(site, sets=one.name, value=one.value)
                continue
            if not place.guarded and not self._value_reads(statement, place):
                continue
            # While options are resolved a local name that is an option's holds its new value.
            own = one.on_options or in_arguments or (one.holder is not None and holds)
            of_options = own and one.name.partition(".")[0] in self.known
            attribute = in_arguments and (one.holder is not None or one.on_options)
            if one.variable or of_options or attribute:
                yield replace(self._site("setting", statement, place), sets=one.name, value=one.value)

    def _value_reads(self, statement: ast.stmt, place: Place) -> bool:
        value = getattr(statement, "value", None)
        return isinstance(value, ast.expr) and self.readings.mentions(value, place.scope)

    def _warning(self, statement: ast.stmt, place: Place) -> Iterator[Site]:
        told = effects.message(statement)
        if told is not None and place.guarded:
            yield replace(self._site("warning", statement, place), level=told.level, message=told.text)

    def _reads(self, expression: ast.expr, statement: ast.stmt, place: Place) -> Iterator[Site]:
        own = False
        for node in ast.walk(expression):
            if not isinstance(node, ast.expr):
                continue
            found = self.readings.read(node, place.scope)
            own = own or (found is not None and found.name == self.readings.focus.name)
            if self.readings.same_name(node, place.scope):
                self.same_name.append((place.scope.module.file, node.lineno))
        if own or self.readings.mentions(expression, place.scope):
            header = isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Match)
            code = ast.unparse(expression) if header else ast.unparse(statement)
            site = self._site("read", statement, place)
            yield replace(
                site,
                code=_line(f"{type(statement).__name__.lower()} {code}" if header else code),
                end_line=expression.end_lineno or site.end_line if header else site.end_line,
                telling=self._differs(expression, place.scope),
            )

    # --- calls out of a branch of the option ---

    def _follow(self, expression: ast.expr, place: Place) -> Iterator[Site]:
        for call in ast.walk(expression):
            if not isinstance(call, ast.Call) or effects.call_name(call) in effects.SETTERS:
                continue
            given = (*call.args, *(word.value for word in call.keywords))
            handed = any(self.readings.carries(one, place.scope, directly=True) for one in given)
            for target in (call.func, *call.args):
                for module, function, cls in self._callees(target, place, handed=handed):
                    if id(function) in place.callers:
                        continue
                    scope = self.readings.module_scope(module).inside(function, cls)
                    where = f"{scope.title} at {place.scope.module.file}:{call.lineno}"
                    inner = replace(
                        place, scope=scope, via=(*place.via, where), callers=(*place.callers, id(function))
                    )
                    for site in self._body(function.body, inner):
                        if site.kind in ("demand", "warning") or (site.in_arguments and site.kind != "read"):
                            yield site

    def _callees(
        self, target: ast.expr, place: Place, *, handed: bool
    ) -> Iterator[tuple[Module, FunctionNode, ast.ClassDef | None]]:
        """Where a call leads: while options are resolved anywhere. In other code only where the value asked about
        leads there and the default does not, into constructors and functions that are `handed` the option."""
        scope = place.scope
        anywhere = self.readings.options.in_arguments(scope.module)
        if not anywhere and not place.telling:
            return
        match target:
            case ast.Name(id=name) if not scope.is_local(name):
                resolved = self.readings.resolve(scope.module, name)
                if resolved and isinstance(resolved[1], ast.ClassDef):
                    if not self.readings.package.is_common(name, _COMMON):
                        yield from self._method(resolved[0], resolved[1], "__init__")
                elif resolved and isinstance(resolved[1], FunctionNode) and (anywhere or handed):
                    module, function = resolved[0], resolved[1]
                    # Out of the resolution of options nothing leads back into it, and the other way round.
                    same = self.readings.options.in_arguments(module) is anywhere
                    yield from [(module, function, None)] if same else ()
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if anywhere and scope.cls is not None:
                yield from self._method(scope.module, scope.cls, name)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if scope.cls is not None:
                yield from self._inherited(scope.module, scope.cls, name)

    def _method(
        self, module: Module, cls: ast.ClassDef, name: str
    ) -> Iterator[tuple[Module, FunctionNode, ast.ClassDef | None]]:
        for statement in cls.body:
            if isinstance(statement, FunctionNode) and statement.name == name:
                yield module, statement, cls
                return
        yield from self._inherited(module, cls, name)

    def _inherited(
        self, module: Module, cls: ast.ClassDef, name: str
    ) -> Iterator[tuple[Module, FunctionNode, ast.ClassDef | None]]:
        for base in cls.bases:
            resolved = self.readings.resolve(module, base.id) if isinstance(base, ast.Name) else None
            if resolved and isinstance(resolved[1], ast.ClassDef) and resolved[1] is not cls:
                yield from self._method(resolved[0], resolved[1], name)

    # --- parts ---

    def _concerns(self, node: FunctionNode | ast.ClassDef, module: Module) -> bool:
        """Whether a definition's text has any of the words at all: most have not, and are not walked."""
        return within(node, self.readings.where.lines(module))

    def _condition(self, test: ast.expr, scope: Scope, *, opposite: bool = False) -> Condition:
        of_option = self.readings.mentions(test, scope)
        truth = self.asked.fold.truth(test, scope)
        return Condition(
            code=_line(ast.unparse(effects.negated(test) if opposite else test)),
            of_option=of_option,
            holds=truth if truth is None or not opposite else not truth,
            telling=of_option and self._differs(test, scope),
        )

    def _differs(self, test: ast.expr, scope: Scope) -> bool:
        return self.asked.fold.key(test, scope) != self.without.fold.key(test, scope)

    def _site(self, kind: Kind, statement: ast.stmt, place: Place) -> Site:
        own = [one for one in place.conditions if one.of_option]
        return Site(
            kind=kind,
            file=place.scope.module.file,
            line=statement.lineno,
            end_line=statement.end_lineno or statement.lineno,
            function=place.scope.title,
            function_line=place.scope.function.lineno if place.scope.function else 0,
            conditions=place.conditions,
            code=_line(ast.unparse(statement)),
            telling=any(one.telling for one in own) or (not own and kind in ("overridden", "setting")),
            in_arguments=self.readings.options.in_arguments(place.scope.module),
            via=place.via,
            node=statement,
        )


def _plain(code: str) -> Condition:
    return Condition(code=code, of_option=False, holds=None, telling=False)


def _line(code: str) -> str:
    return " ".join(code.split())


def _case_values(pattern: ast.pattern) -> list[ast.expr] | None:
    """The constants that a `case` compares with; None for a pattern of another kind."""
    match pattern:
        case ast.MatchValue(value=value):
            return [value]
        case ast.MatchOr(patterns=patterns):
            every = [_case_values(one) for one in patterns]
            return None if any(one is None for one in every) else [v for one in every for v in one or []]
    return None
