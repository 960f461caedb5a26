"""The throughput-latency curve that a list of concurrencies makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_gpuserve.record import Verdict
from pytest_gpuserve.report import cases, curve

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

    from pytest_gpuserve.record import Record


@pytest.fixture
def point(made: SimpleNamespace) -> Callable[..., Record]:
    def make(config: str, workload: str, concurrency: int | None, *rates: float) -> Record:
        found: Record = made.record(
            config,
            Verdict.OK,
            host=made.h200,
            case=f"{config}-{workload}",
            workload=workload,
            launches=[made.launch(*rates)] if rates else [],
            workload_spec={"name": workload, "concurrency": concurrency},
        )
        return found

    return make


def test_one_curve_a_config_and_workload_by_concurrency(point: Callable[..., Record]) -> None:
    records = [
        point("a", "decode_c16", 16, 800.0),
        point("b", "decode_c1", 1, 90.0),
        point("a", "decode_c1", 1, 100.0),
        point("b", "decode_c16", 16, 900.0),
        point("a", "decode_c2", 2, 190.0),
    ]
    found = [[r.case for r in points] for points in curve.curves(records)]
    assert found == [["a-decode_c1", "a-decode_c2", "a-decode_c16"], ["b-decode_c1", "b-decode_c16"]]


def test_a_single_point_is_no_curve(point: Callable[..., Record]) -> None:
    records = [
        point("a", "decode_c1", 1, 100.0),
        point("a", "decode_c2", 2),  # nothing measured
        point("a", "other", 4, 100.0),
        point("a", "open_c9", None, 100.0),  # an open loop whose name looks like it
        point("b", "decode_c2", 2, 100.0),
    ]
    assert curve.curves(records) == []


def test_the_table_holds_throughput_against_latency(point: Callable[..., Record]) -> None:
    table = cases.throughput_latency(
        [point("a", "decode_c1", 1, 200.0, 200.0), point("a", "decode_c8", 8, 800.0)]
    )
    assert table is not None
    first, second = table.rows
    assert first == ("a-decode_c1", "1", "200.0", "#" * 5, "200.0", "180.0", "234.0", "5.00", "6.50", "")
    assert second[:4] == ("a-decode_c8", "8", "800.0", "#" * 20)
    assert "throughput and latency on h200-x1" in table.title


def test_rounds_that_may_not_be_used_are_not_in_it(point: Callable[..., Record]) -> None:
    bad = point("a", "decode_c1", 1, 100.0, 300.0)
    bad.launches[0].rounds[1] = msgspec.structs.replace(bad.launches[0].rounds[1], invalid=["saturated"])
    table = cases.throughput_latency([bad, point("a", "decode_c8", 8, 1000.0)])
    assert table is not None
    assert table.rows[0][2:5] == ("100.0", "#" * 2, "100.0")
