"""A host one does not have: a real process with SGLang's API, log, flags and exit codes, driven by data.

docs/simulated-host.md says what it is for, what it knows and what it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .simulation import Simulated, Simulation

__all__ = ["Simulated", "Simulation"]


def __getattr__(name: str) -> Any:
    """Imported on demand: the simulated server's own start needs neither, and should cost nothing more."""
    if name in __all__:
        from . import simulation

        return getattr(simulation, name)
    raise AttributeError(name)
