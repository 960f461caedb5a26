"""The metrics a gate can look at: which way is better, the unit, and their values launch by launch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..record import Launch

Direction = Literal[1, -1]
"""1: higher is better (throughput); -1: lower is better (times)."""

Launches = list[list[float]]
"""The rounds of each launch, in the metric's own unit."""

MOST_TOLD = 10.0
"""A bound of a ratio beyond so many times tells nothing but that the launches scatter."""


class Quantity(Struct, frozen=True):
    """How one metric is compared and shown."""

    direction: Direction
    unit: str
    digits: int
    """Digits after the point when it is shown."""


QUANTITIES: dict[str, Quantity] = {
    "output_throughput": Quantity(1, "tok/s", 1),
    "output_throughput_total": Quantity(1, "tok/s", 1),
    "input_throughput": Quantity(1, "tok/s", 1),
    "peak_output_throughput": Quantity(1, "tok/s", 1),
    "request_throughput": Quantity(1, "req/s", 3),
    "goodput": Quantity(1, "req/s", 3),
    "accept_length": Quantity(1, "tokens", 2),
    "ttft_ms": Quantity(-1, "ms", 2),
    "ttfot_ms": Quantity(-1, "ms", 2),
    "tpot_ms": Quantity(-1, "ms", 2),
    "itl_ms": Quantity(-1, "ms", 2),
    "chunk_gap_ms": Quantity(-1, "ms", 2),
    "e2e_ms": Quantity(-1, "ms", 1),
}
"""Every metric of `record.Metrics`; distributions are compared by their median."""


def shown(metric: str, value: float) -> str:
    """`89.5 tok/s`"""
    quantity = QUANTITIES[metric]
    return f"{value:.{quantity.digits}f} {quantity.unit}"


def values(launches: Iterable[Launch], metric: str) -> list[list[float | None]]:
    """The metric's value in each round of each launch; None where a round does not yield it."""
    return [[round_.metrics.value(metric) for round_ in launch.rounds] for launch in launches]


def usable(value: float | None) -> bool:
    """Whether a value can be compared: a finite number above 0 (ratios are what is compared)."""
    return value is not None and math.isfinite(value) and value > 0


def launch_means(launches: Sequence[Sequence[float]], direction: Direction) -> list[float]:
    """The mean of each launch's rounds as the logarithm of a speed: higher is better, whatever the metric."""
    return [direction * math.fsum(map(math.log, rounds)) / len(rounds) for rounds in launches]


def typical(launches: Sequence[Sequence[float]]) -> float:
    """The geometric mean over launches of the geometric means of their rounds, in the metric's unit."""
    means = launch_means(launches, 1)
    return math.exp(math.fsum(means) / len(means))
