"""What folding needs to know of the options, with one value for the option in focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fold import Fold
from .values import UNKNOWN, Member, Unknown

if TYPE_CHECKING:
    import ast

    from .package import Definition, Module
    from .readings import Readings
    from .recognise import Read
    from .scope import Scope

TRUE_WORDS, FALSE_WORDS = ("true", "1", "yes", "y"), ("false", "0", "no", "n")


class Side:
    """The readings with one value for the option in focus: the one asked about, or the default."""

    def __init__(self, readings: Readings, value: Any, *, is_set: bool) -> None:
        self.readings = readings
        self._value = value
        self._set = is_set
        self.fold = Fold(self)

    def value(self, node: ast.expr, scope: Scope) -> tuple[bool, Any]:
        found = self.readings.read(node, scope)
        if found is None:
            return False, UNKNOWN
        focused = found.name == self.readings.focus.name
        value = self._value if focused else self.readings.assumed[found.name].value
        if isinstance(value, Unknown):
            return True, UNKNOWN
        if self.readings.assumed[found.name].option.variable:
            return True, self._variable(found, value, scope, is_set=self._set or not focused)
        return True, Member(value, found.home) if found.home else value

    def _variable(self, found: Read, value: Any, scope: Scope, *, is_set: bool) -> Any:
        if found.form in ("set", "unset"):
            return is_set is (found.form == "set")
        if not is_set:
            if found.default is not None:
                return self.fold.value(found.default, scope)
            return value if found.form in ("bool", "int", "float", "str", "tuple") else None
        return convert(value, found.form)

    def mentions(self, node: ast.expr, scope: Scope) -> bool:
        return self.readings.mentions(node, scope)

    def concerns(self, node: ast.expr, scope: Scope) -> bool:
        return self.readings.concerns(node, scope)

    def settled(self, scope: Scope) -> bool:
        return not self.readings.options.in_arguments(scope.module)

    def passes_on(self, call: ast.Call, scope: Scope) -> bool:
        return self.readings.passes_on(call, scope)

    def sources(self, name: str, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        return self.readings.sources(name, scope)

    def resolve(self, module: Module, name: str) -> tuple[Module, Definition] | None:
        return self.readings.resolve(module, name)

    def module_scope(self, module: Module) -> Scope:
        return self.readings.module_scope(module)

    def focus_key(self) -> str:
        return repr(self._value)


def convert(value: Any, kind: str) -> Any:
    """A variable's text as its readers take it; UNKNOWN when they would refuse it."""
    text = str(value).strip()
    try:
        if kind == "bool":
            return True if text.lower() in TRUE_WORDS else False if text.lower() in FALSE_WORDS else UNKNOWN
        if kind in ("int", "float"):
            return int(text) if kind == "int" else float(text)
    except ValueError:
        return UNKNOWN
    return text if kind in ("text", "str") else UNKNOWN
