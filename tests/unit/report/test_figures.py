from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_gpuserve.record import Failure, Metrics, Record, Verdict
from pytest_gpuserve.report import figures

if TYPE_CHECKING:
    from types import SimpleNamespace


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (89.46, "89.5"),
        (12345.6, "12346"),
        (100.0, "100.0"),
        (2.314, "2.31"),
        (0.0123, "0.0123"),
        (0.0, "0.00"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert figures.number(value) == text


def test_change_with_and_without_interval(made: SimpleNamespace) -> None:
    assert figures.change(made.comparison(82.4, 89.5)) == "-7.9%"
    assert figures.change(made.comparison(82.4, 89.5, interval=(0.905, 0.936))) == "-7.9% [-9.5%, -6.4%]"
    assert figures.change(made.comparison(100.01, 100.0)) == "0.0%"


def test_metric_leaves_invalid_rounds_out(made: SimpleNamespace) -> None:
    launch = replace(
        made.launch(100.0), rounds=[made.round(100.0), made.round(900.0, invalid=["a request failed"])]
    )
    record = made.record("x", Verdict.OK, launches=[launch])
    assert figures.metric(record, "output_throughput") == pytest.approx(100.0)
    only_invalid = replace(record, launches=[replace(launch, rounds=launch.rounds[1:])])
    assert figures.metric(only_invalid, "output_throughput") is None


def test_metric_weighs_launches_and_not_rounds(made: SimpleNamespace) -> None:
    record = made.record("x", Verdict.OK, launches=[made.launch(90.0, 90.0, 90.0), made.launch(100.0)])
    assert figures.metric(record, "output_throughput") == pytest.approx((90 * 100) ** 0.5)


def test_metric_prefers_what_the_gate_compared(made: SimpleNamespace) -> None:
    record = made.record(
        "x", Verdict.OK, launches=[made.launch(90.0)], comparisons=[made.comparison(91.0, 89.5)]
    )
    assert figures.metric(record, "output_throughput") == 91.0


def test_partner_in_another_metric(made: SimpleNamespace) -> None:
    record = made.record(
        "x",
        Verdict.OK,
        compare_to="no-spec",
        comparisons=[made.comparison(10.0, 20.0, metric="tpot_ms", against="partner")],
    )
    assert figures.times_partner(record) == "0.50x of no-spec in TPOT ms"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(failure_class="x", exception="KeyError", message="12"), "KeyError: 12"),
        (Failure(failure_class="x", exception="AssertionError"), "AssertionError"),
        (Failure(failure_class="x", message="KeyError: 12\nmore"), "KeyError: 12"),
        (Failure(failure_class="x", exception="KeyError", message="KeyError: 12"), "KeyError: 12"),
        (Failure(failure_class="hang_startup"), "hang_startup"),
    ],
)
def test_root_error(failure: Failure, text: str) -> None:
    assert figures.root_error(failure) == text


def test_failed_goes_by_pytests_word_before_the_verdict(made: SimpleNamespace) -> None:
    assert figures.failed(made.record("x", Verdict.REGRESSED))
    assert not figures.failed(made.record("x", Verdict.IMPROVED))
    assert figures.failed(made.record("x", Verdict.IMPROVED, outcome="failed"))
    assert not figures.failed(made.record("x", Verdict.DEAD_END, outcome="xfailed"))


def test_counts_tell_failures_first(story: list[Record], trouble: list[Record]) -> None:
    assert figures.counts(story) == "1 ok, 3 dead-end, 1 skipped"
    assert figures.counts(trouble).startswith("1 regressed, 1 invalid, 1 crashed, 1 dead-end-changed, 1 ok")


def test_every_metric_has_a_label() -> None:
    assert list(figures.LABELS) == list(Metrics.__struct_fields__)


def test_flat_leaves_out_what_is_unknown(story: list[Record]) -> None:
    no_spec, eagle3, symm_mem, _, skipped = map(figures.flat, story)
    assert no_spec["output_throughput"] == 90.2
    assert (no_spec["baseline"], no_spec["baseline_kind"]) == (89.5, "reported")
    assert no_spec["ratio"] == pytest.approx(1.00782, abs=1e-5)
    assert "ratio_low" not in no_spec
    assert "accept_length" not in no_spec
    assert no_spec["simulated"] is True
    assert (eagle3["compare_to"], eagle3["partner_ratio"]) == ("no-spec", pytest.approx(0.599778))
    assert symm_mem["failure"] == "KeyError: 12"
    assert symm_mem["failure_phase"] == "comm_init"
    assert "engine" not in skipped
    assert skipped["launches"] == 0
    for values in map(figures.flat, story):
        assert all(type(value) in {str, int, float, bool} for value in values.values())


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((0.5, 2.0), "-20.0% [-50.0%, +100.0%]"),
        ((0.001, 2.0), "-20.0% [..., +100.0%]"),
        ((0.5, 1000.0), "-20.0% [-50.0%, ...]"),
        ((0.001, 1000.0), "-20.0%"),
    ],
)
def test_a_bound_that_tells_nothing_is_not_told(
    made: SimpleNamespace, interval: tuple[float, float], text: str
) -> None:
    assert figures.change(made.comparison(8.0, 10.0, interval=interval)) == text
