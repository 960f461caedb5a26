"""How small a slowdown the gate finds where launches scatter: the rule of `stats` on many drawn runs."""

from __future__ import annotations

from functools import lru_cache

from .spending import student, tails
from .stats import MIN_SCATTER, Limits, Plan

FOUND = 0.95
"""Share of slowdowns that must be found for them to count as findable."""

TRIALS = 20_000


def found(
    scatter: float,
    slowdown: float,
    tolerance: float,
    *,
    baseline: int = 8,
    plan: Plan = Plan(),  # noqa: B008
    trials: int = TRIALS,
    seed: int = 1,
) -> float:
    """The share of runs called worse when they are slower by `slowdown`.

    `scatter` is the standard deviation of launches, all three shares are fractions, `baseline` counts stored
    launches (2 or more). Drawn with `seed`, so that the same question has the same answer.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    stored = scatter * rng.standard_normal((trials, baseline))
    runs = np.log1p(-slowdown) + scatter * rng.standard_normal((trials, plan.last))
    limits = Limits.of(tolerance, 1)
    worse = np.zeros(trials, dtype=bool)
    ended = np.zeros(trials, dtype=bool)
    for index, launches in enumerate(range(plan.first, plan.last + 1)):
        run = runs[:, :launches]
        freedom = baseline - 1 + launches - 1
        squares = baseline * stored.var(axis=1) + launches * run.var(axis=1)
        spread = np.maximum(np.sqrt(squares / freedom), MIN_SCATTER)
        error = spread * np.sqrt(1 / launches + 1 / baseline)
        estimate = run.mean(axis=1) - stored.mean(axis=1)
        at_first = baseline - 1 + plan.first - 1
        alarm, missed = (
            tails(level, shares, baseline, plan.first, at_first)[index]
            for level, shares in (
                (plan.false_alarm, plan.alarm_shares),
                (plan.missed, plan.missed_shares),
            )
        )
        slow = estimate + student(alarm or plan.false_alarm, freedom) * error < 0
        slow &= estimate < limits.half
        if alarm:  # else another launch is to confirm it
            worse |= slow & ~ended
            ended |= slow
        ended |= ~slow & (estimate - student(missed, freedom) * error > limits.slowdown)
    return float(worse.mean())


@lru_cache(maxsize=256)
def smallest(scatter: float, *, baseline: int = 8, most: int = 5) -> float | None:
    """The smallest tolerance at which a slowdown of just that is found (`FOUND`), as a fraction.

    `most` is the number of launches that a run may take. None when even one of 60 % would be missed.
    """
    plan = Plan(last=most)
    low, high = 0.0, 0.6
    if found(scatter, high, high, baseline=baseline, plan=plan) < FOUND:
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        if found(scatter, middle, middle, baseline=baseline, plan=plan) >= FOUND:
            high = middle
        else:
            low = middle
    return high
