from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_gpuserve.gate.spending import STUDENT, student, tails

WEIGHTS = (1.0, 1.0, 2.0, 2.0, 6.0)


def test_students_t_is_scipys() -> None:
    assert student(0.005, 11) == pytest.approx(stats.t.isf(0.005, 11))


def test_a_single_look_spends_everything() -> None:
    (only,) = tails(0.01, (1.0,), 8, 1, 7)
    assert only == pytest.approx(0.01 / (1 + STUDENT / 7))


def test_the_first_look_gets_its_share_and_later_ones_more_than_theirs() -> None:
    """What earlier looks already caught is not spent again: launches are shared between looks."""
    level = 0.01 * (1 + STUDENT / 7)
    found = tails(level, WEIGHTS, 8, 1, 7)
    shares = [0.01 * weight / 12 for weight in WEIGHTS]
    assert found[0] == pytest.approx(shares[0], rel=1e-6)
    assert all(tail > share for tail, share in zip(found[1:], shares[1:], strict=True))
    assert found[-1] < 0.01


def test_bounds_agree_with_the_joint_distribution_of_the_looks() -> None:
    """Two looks with known variance: the chance to cross either, from scipy's bivariate normal."""
    first, second = tails(0.05 * (1 + STUDENT / 7), (1.0, 3.0), 8, 1, 7)
    information = [1 / (1 / launches + 1 / 8) for launches in (1, 2)]
    correlation = np.sqrt(information[0] / information[1])
    inside = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]]).cdf(
        [stats.norm.isf(first), stats.norm.isf(second)]
    )
    assert 1 - inside == pytest.approx(0.05, rel=0.005)


@pytest.mark.parametrize("reference", [2, 3, 4, 8, 20])
@pytest.mark.parametrize("level", [0.01, 0.05])
def test_all_looks_together_err_at_the_level_although_the_variance_is_estimated(
    reference: int, level: float
) -> None:
    trials = 150_000
    rng = np.random.default_rng(reference)
    stored = rng.standard_normal((trials, reference))
    runs = rng.standard_normal((trials, 5))
    crossed = np.zeros(trials, dtype=bool)
    for look, tail in enumerate(tails(level, WEIGHTS, reference, 1, reference - 1), start=1):
        run, freedom = runs[:, :look], reference - 1 + look - 1
        squares = reference * stored.var(axis=1) + look * run.var(axis=1)
        error = np.sqrt(squares / freedom * (1 / look + 1 / reference))
        crossed |= run.mean(axis=1) - stored.mean(axis=1) > student(tail, freedom) * error
    # Three standard errors of the simulation, and the two per cent that the correction is good for.
    slack = 3 * np.sqrt(level / trials) + 0.02 * level
    assert crossed.mean() <= level + slack
    assert crossed.mean() >= 0.8 * level, "nor is more given away than the correction costs with two launches"
