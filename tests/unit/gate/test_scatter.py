from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_gpuserve.gate.scatter import between, disturbed, within

RNG = np.random.default_rng(4)


def drawn(launches: int, noise: float, rounds: float) -> list[list[float]]:
    """Launches of three rounds, with noise of these sizes."""
    speeds = noise * RNG.standard_normal((launches, 1)) + rounds * RNG.standard_normal((launches, 3))
    return [[math.exp(value) for value in launch] for launch in speeds.tolist()]


def test_launches_scatter_by_the_deviation_of_their_means() -> None:
    assert between([[math.exp(0.01)] * 3, [math.exp(-0.01)] * 3]) == pytest.approx(0.01 * math.sqrt(2))


def test_rounds_scatter_within_their_launch_only() -> None:
    assert within([[100.0] * 3, [50.0] * 3]) == 0
    assert within([[100.0], [50.0]]) is None
    assert within([[math.exp(0.01), math.exp(-0.01)], [7.0]]) == pytest.approx(0.01 * math.sqrt(2))


def test_a_run_like_the_baseline_is_not_disturbed() -> None:
    warned = sum(bool(disturbed(drawn(3, 0.01, 0.01), drawn(8, 0.01, 0.01))) for _ in range(400))
    assert warned <= 4


def test_rounds_that_scatter_far_more_are_told_from_one_launch() -> None:
    assert disturbed(drawn(1, 0.01, 0.20), drawn(8, 0.01, 0.01)).startswith(
        "the rounds of this run scatter by"
    )


def test_launches_that_scatter_far_more_are_told() -> None:
    told = disturbed([[80.0] * 3, [100.0] * 3, [125.0] * 3, [90.0] * 3], drawn(8, 0.01, 0.01))
    assert told.startswith("the launches of this run scatter by 19 %, those of the baseline by ")


def test_a_reference_without_scatter_is_no_reason_to_warn_of_rounding() -> None:
    assert disturbed([[100.0] * 3], [[100.0] * 3] * 8) == ""


def test_nothing_is_said_where_nothing_can_be_known() -> None:
    assert disturbed([[100.0]], [[90.0]]) == ""
