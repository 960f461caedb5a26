"""How noisy a host is, from launches that were measured, and what tolerance and launches that asks for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from . import tell
from .power import smallest
from .rounds import usable_only
from .scatter import between, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..record import Record
    from .quantity import Launches

MOST = (1, 2, 3, 5, 8)
"""Values of `launches.max` that are weighed."""

USUAL = 0.05
"""The tolerance that is proposed where it can be held; a wider one only where the noise demands it."""

SURE = 5
"""With fewer launches the scatter itself is a guess."""


class Advice(Struct, frozen=True, kw_only=True):
    """What launches of one case say of one metric. Shares are fractions."""

    case: str
    metric: str
    launches: int
    between: float
    """Standard deviation of launches (of the means of their rounds)."""
    within: float | None
    """Standard deviation of the rounds of a launch; None with one round a launch."""
    smallest: dict[int, float | None]
    """`launches.max` -> the smallest slowdown that is found 19 times in 20; None where there is none."""
    tolerance: float | None
    """Proposed; None when no number of launches that was weighed helps."""
    most: int | None
    """`launches.max`, proposed."""

    @property
    def lines(self) -> list[str]:
        """For people."""
        rounds = f", rounds {tell.percent(self.within)}" if self.within is not None else ""
        few = "" if self.launches >= SURE else f"; few to go by, {SURE} or more tell better"
        by_most = ", ".join(
            f"{most}: {'none' if size is None else tell.percent(size)}"
            for most, size in self.smallest.items()
        )
        return [
            f"{self.case} {self.metric}: launches scatter by {tell.percent(self.between)}{rounds} "
            f"({tell.count(self.launches)}{few})",
            f"  smallest slowdown that is found 19 times in 20, by launches.max: {by_most}",
            f"  proposed: {self._proposal()}",
        ]

    def _proposal(self) -> str:
        if self.tolerance is None:
            return "find the cause of the noise first; no number of launches weighed here would do"
        return f"tolerance: {tell.percent(self.tolerance).replace(' ', '')}, launches: {{max: {self.most}}}"


def calibrate(records: Sequence[Record], *, baseline: int = 8, metrics: Sequence[str] = ()) -> list[Advice]:
    """Advice for every case with two valid launches or more, over all records of it, a metric each.

    `baseline` is the number of launches that the baseline holds or will hold; `metrics` are the gated ones of
    each record unless named. Cases of different hosts are kept apart.
    """
    by_case: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        by_case.setdefault((record.host.profile, record.suite, record.case), []).append(record)
    advice = []
    for (_, suite, case), same in sorted(by_case.items()):
        launches = [launch for record in same for launch in record.launches]
        for metric in metrics or same[0].gated or ("output_throughput",):
            rounds = usable_only(launches, metric)
            if len(rounds) > 1:
                advice.append(advise(f"{suite}::{case}", metric, rounds, baseline=baseline))
    return advice


def advise(case: str, metric: str, launches: Launches, *, baseline: int = 8) -> Advice:
    """Advice from the rounds of two launches or more."""
    spread = between(launches)
    # A tenth of a per mille is finer than anybody chooses, and lets cases share what was drawn.
    rounded = max(round(spread, 4), 0.0005)
    sizes = {most: smallest(rounded, baseline=baseline, most=most) for most in MOST}
    usual = next((most for most, size in sizes.items() if size is not None and size <= USUAL), None)
    widest = sizes[5] if sizes[5] is not None else sizes[MOST[-1]]
    tolerance: float | None = None
    if usual is not None:
        tolerance = USUAL
    elif widest is not None:
        tolerance, usual = math.ceil(widest * 200) / 200, 5 if sizes[5] is not None else MOST[-1]
    return Advice(
        case=case,
        metric=metric,
        launches=len(launches),
        between=spread,
        within=within(launches),
        smallest=sizes,
        tolerance=tolerance,
        most=usual,
    )
