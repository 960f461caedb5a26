from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_gpuserve.gate.rounds import figures, usable_only
from pytest_gpuserve.record import Launch, Metrics, Round

if TYPE_CHECKING:
    from collections.abc import Sequence


def launch(*values: float | None, invalid: Sequence[str] = ()) -> Launch:
    rounds = [
        Round(duration_s=20, metrics=Metrics(output_throughput=value), invalid=list(invalid))
        for value in values
    ]
    return Launch(started="2026-11-29T12:00:00+00:00", rounds=rounds)


def test_the_rounds_of_each_launch_by_metric() -> None:
    found = figures([launch(89.0, 90.0), launch(88.0)], ["output_throughput", "tpot_ms"])
    assert found.metrics == {"output_throughput": [[89.0, 90.0], [88.0]]}
    assert found.absent == ("tpot_ms",)
    assert not found.problems


def test_a_round_that_is_invalid_says_which_and_why() -> None:
    launches = [launch(89.0), launch(88.0, 90.0, invalid=["2 requests failed", "the cache was warm"])]
    assert figures(launches, ["output_throughput"]).problems == (
        "launch 2, round 1: 2 requests failed",
        "launch 2, round 1: the cache was warm",
        "launch 2, round 2: 2 requests failed",
        "launch 2, round 2: the cache was warm",
    )


@pytest.mark.parametrize("value", [None, 0.0, -3.0, math.nan, math.inf])
def test_a_metric_that_only_some_rounds_yield_is_a_problem(value: float | None) -> None:
    found = figures([launch(89.0, value)], ["output_throughput"])
    assert not found.metrics
    (problem,) = found.problems
    assert problem.startswith("launch 1, round 2: output_throughput is ")


def test_a_launch_without_rounds_is_a_problem() -> None:
    assert figures([launch(89.0), launch()], ["output_throughput"]).problems == ("launch 2: no rounds",)


def test_a_partner_lends_only_its_valid_launches() -> None:
    launches = [launch(89.0), launch(50.0, invalid=["throttled"]), launch(88.0, None), launch()]
    assert usable_only(launches, "output_throughput") == [[89.0]]
    assert usable_only(launches, "tpot_ms") == []


def test_a_distribution_counts_by_its_median() -> None:
    from pytest_gpuserve.record import Spread

    tpot = Spread(mean=20.0, p50=11.0, p90=30.0, p99=40.0, n=4)
    round_ = Round(duration_s=20, metrics=Metrics(tpot_ms=tpot))
    launches = [msgspec.structs.replace(launch(), rounds=[round_])]
    assert figures(launches, ["tpot_ms"]).metrics == {"tpot_ms": [[11.0]]}
