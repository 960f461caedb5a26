"""Engines by name: our own, and those of the entry point group `pytest_gpuserve.engines`."""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..model import Place
    from .base import Engine

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
    """The engine of that name. InputError, at `place`, for an unknown one or one that cannot be loaded."""
    point = _points().get(name)
    if point is None:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names()) or 'none'}"
        raise InputError(f"unknown engine {name!r}; {hint}", place)
    try:
        found: Engine = point.load()()
    except Exception as error:
        # Somebody else's code: whatever it raises, the user must learn whose it is.
        owner = point.dist.name if point.dist else point.value
        raise InputError(f"the engine {name!r} of {owner} cannot be loaded: {error!r}", place) from error
    return found


def _points() -> dict[str, EntryPoint]:
    own = {name: EntryPoint(name, value, GROUP) for name, value in OWN.items()}
    return own | {point.name: point for point in entry_points(group=GROUP)}
