from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_gpuserve.gate.calibrate import advise, calibrate
from pytest_gpuserve.model import EngineBuild, Host, Place
from pytest_gpuserve.record import Launch, Metrics, Record, Round, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence


def drawn(noise: float, launches: int = 8) -> list[list[float]]:
    """Launches of three rounds whose launch noise and round noise are exactly alike in size."""
    rng = np.random.default_rng(3)
    between, within = rng.standard_normal((launches, 1)), rng.standard_normal((launches, 3))
    within -= within.mean(axis=1, keepdims=True)
    between = (between - between.mean()) / between.std(ddof=1)
    within /= np.sqrt((within**2).sum() / (launches * 2))
    return (90 * np.exp(noise * between + noise * within)).tolist()


def test_the_scatter_of_launches_and_of_rounds() -> None:
    advice = advise("s::c", "output_throughput", drawn(0.01))
    assert advice.between == pytest.approx(0.01, rel=1e-3)
    assert advice.within == pytest.approx(0.01, rel=1e-3)


def test_a_quiet_host_needs_one_launch() -> None:
    advice = advise("s::c", "output_throughput", drawn(0.005))
    assert (advice.tolerance, advice.most) == (0.05, 1)


def test_a_host_as_noisy_as_the_default_is_made_for_needs_more() -> None:
    advice = advise("s::c", "output_throughput", drawn(0.018))
    assert (advice.tolerance, advice.most) == (0.05, 5)
    sizes = [size for size in advice.smallest.values() if size is not None]
    assert sizes == sorted(sizes, reverse=True), "more launches find smaller slowdowns"


def test_a_noisy_host_gets_a_wider_tolerance() -> None:
    advice = advise("s::c", "output_throughput", drawn(0.04))
    assert advice.most == 5
    assert advice.tolerance is not None
    assert 0.08 < advice.tolerance < 0.15
    assert advice.lines[2] == f"  proposed: tolerance: {advice.tolerance * 100:.3g}%, launches: {{max: 5}}"


def test_hopeless_noise_is_called_so() -> None:
    advice = advise("s::c", "output_throughput", drawn(1.5))
    assert advice.tolerance is None
    assert "find the cause" in advice.lines[2]


def test_few_launches_are_called_few() -> None:
    assert "few to go by" in advise("s::c", "output_throughput", drawn(0.01, 3)).lines[0]
    assert "few to go by" not in advise("s::c", "output_throughput", drawn(0.01, 8)).lines[0]


def test_for_times_as_for_throughput() -> None:
    times = [[1000 / value for value in rounds] for rounds in drawn(0.01)]
    assert advise("s::c", "tpot_ms", times).between == pytest.approx(0.01, rel=1e-3)


def as_record(launches: Sequence[Sequence[float]], *, case: str = "no-spec-decode") -> Record:
    return Record(
        suite="kimi",
        case=case,
        config="no-spec",
        workload="decode",
        nodeid="",
        place=Place("suites/kimi.yaml", 1),
        host=Host(
            profile="h200-x1",
            product="NVIDIA H200",
            count=1,
            compute_capability="9.0",
            topology="single",
            driver="",
            memory_gib=141,
        ),
        engine=EngineBuild(name="sglang", version="0.5.15"),
        verdict=Verdict.OK,
        launches=[
            Launch(
                started="",
                rounds=[Round(duration_s=1, metrics=Metrics(output_throughput=v)) for v in values],
            )
            for values in launches
        ],
    )


def test_the_launches_of_all_records_of_a_case_count_together() -> None:
    eight = drawn(0.01)
    records = [as_record(eight[:3]), as_record(eight[3:]), as_record(eight[:1], case="one-decode")]
    (advice,) = calibrate(records)
    assert advice.case == "kimi::no-spec-decode"
    assert advice.launches == 8
