from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuserve.gate.quantity import launch_means
from pytest_gpuserve.gate.stats import MIN_SCATTER, Limits, Outcome, Plan, decide

STEADY = (89.2, 90.1, 89.6, 88.9, 89.9, 89.3, 90.0, 89.1)
LIMITS = Limits.of(0.05, 1)


def logs(*values: float) -> list[float]:
    return [math.log(value) for value in values]


def decided(run: tuple[float, ...], reference: tuple[float, ...] = STEADY, **changes: object) -> Outcome:
    outcome = decide(logs(*run), logs(*reference), LIMITS, Plan(**changes))  # type: ignore[arg-type]
    assert outcome is not None
    return outcome


def test_a_tolerance_means_less_throughput_or_more_time() -> None:
    throughput, time = Limits.of(0.05, 1), Limits.of(0.05, -1)
    assert throughput.slowdown == pytest.approx(math.log(0.95))
    assert throughput.half == pytest.approx(math.log(0.975))
    assert throughput.speedup == pytest.approx(math.log(1.05))
    assert time.slowdown == pytest.approx(-math.log(1.05))
    assert time.half == pytest.approx(-math.log(1.025))
    assert time.speedup == pytest.approx(-math.log(0.95))


def test_one_equal_launch_is_enough_on_a_steady_host() -> None:
    outcome = decided((89.5,))
    assert outcome.decision == "ok"
    assert outcome.final


def test_one_slow_launch_is_never_enough_when_another_may_confirm_it() -> None:
    first = decided((84.0,))
    assert (first.decision, first.final, first.look.suspect) == ("undecided", False, True)
    assert first.look.high < 0
    assert decided((84.0, 84.2)).decision == "worse"
    assert decided((84.0, 89.5)).decision == "undecided"


def test_one_slow_launch_is_enough_where_it_is_the_only_one() -> None:
    assert decided((84.0,), last=1).decision == "worse"
    assert decided((84.0,), confirm=False).decision == "worse"


def test_a_launch_that_looks_worse_is_not_ok_even_if_it_excludes_the_tolerance() -> None:
    first = decided((87.0,), tuple(89.5 + n / 1000 for n in range(8)))
    assert first.look.low > LIMITS.slowdown
    assert first.decision == "undecided"


def test_one_fast_launch_is_enough_on_a_steady_host() -> None:
    assert decided((97.0,)).decision == "better"


def test_a_noisy_host_wants_another_launch_and_in_the_end_cannot_tell() -> None:
    noisy = (85.0, 94.0, 88.0, 92.0, 86.0, 93.0, 87.0, 91.0)
    first = decided((87.5,), noisy)
    assert (first.decision, first.final) == ("undecided", False)
    last = decided((84.0, 91.0, 86.0, 90.0, 85.0), noisy)
    assert (last.decision, last.final) == ("undecided", True)


def test_a_proven_slowdown_within_half_the_tolerance_passes() -> None:
    outcome = decided((88.0,) * 5)
    assert outcome.look.high < 0, "it is proven to be slower"
    assert outcome.decision == "ok"


def test_a_later_look_turns_ok_into_worse_and_never_back() -> None:
    assert decided((89.5,)).decision == "ok"
    assert decided((89.5, 83.0, 83.0, 83.0)).decision == "worse"
    assert decided((83.0, 83.0, 89.5, 89.5, 89.5)).decision == "worse"


def test_the_look_that_is_told_is_the_latest_that_decided() -> None:
    outcome = decided((83.0, 83.0, 89.5, 89.5, 89.5))
    assert outcome.look.decision == "worse"
    assert outcome.look.launches < 5


def test_launches_beyond_the_last_look_are_not_looked_at() -> None:
    assert decided((89.5, 89.5, 60.0), last=2).look.launches == 2


def test_fewer_launches_than_the_first_look_takes_tell_nothing() -> None:
    assert decide(logs(89.5), logs(*STEADY), LIMITS, Plan(first=2, last=5)) is None


def test_nothing_tells_how_launches_scatter_with_one_against_one() -> None:
    assert decide(logs(50.0), logs(89.5), LIMITS) is None


def test_other_launches_can_tell_how_launches_scatter() -> None:
    outcome = decide(logs(84.0), logs(89.5), LIMITS, others=[logs(*STEADY)])
    assert outcome is not None
    alone = decided((84.0,))
    assert outcome.look.high > alone.look.high, "one launch is a worse reference than eight"


def test_a_second_launch_makes_one_against_one_decidable_without_any_others() -> None:
    outcome = decide(logs(50.0, 50.1), logs(89.5), LIMITS)
    assert outcome is not None
    assert outcome.look.launches == 2


def test_equal_figures_are_rounded_not_noiseless() -> None:
    outcome = decided((89.5,), (89.5,) * 8)
    assert 0 < outcome.look.high < 10 * MIN_SCATTER


def test_more_looks_than_planned_repeat_the_first_share_and_fewer_take_the_last() -> None:
    assert Plan().alarm_shares == (0, 1, 2, 2, 6)
    assert Plan().missed_shares == (1, 1, 1, 1, 4)
    assert Plan(last=7).alarm_shares == (0, 1, 1, 1, 2, 2, 6)
    assert Plan(last=7).missed_shares == (1, 1, 1, 1, 1, 1, 4)
    assert Plan(first=2, last=3).alarm_shares == (2, 6), "two launches at the first look confirm each other"
    assert Plan(last=1).alarm_shares == (6,)
    assert Plan(last=3, confirm=False).alarm_shares == (2, 2, 6)


speeds = st.floats(min_value=0.5, max_value=2.0)


@given(
    st.lists(speeds, min_size=1, max_size=5), st.lists(speeds, min_size=2, max_size=9), st.floats(0.01, 1e4)
)
def test_the_unit_does_not_matter(run: list[float], reference: list[float], unit: float) -> None:
    plain = decide(logs(*run), logs(*reference), LIMITS)
    scaled = decide(logs(*(x * unit for x in run)), logs(*(x * unit for x in reference)), LIMITS)
    assert plain is not None
    assert scaled is not None
    assert scaled.look.estimate == pytest.approx(plain.look.estimate, abs=1e-9)
    assert scaled.look.high == pytest.approx(plain.look.high, abs=1e-6, rel=1e-6)


@given(st.lists(speeds, min_size=1, max_size=5), st.lists(speeds, min_size=2, max_size=9))
def test_a_time_is_a_speed_upside_down(run: list[float], reference: list[float]) -> None:
    throughput = decide(
        launch_means([[x] for x in run], 1), launch_means([[x] for x in reference], 1), LIMITS
    )
    time = decide(
        launch_means([[1 / x] for x in run], -1), launch_means([[1 / x] for x in reference], -1), LIMITS
    )
    assert throughput is not None
    assert time is not None
    assert time.look.estimate == pytest.approx(throughput.look.estimate, abs=1e-9)


@given(st.lists(speeds, min_size=1, max_size=5), st.lists(speeds, min_size=2, max_size=9))
def test_the_decision_says_what_the_bounds_say(run: list[float], reference: list[float]) -> None:
    outcome = decide(logs(*run), logs(*reference), LIMITS)
    assert outcome is not None
    look = outcome.look
    assert look.low < look.estimate < look.high
    proven_slower = look.high < 0 and look.estimate < LIMITS.half
    assert (look.decision == "worse" or look.suspect) == proven_slower
    assert not (look.suspect and look.launches > 1)
    if look.decision in {"ok", "better"}:
        assert look.low > LIMITS.slowdown
