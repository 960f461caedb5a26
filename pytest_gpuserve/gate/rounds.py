"""The figures of a case's rounds, and every reason why they must not be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from .quantity import Launches, usable, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..record import Launch


class Figures(Struct, frozen=True, kw_only=True):
    """What the rounds yield of the metrics that were asked for."""

    metrics: dict[str, Launches] = field(default_factory=dict)
    """Metric -> the rounds of each launch; only metrics that every round yields."""
    absent: tuple[str, ...] = ()
    """Asked for, and no round yields them."""
    problems: tuple[str, ...] = ()
    """Why the case is invalid; empty when it is not."""


def figures(launches: Sequence[Launch], metrics: Iterable[str]) -> Figures:
    """Collect the metrics of all rounds.

    A round that is invalid, a metric that only some rounds yield, and a value that is no figure are problems.
    """
    problems = [
        f"launch {number}, round {index}: {reason}"
        for number, launch in enumerate(launches, 1)
        for index, round_ in enumerate(launch.rounds, 1)
        for reason in round_.invalid
    ]
    problems += [f"launch {n}: no rounds" for n, launch in enumerate(launches, 1) if not launch.rounds]
    found: dict[str, Launches] = {}
    absent = []
    for metric in dict.fromkeys(metrics):
        each = values(launches, metric)
        if all(value is None for rounds in each for value in rounds):
            absent.append(metric)
            continue
        wrong = [
            f"launch {number}, round {index}: {metric} is {'missing' if value is None else value}"
            for number, rounds in enumerate(each, 1)
            for index, value in enumerate(rounds, 1)
            if not usable(value)
        ]
        problems += wrong
        if not wrong:
            found[metric] = [[value for value in rounds if value is not None] for rounds in each]
    return Figures(metrics=found, absent=tuple(absent), problems=tuple(problems))


def usable_only(launches: Sequence[Launch], metric: str) -> Launches:
    """The metric's rounds in launches that are valid throughout, for a partner that is judged elsewhere."""
    kept = [launch for launch in launches if launch.rounds and not any(r.invalid for r in launch.rounds)]
    return [
        [value for value in rounds if value is not None]
        for rounds in values(kept, metric)
        if rounds and all(usable(value) for value in rounds)
    ]
