"""One metric of a case held against one reference: the decision of `stats`, told in the metric's own unit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from ..record import Comparison
from .quantity import MOST_TOLD, QUANTITIES, launch_means, shown, typical
from .stats import Decision, Limits, Outcome, Plan, decide
from .tell import count, percent, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .quantity import Launches

WORDS: dict[Decision, str] = {
    "worse": "worse",
    "ok": "not worse",
    "better": "better",
    "undecided": "undecided",
}


FAR = math.log(1000)
"""Bounds of an interval are not told beyond a thousandfold."""


class Held(Struct, frozen=True, kw_only=True):
    """A comparison, and what it means for the case."""

    comparison: Comparison
    decision: Decision
    proven: bool
    """False: an estimate against the tolerance, because nothing tells how launches scatter."""
    final: bool
    """Another launch would not be used."""
    suspect: bool
    """It looks worse, and a launch more is to confirm it."""
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
    """Compare launches of a run, in the order in which they were made, with those of a reference.

    `against` is the word for the reference: `baseline`, `reported` or `partner`. `others` only help to
    know how launches scatter. With `point`, or where nothing tells that, the estimate alone is held
    against the tolerance.
    """
    direction = QUANTITIES[metric].direction
    limits = Limits.of(tolerance, direction)
    outcome = None
    if not point:
        groups = [launch_means(each, direction) for each in others]
        outcome = decide(
            launch_means(run, direction), launch_means(reference, direction), limits, plan, others=groups
        )
    used = run[: outcome.look.launches] if outcome else run
    value, known = typical(used), typical(reference)
    estimate = direction * math.log(value / known)
    decision = outcome.decision if outcome else _point(estimate, limits)
    low, high = _interval(outcome, direction) if outcome else (None, None)
    few = "a reported figure" if against == "reported" else str(len(reference))
    suspect = outcome is not None and outcome.decision == "undecided" and outcome.look.suspect
    word = "looks worse, to be confirmed" if suspect else WORDS[decision]
    text = (
        f"{metric} {shown(metric, value)}, {signed(value / known)} against {_of(against)} "
        f"{shown(metric, known)}: {word} ({_bounds(low, high)}; "
        f"{count(len(used))} against {few}; tolerance {percent(tolerance)})"
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
            decision=decision,
            text=text,
        ),
        decision=decision,
        proven=outcome is not None,
        final=outcome is None or outcome.final,
        suspect=suspect,
        speed=math.exp(estimate),
    )


def _point(estimate: float, limits: Limits) -> Decision:
    if estimate < limits.slowdown:
        return "worse"
    return "better" if estimate > limits.speedup else "ok"


def _interval(outcome: Outcome, direction: int) -> tuple[float, float]:
    """The look's bounds as ratios of the metric itself."""
    bounds = sorted((direction * outcome.look.low, direction * outcome.look.high))
    return tuple(math.exp(max(-FAR, min(FAR, bound))) for bound in bounds)  # type: ignore[return-value]


def _of(against: str) -> str:
    return "the reported" if against == "reported" else f"the {against}'s"


def _bounds(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "unproven, an estimate"
    below, above = low < 1 / MOST_TOLD, high > MOST_TOLD
    if below and above:
        return "the launches scatter too widely for an interval"
    if below or above:
        return f"{signed(high)} at most" if below else f"{signed(low)} at least"
    return f"{signed(low)} to {signed(high)}"
