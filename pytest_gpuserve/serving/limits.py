"""Time limits of a launch: the engine's, overridden by the suite's, shrunk for the simulated host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.base import Site
    from ..model import Phase

SILENCE_S = 1800.0
"""No log line at all, in a phase that has no limit of its own."""
SHUTDOWN_S = 60.0
FLOOR_S = 20.0
"""Compressed time does not make the machine's own processes start faster."""
SHUTDOWN_FLOOR_S = 5.0


class Limits:
    """Seconds of real time."""

    def __init__(self, engine: Mapping[Phase, float], suite: Mapping[str, float], site: Site) -> None:
        asked: dict[str, float] = {**{str(phase): limit for phase, limit in engine.items()}, **suite}
        self._site = site
        self.silence = self._real(SILENCE_S, FLOOR_S)
        self.shutdown = self._real(asked.pop("shutdown", SHUTDOWN_S), SHUTDOWN_FLOOR_S)
        self.phases: dict[Phase, float] = {
            phase: self._real(seconds, FLOOR_S)  # type: ignore[misc]
            for phase, seconds in asked.items()
            if phase != "serving"
        }

    def _real(self, seconds: float, floor: float) -> float:
        return max(seconds * self._site.startup_scale, min(seconds, floor)) if self._scaled else seconds

    @property
    def pause(self) -> float:
        """Between two looks at the log, which is how exact the times of phases are."""
        return 0.02 if self._scaled else 0.1

    @property
    def _scaled(self) -> bool:
        return self._site.startup_scale < 1.0

    def reported(self, seconds: float, phase: str = "") -> float:
        """Real seconds as the simulated host counts them."""
        scale = self._site.time_scale if phase == "serving" else self._site.startup_scale
        return seconds / scale
