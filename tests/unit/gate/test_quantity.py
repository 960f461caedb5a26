from __future__ import annotations

import math

import msgspec
import pytest

from pytest_gpuserve.gate.quantity import QUANTITIES, launch_means, shown, typical, usable
from pytest_gpuserve.record import Metrics


def test_every_metric_of_a_round_can_be_compared() -> None:
    assert set(QUANTITIES) == {field.name for field in msgspec.structs.fields(Metrics)}


@pytest.mark.parametrize("metric", sorted(QUANTITIES))
def test_times_are_better_when_lower_and_all_else_when_higher(metric: str) -> None:
    assert QUANTITIES[metric].direction == (-1 if metric.endswith("_ms") else 1)


def test_a_launch_is_the_geometric_mean_of_its_rounds() -> None:
    assert launch_means([[4.0, 9.0], [5.0]], 1) == pytest.approx([math.log(6), math.log(5)])


def test_a_longer_time_is_a_lower_speed() -> None:
    short, long = launch_means([[10.0], [11.0]], -1)
    assert short > long


def test_every_launch_counts_alike_however_many_rounds_it_has() -> None:
    assert typical([[100.0] * 9, [81.0]]) == pytest.approx(90.0)


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf])
def test_what_is_no_figure_cannot_be_compared(value: float | None) -> None:
    assert not usable(value)


def test_figures_are_shown_with_their_unit() -> None:
    assert shown("output_throughput", 89.54) == "89.5 tok/s"
    assert shown("tpot_ms", 11.173) == "11.17 ms"
