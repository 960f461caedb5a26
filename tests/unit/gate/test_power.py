"""The gate's promises on drawn launches, in small; `benchmarks/gate_power.py` holds them to the digit."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpuserve.gate.power import found, smallest
from pytest_gpuserve.gate.stats import Limits, Plan, decide


def counted(scatter: float, slowdown: float, trials: int, seed: int) -> dict[str, float]:
    """Shares of decisions of `decide`, launch by launch as a run makes them."""
    rng = np.random.default_rng(seed)
    limits, plan = Limits.of(0.05, 1), Plan()
    seen = {"worse": 0, "ok": 0, "undecided": 0, "better": 0}
    for _ in range(trials):
        stored = (scatter * rng.standard_normal(8)).tolist()
        run = (np.log1p(-slowdown) + scatter * rng.standard_normal(5)).tolist()
        for launches in range(1, 6):
            outcome = decide(run[:launches], stored, limits, plan)
            assert outcome is not None
            if outcome.final:
                seen[outcome.decision] += 1
                break
    return {decision: count / trials for decision, count in seen.items()}


@pytest.mark.parametrize("noise", [0.005, 0.015])
def test_on_a_steady_host_equal_launches_pass_and_a_slowdown_of_the_tolerance_is_found(noise: float) -> None:
    scatter = noise * np.sqrt(4 / 3)  # three rounds, as noisy as launches
    equal = counted(scatter, 0.0, 1500, 1)
    assert equal["worse"] <= 0.01
    assert equal["ok"] >= 0.90
    assert counted(scatter, 0.05, 1500, 2)["worse"] >= 0.95


def test_on_a_noisy_host_the_gate_rather_says_that_it_cannot_tell() -> None:
    scatter = 0.03 * np.sqrt(4 / 3)
    equal = counted(scatter, 0.0, 1500, 3)
    assert equal["worse"] <= 0.015
    assert equal["undecided"] <= 0.50
    slower = counted(scatter, 0.05, 1500, 4)
    assert slower["ok"] <= 0.06
    assert slower["undecided"] > 0.3


def test_many_runs_at_once_are_judged_as_one_at_a_time() -> None:
    scatter = 0.0173
    assert found(scatter, 0.05, 0.05) == pytest.approx(counted(scatter, 0.05, 3000, 5)["worse"], abs=0.012)


def test_the_smallest_slowdown_grows_with_the_noise_and_shrinks_with_launches() -> None:
    quiet, noisy = smallest(0.01), smallest(0.02)
    few, many = smallest(0.01, most=1), smallest(0.01, most=8)
    assert quiet is not None
    assert noisy == pytest.approx(2 * quiet, rel=0.1)
    assert many is not None
    assert few is not None
    assert many < quiet < few
    assert found(0.01, quiet, quiet) >= 0.95


def test_some_noise_defeats_every_gate() -> None:
    assert smallest(1.0) is None
