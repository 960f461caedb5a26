"""What others' gates got wrong in public: each case of `g3/` against ours. The files name their threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpuserve.gate.baseline import Baseline, HostIdentity, Measured, Reported
from pytest_gpuserve.gate.match import workload_identity
from pytest_gpuserve.gate.verdict import Judgement, judge, to_error
from pytest_gpuserve.model import (
    Case,
    Config,
    EngineBuild,
    Gate,
    Host,
    Lengths,
    ModelRef,
    Place,
    Workload,
)
from pytest_gpuserve.record import METRIC_DEFINITION, Launch, Metrics, Round, Spread, Verdict
from pytest_gpuserve.yaml_source import load

FOLDER = Path(__file__).parent / "g3"
HOST = Host(
    profile="h100-nvl-x1",
    product="NVIDIA H100 NVL",
    count=1,
    compute_capability="9.0",
    topology="single",
    driver="570.86",
    memory_gib=94,
    power_limit_w=400,
)
ENGINE = EngineBuild(name="sglang", version="0.5.15")
STEADY = (99.2, 100.4, 99.8, 100.1, 100.6, 99.5, 99.9, 100.3)


def read(number: str) -> Any:
    """The case's file as data."""
    (path,) = FOLDER.glob(f"{number}-*.yaml")
    return load(path).data


def case(config: str = "no-spec", **changes: Any) -> Case:
    workload = Workload(
        name="decode",
        concurrency=1,
        requests=4,
        input_tokens=Lengths(mean=128),
        output_tokens=Lengths(mean=512),
    )
    of = Config(
        id=config,
        place=Place("suites/corpus.yaml", 10),
        engine="sglang",
        model=ModelRef(id="model"),
        args={},
    )
    return msgspec.structs.replace(Case(suite="corpus", config=of, workload=workload), **changes)


def launch(throughput: float, *, invalid: tuple[str, ...] = (), **metrics: Any) -> Launch:
    of = Metrics(output_throughput=throughput, **metrics)
    return Launch(
        started="2026-11-29T12:00:00+00:00",
        rounds=[Round(duration_s=20, metrics=of, invalid=list(invalid))] * 3,
    )


def spread(value: float) -> Spread:
    return Spread(mean=value, p50=value, p90=value, p99=value, n=4)


def baseline(means: tuple[float, ...] = STEADY, **rounds: list[list[float]]) -> Baseline:
    return Baseline(
        case="no-spec-decode",
        place=Place("baselines/h100-nvl-x1/corpus.yaml", 4),
        host=HostIdentity(product=HOST.product, count=1, topology="single"),
        model="model",
        workload=workload_identity(case().workload),
        measured=Measured(
            date="2026-11-01",
            definition=METRIC_DEFINITION,
            driver="570.86",
            power_limit_w=400,
            engine="sglang",
            version="0.5.15",
            build="stock",
        ),
        rounds={"output_throughput": [[mean] * 3 for mean in means], **rounds},
    )


def judged(
    *launches: Launch, against: Baseline | None, of: Case | None = None, host: Host = HOST
) -> Judgement:
    return judge(of or case(), launches, host=host, engine=ENGINE, baseline=against)


def test_09_a_renamed_case_that_is_twice_as_slow_does_not_pass() -> None:
    assert read("09")["observed"] == "1 passed, exit 0"
    stored = baseline()
    judgement = judge(
        case("no-spec-renamed"),
        [launch(50.0)],
        host=HOST,
        engine=ENGINE,
        baseline=None,
        orphans=[stored],
    )
    assert judgement.verdict is Verdict.NO_BASELINE
    assert judgement.fails
    assert "was it renamed? no case claims 'no-spec-decode'" in judgement.text


def test_15_the_text_names_metric_value_reference_tolerance_and_baseline_and_the_right_metric() -> None:
    assert "another variable's name" in read("15")["observed"]
    stored = baseline(tpot_ms=[[10.0] * 3] * 8)
    slow_tpot = launch(100.0, tpot_ms=spread(14.0))
    judgement = judged(slow_tpot, slow_tpot, against=stored)
    assert judgement.verdict is Verdict.REGRESSED
    first = judgement.text.splitlines()[0]
    assert first.startswith("tpot_ms 14.00 ms, +40.0 % against the baseline's 10.00 ms: worse (")
    assert first.endswith("2 launches against 8; tolerance 5 %)")
    worse = [c.metric for c in judgement.comparisons if c.decision == "worse"]
    assert worse == ["tpot_ms"], "and not the throughput, which stands beside it"


def test_15_a_failure_is_confirmed_by_another_launch_before_it_is_one() -> None:
    assert "rerun-to-confirm before fail" in read("15")["expected"]["behaviour"]
    first = judged(launch(80.0), against=baseline())
    assert (first.undecided, first.fails) == (True, False)
    assert judged(launch(80.0), launch(80.3), against=baseline()).verdict is Verdict.REGRESSED
    assert (
        judged(launch(80.0), launch(100.0), launch(99.5), against=baseline()).verdict is not Verdict.REGRESSED
    )


def test_15_there_is_a_zone_between_pass_and_fail_that_asks_for_another_launch() -> None:
    noisy = baseline((93.0, 106.0, 97.0, 103.0, 95.0, 104.0, 98.0, 102.0))
    judgement = judged(launch(96.0), against=noisy)
    assert (judgement.verdict, judgement.undecided, judgement.fails) == (Verdict.INCONCLUSIVE, True, False)


def test_17_a_throttled_round_is_invalid_and_no_regression() -> None:
    assert "INVALID_RUN" in read("17")["expected"]["behaviour"]
    reason = "GPU 1 throttled: software thermal slowdown in 40 of 40 samples, 480 MHz"
    judgement = judged(launch(25.0, invalid=(reason,)), against=baseline())
    assert judgement.verdict is Verdict.INVALID
    assert reason in judgement.text
    assert not judgement.comparisons


def test_18_a_value_inside_the_noise_is_no_regression_where_a_fixed_floor_fails() -> None:
    observed = read("18")["observed"]
    floor, measured = observed["throughput_threshold"], observed["measured"]
    noise = 0.02  # what the thread's own history needs for 97.2 and 96.8 to be ordinary values
    stored = baseline(tuple(98.5 * (1 + noise * z) for z in (-1.2, 0.9, -0.4, 1.3, 0.2, -0.9, 0.6, -0.5)))
    assert all(value < floor for value in measured)
    for value in measured:
        judgement = judged(launch(value), against=stored)
        assert not judgement.fails


def test_18_a_shared_gpu_that_swings_by_13_percent_is_called_noisy_and_not_loosened_in_silence() -> None:
    assert "13%" in read("18")["observed"]["gpu_noise"]
    swinging = baseline((93.0, 106.0, 100.0, 94.0, 107.0, 99.0, 95.0, 106.0))
    launches = [launch(value) for value in (94.0, 104.0, 96.0, 101.0, 93.0)]
    judgement = judged(*launches, against=swinging)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "gpuserve baselines calibrate" in judgement.text


def test_19_rounds_within_a_launch_never_stand_for_launches() -> None:
    """0.3 % within a job against 26 % between jobs: any number of quiet rounds proves nothing."""
    assert read("19")["observed"]["within_job_spread"].startswith("0.3%")
    between = (100.0, 118.0, 92.0, 109.0, 88.0, 113.0, 96.0, 105.0)
    quiet = [100.0 * (1 + 0.003 * z) for z in (-1, 0, 1, 0.5)]
    stored = baseline()
    stored = msgspec.structs.replace(
        stored, rounds={"output_throughput": [[mean * value / 100 for value in quiet] for mean in between]}
    )
    many = [Round(duration_s=20, metrics=Metrics(output_throughput=90.0 * q / 100)) for q in quiet * 25]
    judgement = judged(Launch(started="", rounds=many), against=stored)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    (comparison,) = judgement.comparisons
    assert comparison.low is not None
    assert comparison.high is not None
    assert comparison.low < 0.8
    assert comparison.high > 1.2


def test_19_partners_of_one_run_cancel_what_a_day_does_to_the_host() -> None:
    of = case("candidate")
    of = msgspec.structs.replace(of, config=msgspec.structs.replace(of.config, compare_to="no-spec"))
    day = 0.82  # an environment shift of 18 % at once, as the thread reports
    judgement = judge(
        of,
        [launch(100.0 * day)],
        host=HOST,
        engine=ENGINE,
        baseline=None,
        partner_launches=[launch(100.5 * day)],
        partner_baseline=baseline(),
    )
    partner = next(c for c in judgement.comparisons if c.against == "partner")
    assert partner.ratio == pytest.approx(100.0 / 100.5)
    assert partner.decision == "ok"


def test_20_what_is_only_observed_never_forbids_a_comparison() -> None:
    assert "hz_actual" in read("20")["observed"]
    elsewhere = msgspec.structs.replace(HOST, driver="570.99", power_limit_w=399.9)
    judgement = judged(launch(100.0), against=baseline(), host=elsewhere)
    assert judgement.verdict is Verdict.OK
    assert "driver: 570.99, the baseline's 570.86" in judgement.text


def test_20_the_same_chip_under_another_product_name_does() -> None:
    other = msgspec.structs.replace(HOST, product="NVIDIA H100 PCIe")
    judgement = judged(launch(100.0), against=baseline(), host=other)
    assert judgement.verdict is Verdict.NOT_COMPARABLE


def test_23_tolerance_is_per_case_and_direction_per_metric() -> None:
    assert "direction explicit" in read("23")["expected"]["behaviour"]
    strict, loose = Gate(tolerance=0.03), Gate(tolerance=0.15)
    of = case()
    by_gate = {
        gate.tolerance: judged(
            launch(96.0),
            launch(96.0),
            against=baseline(),
            of=msgspec.structs.replace(of, config=msgspec.structs.replace(of.config, gate=gate)),
        ).verdict
        for gate in (strict, loose)
    }
    assert by_gate == {0.03: Verdict.REGRESSED, 0.15: Verdict.OK}
    latency = Gate(metrics=("ttft_ms",), explicit=True)
    timed = msgspec.structs.replace(of, config=msgspec.structs.replace(of.config, gate=latency))
    stored = baseline(ttft_ms=[[50.0 * 100 / mean] * 3 for mean in STEADY])
    slow, fast = launch(100.0, ttft_ms=spread(60.0)), launch(100.0, ttft_ms=spread(40.0))
    slower = judged(slow, slow, against=stored, of=timed)
    faster = judged(fast, against=stored, of=timed)
    assert (slower.verdict, faster.verdict) == (Verdict.REGRESSED, Verdict.IMPROVED)


def test_a_literal_that_somebody_reported_says_that_it_proves_nothing() -> None:
    told = Baseline(
        case="no-spec-decode",
        place=Place("baselines/h100-nvl-x1/corpus.yaml", 4),
        host=HostIdentity(count=1, topology="single"),
        reported=Reported(source="a thread", metric="output_throughput", value=98.0, workload="unknown"),
    )
    judgement = judged(launch(97.185), against=told)
    assert judgement.verdict is Verdict.OK
    assert to_error(judgement) is None
    assert "unproven" in judgement.warnings[0]


def test_every_case_file_has_its_test() -> None:
    numbers = {path.name[:2] for path in FOLDER.glob("*.yaml")}
    tested = {name.split("_")[1] for name in globals() if name.startswith("test_") and name[5:7].isdigit()}
    assert numbers == tested
