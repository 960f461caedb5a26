from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve import errors
from pytest_gpuserve.gate.judgement import ERRORS, PASSES, PRECEDENCE
from pytest_gpuserve.gate.verdict import Judgement, judge, to_error
from pytest_gpuserve.model import DeadEnd, Expect, Gate, Launches, ModelRef, Place
from pytest_gpuserve.record import Launch, Metrics, Round, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_gpuserve.gate.baseline import Baseline
    from pytest_gpuserve.model import Case, EngineBuild, Host

    Judge = Callable[..., Judgement]

STEADY = (89.2, 90.1, 89.6, 88.9, 89.9, 89.3, 90.0, 89.1)
NOISY = (85.0, 94.0, 88.0, 92.0, 86.0, 93.0, 87.0, 91.0)


@pytest.fixture
def judged(
    host: Host, engine: EngineBuild, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> Judge:
    """Judge launches against eight steady ones, with whatever else the test says."""

    def run(launches: Sequence[Launch], *, case: Case | None = None, **changes: Any) -> Judgement:
        asked: dict[str, Any] = {"host": host, "engine": engine, "baseline": make_baseline(), **changes}
        return judge(case or make_case(), launches, **asked)

    return run


def flat(*means: float) -> list[Launch]:
    """A launch a mean, of three equal rounds at concurrency 1."""

    def one(mean: float) -> Launch:
        from pytest_gpuserve.record import Spread

        tpot = 1000 / mean
        metrics = Metrics(
            output_throughput=mean, tpot_ms=Spread(mean=tpot, p50=tpot, p90=tpot, p99=tpot, n=4)
        )
        return Launch(started="2026-11-29T12:00:00+00:00", rounds=[Round(duration_s=20, metrics=metrics)] * 3)

    return [one(mean) for mean in means]


def with_metrics(launch: Launch, **metrics: Any) -> Launch:
    """The launch with other values of some metrics in every round."""
    rounds = [
        msgspec.structs.replace(r, metrics=msgspec.structs.replace(r.metrics, **metrics))
        for r in launch.rounds
    ]
    return msgspec.structs.replace(launch, rounds=rounds)


# --- against the baseline ---------------------------------------------------------------------------


def test_ok_with_one_launch_on_a_steady_host(judged: Judge) -> None:
    judgement = judged(flat(89.5))
    assert judgement.verdict is Verdict.OK
    assert not judgement.fails
    assert not judgement.undecided
    assert judgement.stopped_because == "ok after 1 launch"
    assert [c.metric for c in judgement.comparisons] == ["output_throughput", "tpot_ms"]
    assert to_error(judgement) is None


def test_regressed_names_metric_value_reference_tolerance_and_interval(judged: Judge) -> None:
    judgement = judged(flat(83.0, 83.2))
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.stopped_because == "regressed after 2 launches"
    error = to_error(judgement)
    assert isinstance(error, errors.Regressed)
    assert error.comparisons == judgement.comparisons
    first = str(error).splitlines()[0]
    assert first.startswith("output_throughput 83.1 tok/s, -7.2 % against the baseline's 89.5 tok/s: worse (")
    assert "2 launches against 8; tolerance 5 %" in first


def test_one_slow_launch_is_to_be_confirmed_by_another(judged: Judge) -> None:
    judgement = judged(flat(83.0))
    assert (judgement.verdict, judgement.undecided, judgement.fails) == (Verdict.INCONCLUSIVE, True, False)
    assert "looks worse, to be confirmed" in judgement.text
    assert judged(flat(83.0, 89.5, 89.6, 89.4)).verdict is Verdict.INCONCLUSIVE, "nor was it nothing"


def test_the_only_launch_there_may_be_decides(judged: Judge, make_case: Callable[..., Case]) -> None:
    case = make_case(launches=Launches(max=1))
    assert judged(flat(83.0), case=case).verdict is Verdict.REGRESSED


def test_improved_warns_with_the_command_that_accepts_it(judged: Judge) -> None:
    judgement = judged(flat(97.0), run=".gpuserve/runs/now")
    assert judgement.verdict is Verdict.IMPROVED
    assert not judgement.fails
    assert judgement.warnings
    assert "gpuserve baselines accept .gpuserve/runs/now kimi_k2_5::no-spec-decode" in judgement.text
    assert "suites/kimi_k2_5.yaml::test_serving[no-spec-decode]" in judgement.text


def test_improved_fails_when_the_user_wants_a_ratchet(judged: Judge) -> None:
    judgement = judged(flat(97.0), improved_fails=True)
    assert isinstance(to_error(judgement), errors.Improved)


def test_a_noisy_host_gets_another_launch_until_no_more_are_allowed(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    values = (87.5, 88.0, 87.0, 88.5, 87.5)
    for launches in range(1, 5):
        judgement = judged(flat(*values[:launches]), baseline=make_baseline(NOISY))
        assert (judgement.verdict, judgement.undecided) == (Verdict.INCONCLUSIVE, True)
        assert judgement.stopped_because == ""
    judgement = judged(flat(85, 91, 86, 89, 85), baseline=make_baseline(NOISY))
    assert (judgement.verdict, judgement.undecided, judgement.fails) == (Verdict.INCONCLUSIVE, False, False)
    assert judgement.warnings
    assert "undecided after 5 launches" in judgement.stopped_because
    failing = judged(flat(85, 91, 86, 89, 85), baseline=make_baseline(NOISY), inconclusive_fails=True)
    assert isinstance(to_error(failing), errors.Inconclusive)


def test_at_least_so_many_launches_as_the_suite_says(judged: Judge, make_case: Callable[..., Case]) -> None:
    case = make_case(launches=Launches(min=2, max=3))
    waiting = judged(flat(89.5), case=case)
    assert (waiting.verdict, waiting.undecided) == (Verdict.INCONCLUSIVE, True)
    assert judged(flat(89.5, 89.6), case=case).verdict is Verdict.OK


def test_a_further_metric_adds_a_failure_only_far_beyond_noise(judged: Judge) -> None:
    slow = [with_metrics(flat(89.5)[0], tpot_ms=flat(70.0)[0].rounds[0].metrics.tpot_ms)]
    first = judged(slow)
    assert (first.verdict, first.undecided) == (Verdict.INCONCLUSIVE, True), "the primary one alone was ok"
    judgement = judged(slow * 2)
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.text.startswith("tpot_ms 14.29 ms, +27.9 %")
    a_little = [with_metrics(flat(89.5)[0], tpot_ms=flat(88.5)[0].rounds[0].metrics.tpot_ms)]
    assert judged(a_little).verdict is Verdict.OK


def test_the_tolerance_of_the_baseline_goes_before_the_suites(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    assert judged(flat(83.0), baseline=make_baseline(tolerance=0.20)).verdict is Verdict.OK


def test_faster_by_its_estimate_only_is_ok_with_a_warning(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    judgement = judged(flat(96.0, 97.0), baseline=make_baseline(NOISY))
    assert judgement.verdict is Verdict.OK
    assert "not proven" in judgement.warnings[0]


def test_an_empty_list_is_a_mistake_of_the_caller(judged: Judge) -> None:
    with pytest.raises(ValueError, match="no launches"):
        judged([])


# --- few stored launches ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "verdict"), [(89.0, Verdict.OK), (84.0, Verdict.REGRESSED), (95.0, Verdict.IMPROVED)]
)
def test_a_reported_figure_gives_a_point_and_says_so(
    judged: Judge, reported: Baseline, value: float, verdict: Verdict
) -> None:
    judgement = judged(flat(value), baseline=reported)
    assert judgement.verdict is verdict
    assert not judgement.undecided
    (comparison,) = judgement.comparisons
    assert (comparison.against, comparison.low) == ("reported", None)
    assert any("unproven: a reported figure (a forum)" in warning for warning in judgement.warnings)


def test_one_stored_launch_gives_a_point_and_says_so(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    judgement = judged(flat(89.0), baseline=make_baseline((89.5,)))
    assert judgement.verdict is Verdict.OK
    assert "unproven" in judgement.text
    assert "has 1 launch" in judgement.warnings[0]


def test_a_reported_figure_of_another_metric_is_no_baseline(judged: Judge, reported: Baseline) -> None:
    assert reported.reported is not None
    other = msgspec.structs.replace(reported.reported, metric="request_throughput")
    judgement = judged(flat(89.5), baseline=msgspec.structs.replace(reported, reported=other))
    assert judgement.verdict is Verdict.NO_BASELINE
    assert "has no output_throughput" in judgement.text


# --- no baseline, not comparable --------------------------------------------------------------------


def test_no_baseline_fails_and_prints_the_command_that_records_it(judged: Judge) -> None:
    judgement = judged(flat(89.5), baseline=None)
    assert isinstance(to_error(judgement), errors.NoBaseline)
    assert (
        "pytest 'suites/kimi_k2_5.yaml::test_serving[no-spec-decode]' --gpuserve-update-baselines"
        in judgement.text
    )


def test_a_renamed_case_is_told_where_its_entry_stands(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    old = make_baseline(case="nospec-decode")
    judgement = judged(flat(40.0), baseline=None, orphans=[old])
    assert judgement.verdict is Verdict.NO_BASELINE
    assert "was it renamed? no case claims 'nospec-decode' at baselines/" in judgement.text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"product": "NVIDIA H100 PCIe"}, "GPU product: NVIDIA H100 PCIe, the baseline's NVIDIA RTX PRO"),
        ({"count": 4}, "number of GPUs: 4, the baseline's 8"),
        ({"topology": "nvlink"}, "topology: nvlink, the baseline's pcie"),
    ],
)
def test_another_machine_is_not_comparable(
    judged: Judge, host: Host, changes: dict[str, Any], told: str
) -> None:
    judgement = judged(flat(40.0), host=msgspec.structs.replace(host, **changes))
    assert isinstance(to_error(judgement), errors.NotComparable)
    assert told in judgement.text
    assert not judgement.comparisons, "figures of another machine are not even shown as a ratio"


def test_another_model_revision_is_not_comparable(judged: Judge, make_case: Callable[..., Case]) -> None:
    case = make_case(model=ModelRef(id="moonshotai/Kimi-K2.5", revision="abc"))
    judgement = judged(flat(89.5), case=case)
    assert judgement.verdict is Verdict.NOT_COMPARABLE
    assert "model: moonshotai/Kimi-K2.5@abc, the baseline's moonshotai/Kimi-K2.5" in judgement.text


def test_a_changed_workload_is_not_comparable(judged: Judge, make_case: Callable[..., Case]) -> None:
    judgement = judged(flat(89.5), case=make_case(workload={"concurrency": 2}))
    assert judgement.verdict is Verdict.NOT_COMPARABLE
    assert "workload concurrency: 2, the baseline's 1" in judgement.text


def test_more_rounds_or_another_stall_limit_measure_the_same(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    assert judged(flat(89.5), case=make_case(workload={"rounds": 9, "stall": 5.0})).verdict is Verdict.OK


def test_another_definition_of_the_metrics_is_not_comparable(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    found = make_baseline()
    assert found.measured is not None
    old = msgspec.structs.replace(found, measured=msgspec.structs.replace(found.measured, definition="old-1"))
    judgement = judged(flat(89.5), baseline=old)
    assert judgement.verdict is Verdict.NOT_COMPARABLE
    assert "metric definition: gpuserve-1, the baseline's old-1" in judgement.text


def test_what_is_being_tested_is_shown_when_it_differs_and_compared_all_the_same(
    judged: Judge, engine: EngineBuild, host: Host, make_case: Callable[..., Case]
) -> None:
    judgement = judged(
        [msgspec.structs.replace(flat(89.5)[0], env={"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "3"})],
        case=make_case(args={"tp-size": 8, "attention-backend": "triton"}),
        engine=msgspec.structs.replace(engine, version="0.5.16"),
        host=msgspec.structs.replace(host, driver="590.1"),
    )
    assert judgement.verdict is Verdict.OK
    last = judgement.text.splitlines()[-1]
    for told in (
        "engine version: 0.5.16, the baseline's 0.5.15",
        "driver: 590.1, the baseline's 580.95.05",
        "--attention-backend: triton, the baseline's unset",
        "NCCL_ALGO: Ring, the baseline's unset",
    ):
        assert told in last
    assert "CUDA_VISIBLE_DEVICES" not in last


# --- metrics that vanish, appear or are wrong -------------------------------------------------------


def test_a_metric_that_vanished_is_not_comparable(
    judged: Judge, make_baseline: Callable[..., Baseline]
) -> None:
    stored = make_baseline()
    stored = msgspec.structs.replace(stored, rounds={**stored.rounds, "accept_length": [[2.4] * 3] * 8})
    judgement = judged(flat(89.5), baseline=stored)
    assert judgement.verdict is Verdict.NOT_COMPARABLE
    assert judgement.text.startswith("accept_length has vanished")


def test_a_metric_that_appeared_has_no_baseline(judged: Judge) -> None:
    judgement = judged([with_metrics(flat(89.5)[0], accept_length=2.4)])
    assert judgement.verdict is Verdict.NO_BASELINE
    assert judgement.text.startswith("accept_length has appeared")


def test_a_default_metric_that_nobody_yields_is_dropped(judged: Judge) -> None:
    assert judged(flat(89.5)).verdict is Verdict.OK


def test_a_metric_that_the_suite_names_must_be_there(judged: Judge, make_case: Callable[..., Case]) -> None:
    case = make_case(gate=Gate(metrics=("output_throughput", "goodput"), explicit=True))
    judgement = judged(flat(89.5), case=case)
    assert isinstance(to_error(judgement), errors.Invalid)
    assert "no round yields goodput, which the suite gates" in judgement.text


def test_the_primary_metric_must_be_there(judged: Judge, make_case: Callable[..., Case]) -> None:
    judgement = judged(flat(89.5), case=make_case(gate=Gate(metrics=("goodput", "output_throughput"))))
    assert judgement.verdict is Verdict.INVALID


def test_speculation_without_an_accept_length_is_invalid(judged: Judge) -> None:
    assert judged(flat(89.5), speculative=True).verdict is Verdict.INVALID
    assert judged(flat(89.5), speculative=False).verdict is Verdict.OK


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None])
def test_a_value_that_is_no_figure_is_invalid_and_says_where(judged: Judge, value: float | None) -> None:
    launches = flat(89.5, 89.5)
    broken = msgspec.structs.replace(launches[1].rounds[0], metrics=Metrics(output_throughput=value))
    launches[1] = msgspec.structs.replace(launches[1], rounds=[*launches[1].rounds[:2], broken])
    judgement = judged(launches)
    assert judgement.verdict is Verdict.INVALID
    assert "launch 2, round 3: output_throughput is " in judgement.text


def test_an_accept_length_of_exactly_one_warns(judged: Judge, make_baseline: Callable[..., Baseline]) -> None:
    stored = make_baseline()
    stored = msgspec.structs.replace(stored, rounds={**stored.rounds, "accept_length": [[1.0] * 3] * 8})
    judgement = judged([with_metrics(flat(89.5)[0], accept_length=1.0)], baseline=stored)
    assert judgement.verdict is Verdict.OK
    assert any("exactly 1.00" in warning for warning in judgement.warnings)


def test_an_accept_length_of_exactly_one_warns_where_it_is_not_gated(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    case = make_case(gate=Gate(metrics=("output_throughput",), explicit=True))
    said = {
        length: judged([with_metrics(flat(89.5)[0], accept_length=length)], case=case).warnings
        for length in (1.0, 1.01, 2.4)
    }
    assert [bool(warnings) for warnings in said.values()] == [True, False, False], said


@pytest.mark.parametrize("also", [{}, {"updating": True}, {"baseline": None}])
def test_an_invalid_round_goes_before_everything(judged: Judge, also: dict[str, Any]) -> None:
    launch = flat(40.0)[0]
    throttled = msgspec.structs.replace(launch.rounds[1], invalid=["GPU 1 throttled: SW thermal slowdown"])
    judgement = judged([msgspec.structs.replace(launch, rounds=[launch.rounds[0], throttled])], **also)
    assert isinstance(to_error(judgement), errors.Invalid)
    assert judgement.text == "launch 1, round 2: GPU 1 throttled: SW thermal slowdown"
    assert not judgement.undecided


# --- hypotheses and recording -----------------------------------------------------------------------


def test_a_hypothesis_is_measured_beside_its_partner_and_never_judged(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    case = make_case(gate=Gate(metrics=()), compare_to="no-spec", id="way-out")
    judgement = judged(flat(40.0), case=case, baseline=None, partner_launches=flat(89.5))
    assert (judgement.verdict, judgement.fails, judgement.undecided) == (Verdict.MEASURED, False, False)
    assert judgement.text.splitlines()[0] == "output_throughput 40.0 tok/s, tpot_ms 25.00 ms"
    assert {c.decision for c in judgement.comparisons} == {"note"}
    assert "-55.3 % against the partner's 89.5 tok/s" in judgement.text


def test_a_hypothesis_without_its_partner_passes_with_a_warning(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    case = make_case(gate=Gate(metrics=()), compare_to="no-spec", id="way-out")
    judgement = judged(flat(40.0), case=case, baseline=None)
    assert judgement.verdict is Verdict.MEASURED
    assert "no result in this run" in judgement.warnings[0]


def test_recording_takes_as_many_launches_as_a_baseline_and_tells_what_it_replaces(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    case = make_case(launches=Launches(baseline=3))
    assert judged(flat(60.0, 60.0), case=case, updating=True).undecided
    judgement = judged(flat(60.0, 60.0, 60.0), case=case, updating=True)
    assert (judgement.verdict, judgement.fails, judgement.undecided) == (Verdict.RECORDED, False, False)
    assert "-33.0 % against the baseline's 89.5 tok/s" in judgement.text
    assert {c.decision for c in judgement.comparisons} == {"note"}


def test_a_first_recording_has_nothing_to_replace(judged: Judge) -> None:
    judgement = judged(flat(60.0), updating=True, baseline=None)
    assert judgement.verdict is Verdict.RECORDED
    assert not judgement.comparisons


# --- partners ---------------------------------------------------------------------------------------


def test_slower_than_its_partner_fails(judged: Judge, make_case: Callable[..., Case]) -> None:
    case = make_case(compare_to="plain")
    assert judged(flat(89.5), case=case, partner_launches=flat(120.0)).undecided
    judgement = judged(flat(89.5, 89.6), case=case, partner_launches=flat(120.0))
    assert isinstance(to_error(judgement), errors.SlowerThanPartner)
    assert "slower than plain" in judgement.text
    partner = judgement.comparisons[-1]
    assert partner.against == "partner"
    assert partner.low is not None, "the baseline tells how launches scatter"


def test_faster_than_its_partner_is_shown_with_an_interval(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    judgement = judged(flat(89.5), case=make_case(compare_to="plain"), partner_launches=flat(60.0))
    assert judgement.verdict is Verdict.OK
    assert "+49.2 % against the partner's 60.0 tok/s: better" in judgement.text


def test_a_partner_of_an_earlier_run_is_its_baseline(
    judged: Judge, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    other = make_baseline((120.0, 120.5, 119.5), model="another/Model")
    judgement = judged(flat(89.5, 89.6), case=make_case(compare_to="plain"), partner_baseline=other)
    assert judgement.verdict is Verdict.SLOWER
    assert "2 launches against 3" in judgement.text


def test_no_partner_fails_and_says_what_is_missing(judged: Judge, make_case: Callable[..., Case]) -> None:
    judgement = judged(flat(89.5), case=make_case(compare_to="plain"))
    assert isinstance(to_error(judgement), errors.NoPartner)
    assert (
        "plain-decode, which it is compared to, has no result in this run and no baseline" in judgement.text
    )


def test_a_partner_whose_launches_are_invalid_does_not_count(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    launch = flat(60.0)[0]
    invalid = [msgspec.structs.replace(r, invalid=["failed"]) for r in launch.rounds]
    judgement = judged(
        flat(89.5),
        case=make_case(compare_to="plain"),
        partner_launches=[msgspec.structs.replace(launch, rounds=invalid)],
    )
    assert judgement.verdict is Verdict.NO_PARTNER


def test_a_partners_baseline_under_another_workload_does_not_count(
    judged: Judge, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    other = make_baseline(workload={"concurrency": 64, "input_tokens": 128, "output_tokens": 512})
    judgement = judged(flat(89.5), case=make_case(compare_to="plain"), partner_baseline=other)
    assert judgement.verdict is Verdict.NO_PARTNER
    assert "not comparable (workload concurrency" in judgement.text


def test_regressed_goes_before_a_missing_partner_and_both_are_told(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    judgement = judged(flat(60.0, 60.5), case=make_case(compare_to="plain"))
    assert judgement.verdict is Verdict.REGRESSED
    assert "plain-decode, which it is compared to" in judgement.text


# --- dead ends of kind slower -----------------------------------------------------------------------


def slower(**changes: Any) -> DeadEnd:
    known = DeadEnd(
        kind="slower",
        reason="122 all-reduces a verify pass",
        place=Place("suites/kimi_k2_5.yaml", 30),
        expect=Expect(metric="output_throughput", value=54.1, tolerance=0.15),
    )
    return msgspec.structs.replace(known, **changes)


@pytest.mark.parametrize(
    ("value", "verdict", "expected"),
    [
        (54.0, Verdict.SLOWER, "ok"),
        (40.0, Verdict.SLOWER, "worse"),
        (80.0, Verdict.SLOWER, "better"),
        (89.0, Verdict.OK, "better"),
        (120.0, Verdict.OK, "better"),
    ],
)
def test_a_slower_dead_end_is_held_against_its_partner_and_its_document(
    judged: Judge, make_case: Callable[..., Case], value: float, verdict: Verdict, expected: str
) -> None:
    judgement = judged(
        flat(value),
        case=make_case(compare_to="no-spec", id="eagle3"),
        baseline=None,
        partner_launches=flat(89.5),
        dead_end=slower(),
    )
    assert judgement.verdict is verdict
    assert judgement.fails == (verdict is Verdict.SLOWER)
    decisions = {c.against: c.decision for c in judgement.comparisons}
    assert decisions["expect"] == expected
    assert decisions["partner"] == (
        "worse" if verdict is Verdict.SLOWER else "better" if value > 95 else "ok"
    )


def test_a_slower_dead_end_needs_no_baseline_and_ignores_one(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    case = make_case(compare_to="no-spec", id="eagle3")
    judgement = judged(flat(54.0), case=case, partner_launches=flat(89.5), dead_end=slower())
    assert judgement.verdict is Verdict.SLOWER


def test_a_slower_dead_end_against_a_reported_partner_is_a_point(
    judged: Judge, make_case: Callable[..., Case], reported: Baseline
) -> None:
    judgement = judged(
        flat(54.0),
        case=make_case(compare_to="no-spec", id="eagle3"),
        baseline=None,
        partner_baseline=reported,
        dead_end=slower(),
    )
    assert judgement.verdict is Verdict.SLOWER
    assert "unproven" in judgement.text


def test_a_slower_dead_end_is_not_recorded(judged: Judge, make_case: Callable[..., Case]) -> None:
    case = make_case(compare_to="no-spec", id="eagle3")
    judgement = judged(flat(54.0), case=case, partner_launches=flat(89.5), dead_end=slower(), updating=True)
    assert judgement.verdict is Verdict.SLOWER


def test_a_slower_dead_end_without_a_partner_cannot_be_held_against_anything(
    judged: Judge, make_case: Callable[..., Case]
) -> None:
    case = make_case(compare_to="no-spec", id="eagle3")
    assert judged(flat(54.0), case=case, dead_end=slower()).verdict is Verdict.NO_PARTNER


def test_a_slower_dead_end_in_doubt_gets_launches_and_then_stands(
    judged: Judge, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    case = make_case(compare_to="no-spec", id="eagle3")
    ask = {"case": case, "partner_baseline": make_baseline(NOISY), "dead_end": slower(), "baseline": None}
    doubtful = (86.0, 87.5, 85.0, 88.0, 86.0)
    first = judged(flat(*doubtful[:1]), **ask)
    assert (first.verdict, first.undecided, first.fails) == (Verdict.INCONCLUSIVE, True, False)
    last = judged(flat(*doubtful), **ask)
    assert (last.verdict, last.undecided) == (Verdict.SLOWER, False)
    assert "neither proven nor excluded" in last.warnings[0]


def test_a_dead_end_of_another_kind_changes_nothing(judged: Judge) -> None:
    assert judged(flat(89.5), dead_end=slower(kind="serve")).verdict is Verdict.OK


# --- the table --------------------------------------------------------------------------------------


def test_every_verdict_that_can_fail_has_its_exception() -> None:
    assert set(PRECEDENCE) - PASSES <= set(ERRORS)
    assert all(kind.verdict is verdict for verdict, kind in ERRORS.items())


def test_the_table_in_the_documentation_is_the_precedence() -> None:
    from pytest_gpuserve.gate import verdict as module

    assert module.__doc__ is not None
    table = module.__doc__.split("=\n")[1]
    rows = [line.split()[0] for line in table.splitlines() if line and line[0].isalpha()]
    told = [Verdict(row) for row in rows]
    # The second `slower-than-partner` is the one of an ordinary case.
    told.remove(Verdict.SLOWER)
    assert tuple(told) == PRECEDENCE


# --- what to do -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ((89.5,), {"baseline": None}),
        ((83.0, 83.2), {}),
        ((97.0,), {}),
        ((89.5,), {"product": "other"}),
    ],
)
def test_no_command_is_told_that_the_simulated_host_cannot_follow(
    judged: Judge, host: Host, values: tuple[float, ...], changes: dict[str, Any]
) -> None:
    asked = {"product": host.product, **changes}
    simulated = msgspec.structs.replace(host, simulated=True, product=asked.pop("product"))
    text = judged(flat(*values), host=simulated, **asked).text
    assert "--gpuserve-update-baselines" not in text
    assert "gpuserve baselines accept" not in text


def test_a_regression_that_is_meant_can_be_accepted_and_says_so_once(judged: Judge) -> None:
    text = judged(flat(80.0, 80.4), run="RUN").text
    assert text.count("gpuserve baselines accept RUN kimi_k2_5::no-spec-decode") == 1
