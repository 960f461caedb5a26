"""Values of folded expressions, and what folding needs to know of the options."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from .package import Module

if TYPE_CHECKING:
    from .package import Definition
    from .scope import Scope


class Unknown:
    """The value of what cannot be told from the source."""

    def __repr__(self) -> str:
        return "?"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")


UNKNOWN = Unknown()


class Member(Struct, frozen=True):
    """A member of an enumeration, or a value wrapped in one. `home` is None when the class was not found."""

    value: Any
    home: tuple[Module, ast.ClassDef] | None = None

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Member) else other))

    def __hash__(self) -> int:
        return hash(self.value)


class Reader(Protocol):
    """Knows what an expression has to do with the options in question."""

    def value(self, node: ast.expr, scope: Scope) -> tuple[bool, Any]:
        """(whether the node itself reads a known option, its value)."""

    def mentions(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the option in focus plays a part in the expression."""

    def concerns(self, node: ast.expr, scope: Scope) -> bool:
        """Whether any option with an assumed value does."""

    def settled(self, scope: Scope) -> bool:
        """Whether `self.x` is what its class sets it to; an option's field has the user's value first."""

    def sources(self, name: str, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """Where else a name gets its value: arguments of calls, assignments to a `global` name."""

    def passes_on(self, call: ast.Call, scope: Scope) -> bool:
        """Whether a function is called that answers a question about the option in focus."""

    def resolve(self, module: Module, name: str) -> tuple[Module, Definition] | None: ...

    def module_scope(self, module: Module) -> Scope: ...

    def focus_key(self) -> str:
        """Names the value assumed for the option in focus."""
