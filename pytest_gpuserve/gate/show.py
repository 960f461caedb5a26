"""What is stored, a line a case: for `gpuserve baselines show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from . import tell
from .baseline import named
from .baselines import Baselines
from .quantity import typical
from .scatter import between

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .baseline import Baseline


class Stored(Struct, frozen=True, kw_only=True):
    """A case's baseline, summed up. Shares are fractions."""

    profile: str
    suite: str
    case: str
    source: str
    """`measured` with date and engine, or `reported` with who said so."""
    launches: int
    """0 for a reported figure."""
    figures: dict[str, float]
    """Metric -> typical value, in the metric's unit."""
    scatter: dict[str, float | None]
    """Metric -> standard deviation between launches; None with fewer than two."""
    tolerance: float | None
    place: str

    @property
    def line(self) -> str:
        """For people."""
        figures = ", ".join(
            tell.figures({metric: [[value]]}) + (f" ±{tell.percent(spread)}" if spread is not None else "")
            for (metric, value), spread in zip(self.figures.items(), self.scatter.values(), strict=True)
        )
        tolerance = f"; tolerance {tell.percent(self.tolerance)}" if self.tolerance else ""
        count = f"; {tell.count(self.launches)}" if self.launches else ""
        return f"{self.profile} {self.suite}::{self.case}: {figures}{count}{tolerance}; {self.source}"


def show(folder: Path, cases: Sequence[str] = (), *, profile: str | None = None) -> list[Stored]:
    """What a folder holds, sorted; `cases` as in `accept`.

    Raises BaselineError for a file that cannot be used.
    """
    baselines = Baselines(folder)
    return [
        _summed_up(host, suite, baseline)
        for host, suite in baselines.files()
        if profile in {None, host}
        for name, baseline in sorted(baselines.cases(host, suite).items())
        if not cases or named(suite, name, cases)
    ]


def _summed_up(profile: str, suite: str, baseline: Baseline) -> Stored:
    measured, reported = baseline.measured, baseline.reported
    engine = " ".join(filter(None, (measured.engine, measured.version))) if measured else ""
    source = f"reported: {reported.source}" if reported else ""
    if measured is not None:
        source = f"measured {measured.date[:10]}" + (f", {engine}" if engine else "")
    return Stored(
        profile=profile,
        suite=suite,
        case=baseline.case,
        source=source,
        launches=baseline.count,
        figures={metric: typical(each) for metric, each in baseline.launches.items()},
        scatter={
            metric: between(each) if len(each) > 1 else None for metric, each in baseline.launches.items()
        },
        tolerance=baseline.tolerance,
        place=str(baseline.place),
    )
