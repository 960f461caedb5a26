"""The decision over one metric: launches of a run against launches of a reference, looked at after each launch.

Everything is a *speed* on the log scale, one number a launch (the mean of its rounds): rounds within a launch share
its luck and cannot replace launches. A difference of such means is a log-ratio; 0 is "no change", positive is faster.

At a look with `n` launches against `m` of the reference the estimate is ``d = mean(run) - mean(reference)`` with
standard error ``s * sqrt(1/n + 1/m)``, where ``s`` is pooled over all groups of launches that are known (Student,
equal variances): a run of one launch is decidable because the reference says how launches scatter. Welch's variant
needs two launches on both sides.

Each kind of error is spent over the looks, so that its sum over all of them stays within the level.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

Decision = Literal["worse", "ok", "better", "undecided"]

MIN_SPREAD = 1e-4
"""Least standard deviation between launches that is believed (0.01 %): equal figures are rounded, not noiseless."""


class Limits(Struct, frozen=True):
    """What a tolerance means on the log scale of speeds."""

    slowdown: float
    """Negative: the slowdown that must not pass."""
    half: float
    """Negative: half of it; an estimate must be beyond it to count as worse."""
    speedup: float
    """Positive: from here on the reference is stale."""

    @classmethod
    def of(cls, tolerance: float, direction: int) -> Limits:
        """5 % of a throughput is 0.95 of it; 5 % of a time is 1.05 of it."""
        worse = math.log1p(-tolerance) if direction > 0 else -math.log1p(tolerance)
        half = math.log1p(-tolerance / 2) if direction > 0 else -math.log1p(tolerance / 2)
        better = math.log1p(tolerance) if direction > 0 else -math.log1p(-tolerance)
        return cls(worse, half, better)


class Plan(Struct, frozen=True, kw_only=True):
    """How sure, and over how many looks."""

    first: int = 1
    """Launches at the first look."""
    last: int = 5
    """Launches at the last look."""
    false_alarm: float = 0.01
    """Chance that launches equal to the reference are called worse, over all looks."""
    missed: float = 0.05
    """Chance that a slowdown of exactly the tolerance is called ok, over all looks."""
    weights: tuple[float, ...] = (1, 1, 2, 2, 6)
    """How the error is spent over five looks; fewer looks take the last ones, more repeat the first."""

    def shares(self) -> tuple[float, ...]:
        """The share of the error that each look spends; they add up to 1."""
        looks = self.last - self.first + 1
        weights = (self.weights[0],) * max(0, looks - len(self.weights)) + self.weights[-looks:]
        return tuple(weight / sum(weights) for weight in weights)


class Look(Struct, frozen=True, kw_only=True):
    """What is known after `launches` launches of the run. Log-ratios of speeds."""

    launches: int
    estimate: float
    low: float
    """One-sided bound at this look's share of `missed`: speeds below it are excluded."""
    high: float
    """One-sided bound at this look's share of `false_alarm`: speeds above it are excluded."""
    decision: Decision


class Outcome(Struct, frozen=True, kw_only=True):
    """The decision over one metric."""

    decision: Decision
    looks: tuple[Look, ...]
    final: bool
    """No further launch would be used: decided, or the last look is over."""

    @property
    def latest(self) -> Look:
        return self.looks[-1]


def decide(
    run: Sequence[float],
    reference: Sequence[float],
    limits: Limits,
    plan: Plan = Plan(),  # noqa: B008
    *,
    others: Sequence[Sequence[float]] = (),
) -> Outcome | None:
    """Hold launches of a run, in the order in which they were made, against those of a reference.

    `others` are further groups of launches with the same scatter, which only help to know it. None when the groups
    together do not tell how launches scatter (no group has two), or the run has fewer launches than a first look.

    worse:  the bound `high` lies below 0 (slower than the reference, proven) and the estimate beyond half the limit
    better: the bound `low` lies above the limit of a speed-up
    ok:     the bound `low` lies above the limit of a slowdown
    A later look may turn ok into worse, never the other way.
    """
    looks = []
    for launches in range(plan.first, min(len(run), plan.last) + 1):
        look = _look(run[:launches], reference, others, limits, plan)
        if look is None:
            continue
        looks.append(look)
    if not looks:
        return None
    seen = {look.decision for look in looks}
    order: tuple[Decision, ...] = ("worse", "better", "ok", "undecided")
    decision = next(d for d in order if d in seen)
    return Outcome(
        decision=decision, looks=tuple(looks), final=decision != "undecided" or len(run) >= plan.last
    )


def _look(
    run: Sequence[float],
    reference: Sequence[float],
    others: Sequence[Sequence[float]],
    limits: Limits,
    plan: Plan,
) -> Look | None:
    groups = (run, reference, *others)
    freedom = sum(len(group) - 1 for group in groups if group)
    if freedom < 1:
        return None
    squares = sum(_squares(group) for group in groups if group)
    spread = max(math.sqrt(squares / freedom), MIN_SPREAD)
    error = spread * math.sqrt(1 / len(run) + 1 / len(reference))
    estimate = math.fsum(run) / len(run) - math.fsum(reference) / len(reference)
    share = plan.shares()[len(run) - plan.first]
    low = estimate - quantile(plan.missed * share, freedom) * error
    high = estimate + quantile(plan.false_alarm * share, freedom) * error
    decision: Decision = "undecided"
    if high < 0 and estimate < limits.half:
        decision = "worse"
    elif low > limits.speedup:
        decision = "better"
    elif low > limits.slowdown:
        decision = "ok"
    return Look(launches=len(run), estimate=estimate, low=low, high=high, decision=decision)


def _squares(group: Sequence[float]) -> float:
    mean = math.fsum(group) / len(group)
    return math.fsum((value - mean) ** 2 for value in group)


@lru_cache(maxsize=4096)
def quantile(level: float, freedom: int) -> float:
    """The value that Student's t with `freedom` degrees exceeds with probability `level`."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, level))
