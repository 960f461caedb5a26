from __future__ import annotations

import pytest

from pytest_gpuserve.gate.compare import hold
from pytest_gpuserve.gate.stats import Plan

STEADY = [[89.2] * 3, [90.1] * 3, [89.6] * 3, [88.9] * 3, [89.9] * 3, [89.3] * 3, [90.0] * 3, [89.1] * 3]


def test_a_comparison_is_told_in_the_metrics_own_unit() -> None:
    held = hold(
        "output_throughput", [[84.0] * 3] * 2, STEADY, against="baseline", tolerance=0.05, plan=Plan()
    ).comparison
    assert held.text == (
        "output_throughput 84.0 tok/s, -6.2 % against the baseline's 89.5 tok/s: worse "
        f"({(held.low - 1) * 100:+.1f} % to {(held.high - 1) * 100:+.1f} %; "  # type: ignore[operator]
        "2 launches against 8; tolerance 5 %)"
    )
    assert held.decision == "worse"
    assert held.low is not None
    assert held.high is not None
    assert held.low < held.ratio < held.high < 1


def test_for_a_time_longer_is_worse() -> None:
    stored = [[1000 / value for value in rounds] for rounds in STEADY]
    held = hold("tpot_ms", [[1000 / 84.0] * 3] * 2, stored, against="baseline", tolerance=0.05, plan=Plan())
    assert held.decision == "worse"
    assert held.speed == pytest.approx(84.0 / 89.5, rel=1e-3)
    assert held.comparison.low is not None
    assert 1 < held.comparison.low < held.comparison.ratio


@pytest.mark.parametrize(
    ("value", "decision"), [(84.9, "worse"), (85.3, "ok"), (93.7, "ok"), (94.1, "better")]
)
def test_a_point_is_held_against_the_tolerance_and_is_unproven(value: float, decision: str) -> None:
    held = hold(
        "output_throughput",
        [[value]],
        [[89.5]],
        against="reported",
        tolerance=0.05,
        plan=Plan(),
        point=True,
    )
    assert (held.decision, held.proven, held.final) == (decision, False, True)
    assert held.comparison.low is None
    assert held.comparison.high is None
    assert "unproven" in held.comparison.text
    assert "against a reported figure" in held.comparison.text


def test_one_against_one_is_a_point_unless_others_tell_how_launches_scatter() -> None:
    alone = hold("output_throughput", [[80.0]], [[89.5]], against="partner", tolerance=0.05, plan=Plan())
    assert not alone.proven
    helped = hold(
        "output_throughput",
        [[80.0]],
        [[89.5]],
        against="partner",
        tolerance=0.05,
        plan=Plan(),
        others=[STEADY],
    )
    assert helped.proven
    assert helped.suspect


def test_what_is_told_are_the_launches_that_decided() -> None:
    run = [[83.0] * 3, [83.0] * 3, [89.5] * 3, [89.5] * 3, [89.5] * 3]
    held = hold("output_throughput", run, STEADY, against="baseline", tolerance=0.05, plan=Plan())
    assert held.decision == "worse"
    comparison = held.comparison
    assert comparison.low is not None
    assert comparison.high is not None
    assert comparison.low < comparison.ratio < comparison.high


def test_an_interval_without_end_is_told_up_to_a_thousandfold() -> None:
    held = hold(
        "output_throughput",
        [[1e-6], [1e6]],
        [[89.5]],
        against="partner",
        tolerance=0.05,
        plan=Plan(),
    ).comparison
    assert held.low == pytest.approx(0.001)
    assert held.high == pytest.approx(1000)
