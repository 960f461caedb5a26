"""Engines by name: our own, and those of the entry point group `pytest_gpuserve.engines`."""

from __future__ import annotations

import difflib
import re
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..model import PHASES
from .base import Engine

if TYPE_CHECKING:
    from ..model import Place

GROUP = "pytest_gpuserve.engines"

OWN = {
    "llamacpp": "pytest_gpuserve.engines.llamacpp:LlamaCpp",
    "openai": "pytest_gpuserve.engines.openai:OpenAI",
    "sglang": "pytest_gpuserve.engines.sglang:SGLang",
    "vllm": "pytest_gpuserve.engines.vllm:VLLM",
}
"""Not entry points of this package, so that they are found in a source tree on PYTHONPATH as well."""


def names() -> tuple[str, ...]:
    """All that are registered, in alphabetical order; none is imported."""
    return tuple(sorted(_points()))


def find(name: str, place: Place | None = None) -> Engine:
    """The engine of that name. InputError, at `place`, for an unknown one, one that cannot be loaded and one
    that lacks something of the protocol: nobody is to learn that from the end of a long start.
    """
    point = _points().get(name)
    if point is None:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names()) or 'none'}"
        raise InputError(f"unknown engine {name!r}; {hint}", place)
    try:
        found: Engine = point.load()()
        wrong = _wrong(found)
    except Exception as error:
        # Somebody else's code: whatever it raises, the user must learn whose it is.
        raise InputError(
            f"the engine {name!r} of {_owner(point)} cannot be loaded: {error!r}", place
        ) from error
    if wrong:
        raise InputError(f"the engine {name!r} of {_owner(point)} cannot be used: {wrong}", place)
    return found


def interpreter(text: str, *, option: str) -> tuple[str, str]:
    """`[ENGINE=]PYTHON`: whose interpreter, SGLang's without a name, and which. A path may hold an equals sign.

    Raises InputError, in the words of `option`, for an engine that is not registered, and where no interpreter is
    named.
    """
    name, equals, python = text.partition("=")
    if not equals or "/" in name:
        name, python = "sglang", text
    if name not in names():
        raise InputError(f"{option} {text!r}: no engine {name!r}; there are: {', '.join(names())}")
    if not python:
        raise InputError(f"{option} {text!r}: names no interpreter")
    return name, python


def _wrong(found: Any) -> str | None:
    """What an engine lacks of the protocol, or has and cannot be used; None: nothing that can be seen
    before a start.
    """
    made_of = f"{type(found).__module__}.{type(found).__qualname__}"
    missing = [name for name in Engine.__annotations__ if not hasattr(found, name)]
    methods = [name for name, member in vars(Engine).items() if callable(member) and not name.startswith("_")]
    missing += [f"{name}()" for name in methods if not callable(getattr(found, name, None))]
    if missing:
        return f"{made_of} lacks {', '.join(missing)}; docs/engines.md says what each is for"
    for rule in found.phases:
        if rule.phase not in PHASES:
            return f"{made_of}.phases: {rule.phase!r} is no phase; there are: {', '.join(PHASES)}"
    for text in (found.ready, *(rule.pattern for rule in found.phases)):
        try:
            re.compile(text)
        except re.error as error:
            return f"{made_of}: {text!r} is no regular expression: {error}"
    if (rules := found.rules()) is not None:
        from ..failures.rules import rule_set

        try:
            rule_set((rules,))
        except InputError as error:
            return f"{made_of}.rules(): {error}"
    return None


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _points() -> dict[str, EntryPoint]:
    own = {name: EntryPoint(name, value, GROUP) for name, value in OWN.items()}
    return own | {point.name: point for point in entry_points(group=GROUP)}
