"""A place in an engine's source that has to do with an option, and the conditions of getting there."""

from __future__ import annotations

import ast
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from .scope import Scope

Kind = Literal["demand", "setting", "overridden", "warning", "read"]


class Condition(Struct, frozen=True, kw_only=True):
    """One enclosing `if`, or the opposite of one that leaves the block before."""

    code: str
    of_option: bool
    """The option plays a part in it."""
    holds: bool | None
    """Under the value asked about; None: depends on something else too."""
    telling: bool
    """It comes out differently without the flag."""
    implied: bool = False
    """The opposite of an earlier branch of the same `elif` chain."""


class Site(Struct, frozen=True, kw_only=True):
    """A place that reads the option, or that is only reached because of it."""

    kind: Kind
    file: str
    line: int
    end_line: int
    function: str
    function_line: int
    """Where the function begins; 0 at a module's level."""
    conditions: tuple[Condition, ...]
    code: str
    """The statement on one line, or the condition when it is a compound one."""
    message: str = ""
    exception: str = ""
    """Of a demand."""
    level: str = ""
    """Of a warning."""
    sets: str = ""
    """Of a setting: what gets the value."""
    value: str = ""
    fails: bool = False
    """The value asked about cannot meet the demand, whatever else is set."""
    telling: bool = True
    """It is a consequence of the value; False: it is the same without the flag."""
    in_arguments: bool = False
    """Happens while options are resolved, before any GPU is touched."""
    reached: bool = True
    """Called on the way that every configuration takes; False: for particular models and features."""
    via: tuple[str, ...] = ()
    """Calls that led there from a branch of the option: `function at file:line`."""
    node: ast.stmt | None = None


class Place(Struct, frozen=True):
    """Where the walk is: the scope, what holds there, and the calls that led there."""

    scope: Scope
    conditions: tuple[Condition, ...] = ()
    via: tuple[str, ...] = ()
    callers: tuple[int, ...] = ()

    def under(self, *more: Condition) -> Place:
        return replace(self, conditions=(*self.conditions, *more))

    @property
    def guarded(self) -> bool:
        return any(one.of_option for one in self.conditions)

    @property
    def telling(self) -> bool:
        """Whether it takes the value asked about to get there."""
        return any(one.of_option and one.telling for one in self.conditions)
