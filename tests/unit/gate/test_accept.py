from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve.errors import BaselineError
from pytest_gpuserve.gate.accept import accept, diff
from pytest_gpuserve.gate.baselines import Baselines
from pytest_gpuserve.gate.verdict import judge
from pytest_gpuserve.record import Launch, Metrics, Record, Round, Spread, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_gpuserve.model import Case, EngineBuild, Host

    Make = Callable[..., Record]

STEADY = (89.2, 90.1, 89.6, 88.9, 89.9, 89.3, 90.0, 89.1)


def launch(mean: float, **changes: Any) -> Launch:
    tpot = 1000 / mean
    metrics = Metrics(output_throughput=mean, tpot_ms=Spread(mean=tpot, p50=tpot, p90=tpot, p99=tpot, n=4))
    return Launch(
        started="2026-11-29T12:00:00+00:00",
        rounds=[Round(duration_s=20, metrics=metrics)] * 3,
        env={"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "0,1", "HF_HOME": "/somewhere"},
        **changes,
    )


@pytest.fixture
def record(host: Host, engine: EngineBuild, make_case: Callable[..., Case]) -> Make:
    """The record of a case; `means` are the throughputs of its launches."""

    def make(*means: float, case: Case | None = None, **changes: Any) -> Record:
        of = case or make_case()
        found = Record(
            suite=of.suite,
            case=of.id,
            config=of.config.id,
            workload=of.workload.name,
            nodeid="",
            place=of.config.place,
            host=host,
            engine=engine,
            verdict=Verdict.RECORDED,
            started="2026-11-29T12:00:00+00:00",
            launches=[launch(mean) for mean in means],
            gated=list(of.config.gate.metrics),
            model=str(of.config.model),
            workload_spec=msgspec.to_builtins(of.workload),
            args=dict(of.config.args),
        )
        return msgspec.structs.replace(found, **changes)

    return make


def path(folder: Path) -> Path:
    return folder / "rtx-pro-6000-blackwell-x8" / "kimi_k2_5.yaml"


def test_what_is_accepted_is_what_the_case_is_held_against(
    tmp_path: Path, record: Make, host: Host, engine: EngineBuild, make_case: Callable[..., Case]
) -> None:
    (change,) = accept(tmp_path, [record(*STEADY)])
    assert change.lines == [
        "kimi_k2_5::no-spec-decode: 8 launches, new",
        "  output_throughput 89.5 tok/s",
        "  tpot_ms 11.17 ms",
    ]
    baseline = Baselines(tmp_path).find(host, make_case())
    assert baseline is not None
    assert baseline.count == 8
    assert baseline.measured is not None
    assert baseline.measured.version == "0.5.15"
    assert baseline.measured.env == {"NCCL_DEBUG": "WARN"}, "what says where a run found things is left out"
    judgement = judge(make_case(), [launch(83.0), launch(83.5)], host=host, engine=engine, baseline=baseline)
    assert judgement.verdict is Verdict.REGRESSED
    assert "not as when" not in judgement.text, "nothing has changed but the figure"


def test_only_the_cases_asked_for_are_written(
    tmp_path: Path, record: Make, make_case: Callable[..., Case]
) -> None:
    one, two = make_case(id="one"), make_case(id="two")
    accept(tmp_path, [record(80.0, 81.0, case=one), record(70.0, 71.0, case=two)])
    before = path(tmp_path).read_text().splitlines()
    accept(tmp_path, [record(90.0, 91.0, case=one), record(60.0, 61.0, case=two)], ["one-decode"])
    after = path(tmp_path).read_text().splitlines()
    moved = [line.strip() for line in set(after) - set(before)]
    assert sorted(line for line in moved if line.startswith("- [9")) == [
        "- [90.0, 90.0, 90.0]",
        "- [91.0, 91.0, 91.0]",
    ]
    assert not any("60.0" in line for line in after)


@pytest.mark.parametrize(
    "name", ["kimi_k2_5::no-spec-decode", "no-spec-decode", "kimi_k2_5", "no-spec-*", "*::no-spec-decode"]
)
def test_a_case_is_asked_for_by_name_suite_or_pattern(tmp_path: Path, record: Make, name: str) -> None:
    assert accept(tmp_path, [record(89.0, 90.0)], [name])


def test_a_name_that_nothing_has_is_an_error_with_the_near_one(tmp_path: Path, record: Make) -> None:
    with pytest.raises(BaselineError, match=r"'no-spec-decod'; did you mean 'kimi_k2_5::no-spec-decode'\?"):
        accept(tmp_path, [record(89.0, 90.0)], ["no-spec-decod"])
    assert not path(tmp_path).exists()


@pytest.mark.parametrize("verdict", [Verdict.RECORDED, Verdict.NO_BASELINE, Verdict.IMPROVED])
def test_without_names_only_what_loses_nothing_is_accepted(
    tmp_path: Path, record: Make, verdict: Verdict
) -> None:
    assert accept(tmp_path, [record(89.0, 90.0, verdict=verdict)])


@pytest.mark.parametrize("verdict", [Verdict.REGRESSED, Verdict.OK, Verdict.NOT_COMPARABLE, Verdict.MEASURED])
def test_a_regression_is_accepted_only_by_name(tmp_path: Path, record: Make, verdict: Verdict) -> None:
    records = [record(60.0, 61.0, verdict=verdict)]
    assert accept(tmp_path, records) == []
    assert accept(tmp_path, records, ["no-spec-decode"])


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.DEAD_END, Verdict.CRASHED, Verdict.SKIPPED])
def test_figures_that_cannot_be_trusted_are_never_accepted(
    tmp_path: Path, record: Make, verdict: Verdict
) -> None:
    with pytest.raises(BaselineError, match=f"is {verdict}: its figures cannot be a baseline"):
        accept(tmp_path, [record(60.0, verdict=verdict)], ["no-spec-decode"])


@pytest.mark.parametrize("how", ["record", "host"])
def test_a_simulated_host_is_never_a_baseline(tmp_path: Path, record: Make, host: Host, how: str) -> None:
    changes = {"record": {"simulated": True}, "host": {"host": msgspec.structs.replace(host, simulated=True)}}
    with pytest.raises(BaselineError, match="simulated host"):
        accept(tmp_path, [record(89.0, 90.0, **changes[how])])
    assert not path(tmp_path).exists()


def test_a_round_without_a_figure_is_not_accepted(tmp_path: Path, record: Make) -> None:
    bad = launch(89.0)
    rounds = [*bad.rounds[:2], msgspec.structs.replace(bad.rounds[2], metrics=Metrics())]
    with pytest.raises(BaselineError, match="without usable output_throughput, tpot_ms"):
        accept(tmp_path, [record(launches=[launch(90.0), msgspec.structs.replace(bad, rounds=rounds)])])


def test_two_gpus_never_share_a_file(tmp_path: Path, record: Make, host: Host) -> None:
    accept(tmp_path, [record(89.0, 90.0)])
    other = msgspec.structs.replace(host, product="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition")
    before = path(tmp_path).read_text()
    with pytest.raises(BaselineError, match="holds figures of 8 x NVIDIA RTX PRO 6000 Blackwell Server"):
        accept(tmp_path, [record(70.0, 71.0, host=other)])
    assert path(tmp_path).read_text() == before


def test_the_first_measured_baseline_brings_the_product(tmp_path: Path, record: Make, host: Host) -> None:
    file = path(tmp_path)
    file.parent.mkdir()
    file.write_text(
        "# Told by somebody.\nsuite: kimi_k2_5\nhost: {count: 8, topology: pcie}\ncases:\n  no-spec-decode:\n"
        "    reported: {source: a forum, metric: output_throughput, value: 89.5, workload: unknown}\n...\n"
    )
    (change,) = accept(tmp_path, [record(91.0, 92.0)])
    assert change.lines[:2] == [
        "kimi_k2_5::no-spec-decode: 2 launches, replaces a reported figure (a forum)",
        "  output_throughput 91.5 tok/s, was 89.5 tok/s (+2.2 %)",
    ]
    text = file.read_text()
    assert text.startswith("# Told by somebody.\n")
    assert host.product in text
    assert "reported" not in text


def test_runs_of_several_days_make_one_baseline(tmp_path: Path, record: Make, host: Host) -> None:
    monday = record(89.0, 90.0)
    tuesday = record(91.0, 92.0, started="2026-11-30T12:00:00+00:00")
    (change,) = accept(tmp_path, [tuesday, monday])
    assert change.after.rounds["output_throughput"] == [[89.0] * 3, [90.0] * 3, [91.0] * 3, [92.0] * 3]


def test_runs_of_different_things_make_none(tmp_path: Path, record: Make, engine: EngineBuild) -> None:
    newer = msgspec.structs.replace(engine, version="0.5.16")
    later = record(91.0, started="2026-11-30T12:00:00+00:00", engine=newer)
    with pytest.raises(BaselineError, match="differ in engine"):
        accept(tmp_path, [record(89.0), later])


def test_the_tolerance_that_stands_there_is_kept_unless_another_is_given(
    tmp_path: Path, record: Make
) -> None:
    accept(tmp_path, [record(89.0, 90.0)], tolerance=0.04)
    assert "tolerance: 4%" in path(tmp_path).read_text()
    accept(tmp_path, [record(91.0, 92.0)])
    assert "tolerance: 4%" in path(tmp_path).read_text()
    accept(tmp_path, [record(91.0, 92.0)], tolerance=0.025)
    assert "tolerance: 2.5%" in path(tmp_path).read_text()


def test_one_launch_is_accepted_and_says_what_it_lacks(tmp_path: Path, record: Make) -> None:
    (change,) = accept(tmp_path, [record(89.0)])
    assert change.lines[-1] == "  one launch gives no interval: comparisons with it are unproven"


def test_diff_tells_the_same_and_writes_nothing(tmp_path: Path, record: Make) -> None:
    accept(tmp_path, [record(89.0, 90.0)])
    before = path(tmp_path).read_text()
    told = [change.lines for change in diff(tmp_path, [record(80.0, 81.0)])]
    assert path(tmp_path).read_text() == before
    assert told == [change.lines for change in accept(tmp_path, [record(80.0, 81.0)])]
    assert "was 89.5 tok/s (-10.1 %)" in told[0][1]


def test_a_broken_file_is_never_written_over(tmp_path: Path, record: Make) -> None:
    accept(tmp_path, [record(89.0, 90.0)])
    cut = path(tmp_path).read_text()[:300]
    path(tmp_path).write_text(cut)
    with pytest.raises(BaselineError):
        accept(tmp_path, [record(91.0, 92.0)])
    assert path(tmp_path).read_text() == cut


def test_an_entry_that_no_case_claims_is_an_orphan(
    tmp_path: Path, record: Make, make_case: Callable[..., Case]
) -> None:
    from pytest_gpuserve.model import Suite

    accept(tmp_path, [record(89.0, 90.0), record(80.0, 81.0, case=make_case(id="renamed"))])
    case = make_case()
    suite = Suite(
        name="kimi_k2_5",
        path="suites/kimi_k2_5.yaml",
        markers=(),
        workloads={"decode": case.workload},
        configs=(case.config,),
    )
    orphans = Baselines(tmp_path).orphans("rtx-pro-6000-blackwell-x8", suite)
    assert [each.case for each in orphans] == ["renamed-decode"]


def _accept_one(folder: Path, found: Record) -> None:
    accept(folder, [found])


def test_processes_that_accept_at_once_lose_nothing(
    tmp_path: Path, record: Make, make_case: Callable[..., Case]
) -> None:
    records = [record(80.0 + n, 81.0 + n, case=make_case(id=f"config-{n}")) for n in range(8)]
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(_accept_one, [(tmp_path, each) for each in records])
    stored = Baselines(tmp_path).cases("rtx-pro-6000-blackwell-x8", "kimi_k2_5")
    assert sorted(stored) == [f"config-{n}-decode" for n in range(8)]
