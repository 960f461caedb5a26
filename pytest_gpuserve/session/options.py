"""What the command line and the ini file ask of a run, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ..engines.simulated.simulation import Simulation


@dataclass(frozen=True, kw_only=True)
class Options:
    """Checked already: whoever makes these reports what is wrong in its own way."""

    rootdir: Path
    baselines: Path
    known: tuple[Path, ...] = ()
    """Folders of the user's own dead ends."""
    simulation: Simulation | None = None
    check: bool = True
    """Look at flags, models and ports before a start."""
    update_baselines: bool = False
    run_dangerous: bool = False
    engine_python: dict[str, str] = field(default_factory=dict)
    """Interpreter by engine name, from the command line."""
    attach: str | None = None
    """URL of a running server that the cases of one config are measured on."""
    launches: int | None = None
    """Launches per config, instead of what the suite says."""
    wait_s: float = 3600.0
    """How long a start waits for GPUs that somebody else uses."""
    improved_fails: bool = False
    inconclusive_fails: bool = False
    today: date = field(default_factory=date.today)
