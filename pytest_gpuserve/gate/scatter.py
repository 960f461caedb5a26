"""How much launches, and the rounds within one, scatter: as fractions, from the logarithms of their values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .quantity import launch_means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .quantity import Launches

UNLIKELY = 1e-3
"""Chance of a warning when nothing has changed."""

NOTABLE = 1.5
"""How many times the scatter must be what it was for a warning, however many values prove it."""


def between(launches: Launches) -> float:
    """The standard deviation of launches (of the means of their rounds). Takes two launches or more."""
    return _pooled([launch_means(launches, 1)])


def within(launches: Launches) -> float | None:
    """The standard deviation of the rounds of a launch, pooled; None with one round a launch."""
    logs = _logs(launches)
    return _pooled(logs) if _freedom(logs) else None


def disturbed(run: Launches, reference: Launches) -> str:
    """Says so when a run's launches, or their rounds, scatter more than the reference's; else empty.

    The comparison of their means takes it that they scatter alike (F test of the two variances).
    """
    for what, here, there in (
        ("launches", [launch_means(run, 1)], [launch_means(reference, 1)]),
        ("rounds", _logs(run), _logs(reference)),
    ):
        if _more(here, there):
            return (
                f"the {what} of this run scatter by {_pooled(here) * 100:.2g} %, "
                f"those of the baseline by {_pooled(there) * 100:.2g} %: something disturbs it"
            )
    return ""


def _more(here: Sequence[Sequence[float]], there: Sequence[Sequence[float]]) -> bool:
    from scipy.special import fdtrc

    free_here, free_there = _freedom(here), _freedom(there)
    if not free_here or not free_there:
        return False
    ratio = _pooled(here) / max(_pooled(there), 1e-6)
    return ratio > NOTABLE and float(fdtrc(free_here, free_there, ratio**2)) < UNLIKELY


def _logs(launches: Launches) -> list[list[float]]:
    return [[math.log(value) for value in rounds] for rounds in launches]


def _freedom(groups: Sequence[Sequence[float]]) -> int:
    return sum(len(group) - 1 for group in groups)


def _pooled(groups: Sequence[Sequence[float]]) -> float:
    squares = 0.0
    for group in groups:
        mean = math.fsum(group) / len(group)
        squares += math.fsum((value - mean) ** 2 for value in group)
    return math.sqrt(squares / _freedom(groups))
