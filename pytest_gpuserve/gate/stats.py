"""The decision over one metric: launches of a run against launches of a reference, after each launch.

Everything is a *speed* on the log scale, one number a launch, the mean of its rounds: rounds within a launch
share its luck and cannot replace launches. A difference of such means is a log-ratio: 0 is "no change",
above it is faster.

With `n` launches against `m` of the reference the estimate is ``d = mean(run) - mean(reference)`` with
standard error ``s * sqrt(1/n + 1/m)``, where ``s`` is pooled over all groups of launches that are known
(Student's t, equal variances). So a run of a single launch can be judged: the reference says how launches
scatter. Welch's variant, without equal variances, would need two launches on either side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from .spending import student, tails

if TYPE_CHECKING:
    from collections.abc import Sequence

Decision = Literal["worse", "ok", "better", "undecided"]

MIN_SCATTER = 1e-4
"""Least standard deviation of launches that is believed, 0.01 %: equal figures are rounded ones."""


class Limits(Struct, frozen=True):
    """What a tolerance means on the log scale of speeds."""

    slowdown: float
    """Negative: the slowdown that must not pass."""
    half: float
    """Negative: what an estimate must be beyond to count as worse."""
    speedup: float
    """Positive: from here on the reference is stale."""

    @classmethod
    def of(cls, tolerance: float, direction: int) -> Limits:
        """5 % worse is 0.95 of a throughput (direction 1) and 1.05 of a time (direction -1)."""

        def speed(change: float) -> float:
            return direction * math.log1p(direction * change)

        return cls(slowdown=speed(-tolerance), half=speed(-tolerance / 2), speedup=speed(tolerance))


class Plan(Struct, frozen=True, kw_only=True):
    """How sure to be, over how many looks.

    The errors are a tenth below what is promised, 1 % and 5 % (`benchmarks/gate_power.py` holds the promise).
    """

    first: int = 1
    """Launches at the first look."""
    last: int = 5
    """Launches at the last look."""
    false_alarm: float = 0.009
    """Chance that launches equal to the reference are called worse, over all looks."""
    missed: float = 0.045
    """Chance that a slowdown of just the tolerance is called ok, over all looks."""
    spend_alarm: tuple[float, ...] = (1, 2, 2, 6)
    """How `false_alarm` is shared among the looks: late, because a slowdown is worth another launch."""
    spend_missed: tuple[float, ...] = (1, 1, 1, 1, 4)
    """How `missed` is shared: earlier, because a healthy run should end soon."""
    confirm: bool = True
    """Never call a single launch worse when another is allowed.

    It costs a launch only where there is something to find, and halves the false alarms on a day on which
    launches scatter more than those of the reference did, which one launch cannot show.
    """

    @property
    def looks(self) -> int:
        return self.last - self.first + 1

    @property
    def alarm_shares(self) -> tuple[float, ...]:
        """What each look spends of `false_alarm`, as weights."""
        if self.confirm and self.first == 1 and self.looks > 1:
            return (0.0, *_fit(self.spend_alarm, self.looks - 1))
        return _fit(self.spend_alarm, self.looks)

    @property
    def missed_shares(self) -> tuple[float, ...]:
        """What each look spends of `missed`, as weights."""
        return _fit(self.spend_missed, self.looks)


def _fit(spend: tuple[float, ...], looks: int) -> tuple[float, ...]:
    """Weights for so many looks: fewer than planned take the last ones, more repeat the first."""
    return (spend[0],) * (looks - len(spend)) + spend[-looks:]


class Look(Struct, frozen=True, kw_only=True):
    """What is known after `launches` launches of the run, in log-ratios of speeds."""

    launches: int
    estimate: float
    low: float
    """One-sided bound at this look's share of `missed`: what lies below is excluded."""
    high: float
    """One-sided bound at this look's share of `false_alarm`: what lies above is excluded. Where the look has
    none, because a launch is still to confirm it, the bound that a sole look would have."""
    decision: Decision
    suspect: bool = False
    """It would be worse, if a launch more were not to confirm it."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The decision over one metric."""

    decision: Decision
    look: Look
    """The latest look that says so."""
    final: bool
    """No further launch would be used: it is decided, or this was the last look."""


RANK: tuple[Decision, ...] = ("worse", "better", "ok", "undecided")
"""Which decision holds when looks differ: a later look may turn ok into worse, never the other way."""


def decide(
    run: Sequence[float],
    reference: Sequence[float],
    limits: Limits,
    plan: Plan = Plan(),  # noqa: B008
    *,
    others: Sequence[Sequence[float]] = (),
) -> Outcome | None:
    """Hold the launches of a run, in the order in which they were made, against those of a reference.

    `others` are further groups of launches that scatter alike; they only help to know how much. None when
    nothing tells how launches scatter (no group has two), or the run has fewer launches than a first look
    takes.

    worse   `high` lies below 0 (slower than the reference, proven), and the estimate is beyond `limits.half`
    better  `low` lies above `limits.speedup`
    ok      `low` lies above `limits.slowdown`
    """
    looks = [
        look
        for launches in range(plan.first, min(len(run), plan.last) + 1)
        if (look := _look(run[:launches], reference, others, limits, plan))
    ]
    if not looks:
        return None
    decision = min((look.decision for look in looks), key=RANK.index)
    return Outcome(
        decision=decision,
        look=next(look for look in reversed(looks) if look.decision == decision),
        final=decision != "undecided" or len(run) >= plan.last,
    )


def _look(
    run: Sequence[float],
    reference: Sequence[float],
    others: Sequence[Sequence[float]],
    limits: Limits,
    plan: Plan,
) -> Look | None:
    known = (reference, *others)
    freedom = sum(len(group) - 1 for group in (run, *known))
    if freedom < 1:
        return None
    at_first = max(1, sum(len(group) - 1 for group in known) + plan.first - 1)
    scatter = max(math.sqrt(sum(map(_squares, (run, *known))) / freedom), MIN_SCATTER)
    error = scatter * math.sqrt(1 / len(run) + 1 / len(reference))
    estimate = _mean(run) - _mean(reference)

    def tail(level: float, shares: tuple[float, ...]) -> float:
        return tails(level, shares, len(reference), plan.first, at_first)[len(run) - plan.first]

    alarm = tail(plan.false_alarm, plan.alarm_shares)
    low = estimate - student(tail(plan.missed, plan.missed_shares), freedom) * error
    high = estimate + student(alarm or plan.false_alarm, freedom) * error
    decision: Decision = "undecided"
    slow = high < 0 and estimate < limits.half
    if slow:
        decision = "worse" if alarm else "undecided"
    elif low > limits.speedup:
        decision = "better"
    elif low > limits.slowdown:
        decision = "ok"
    return Look(
        launches=len(run),
        estimate=estimate,
        low=low,
        high=high,
        decision=decision,
        suspect=slow and not alarm,
    )


def _mean(group: Sequence[float]) -> float:
    return math.fsum(group) / len(group)


def _squares(group: Sequence[float]) -> float:
    mean = _mean(group)
    return math.fsum((value - mean) ** 2 for value in group)
