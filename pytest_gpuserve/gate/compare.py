"""One metric of a case held against one reference: the decision of `stats`, told in the metric's own unit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from ..record import Comparison
from .quantity import QUANTITIES, launch_means, shown, typical
from .stats import Decision, Limits, Outcome, Plan, decide
from .tell import count, percent, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .quantity import Launches


class Held(Struct, frozen=True, kw_only=True):
    """A comparison and what it means for the case."""

    comparison: Comparison
    decision: Decision
    proven: bool
    """False: a point estimate against the tolerance, because too few launches say how launches scatter."""
    final: bool
    """Another launch would not be used."""
    speed: float
    """The estimate as a ratio of speeds: below 1 is slower, whatever the metric."""


def hold(
    metric: str,
    run: Launches,
    reference: Launches,
    *,
    against: str,
    tolerance: float,
    plan: Plan,
    others: Sequence[Launches] = (),
    point: bool = False,
) -> Held:
    """Compare the launches of a run with those of a reference; `others` only help to know how launches scatter.

    `against` is the word for the reference: `baseline`, `reported` or `partner`. With `point`, or where nothing says
    how launches scatter, it is the estimate alone against the tolerance, and not proven.
    """
    direction = QUANTITIES[metric].direction
    limits = Limits.of(tolerance, direction)
    speeds, known = launch_means(run, direction), launch_means(reference, direction)
    groups = [launch_means(each, direction) for each in others]
    outcome = None if point else decide(speeds, known, limits, plan, others=groups)
    if outcome is None:
        return _point(metric, run, reference, against, limits, tolerance)
    return _interval(metric, run, reference, against, outcome, tolerance)


def _point(
    metric: str, run: Launches, reference: Launches, against: str, limits: Limits, tolerance: float
) -> Held:
    value, known = typical(run), typical(reference)
    direction = QUANTITIES[metric].direction
    estimate = direction * math.log(value / known)
    decision: Decision = (
        "worse" if estimate < limits.slowdown else "better" if estimate > limits.speedup else "ok"
    )
    text = (
        f"{_against(metric, value, known, against)}, {WORDS[decision]} by a tolerance of {percent(tolerance)}; "
        f"unproven, a point estimate ({count(len(run))} against {_few(against, len(reference))})"
    )
    return Held(
        comparison=Comparison(
            metric=metric,
            against=against,
            reference=known,
            value=value,
            ratio=value / known,
            decision=decision,
            text=text,
        ),
        decision=decision,
        proven=False,
        final=True,
        speed=math.exp(estimate),
    )


def _interval(
    metric: str, run: Launches, reference: Launches, against: str, outcome: Outcome, tolerance: float
) -> Held:
    value, known = typical(run), typical(reference)
    direction = QUANTITIES[metric].direction
    look = next(
        (each for each in outcome.looks if each.decision == outcome.decision), outcome.latest
    )  # the look that decided, not a later one
    low, high = sorted((math.exp(direction * look.low), math.exp(direction * look.high)))
    text = (
        f"{_against(metric, value, known, against)}, {WORDS[outcome.decision]} by a tolerance of "
        f"{percent(tolerance)} (between {signed(low)} and {signed(high)}; "
        f"{count(look.launches)} against {len(reference)})"
    )
    return Held(
        comparison=Comparison(
            metric=metric,
            against=against,
            reference=known,
            value=value,
            ratio=value / known,
            low=low,
            high=high,
            decision=outcome.decision,
            text=text,
        ),
        decision=outcome.decision,
        proven=True,
        final=outcome.final,
        speed=math.exp(direction * math.log(value / known)),
    )


WORDS: dict[Decision, str] = {
    "worse": "worse",
    "ok": "no slowdown",
    "better": "better",
    "undecided": "undecided",
}


def _against(metric: str, value: float, known: float, against: str) -> str:
    return (
        f"{metric} {shown(metric, value)}, {signed(value / known)} against "
        f"the {against + ' ' if against == 'reported' else against + chr(39) + 's '}{shown(metric, known)}"
    )


def _few(against: str, launches: int) -> str:
    return "a reported figure" if against == "reported" else str(launches)
