from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_gpuserve.model import EngineBuild
from pytest_gpuserve.record import Record, Verdict
from pytest_gpuserve.report.compare import Difference, compare, tables

if TYPE_CHECKING:
    from types import SimpleNamespace


@pytest.fixture
def runs(made: SimpleNamespace) -> tuple[list[Record], list[Record]]:
    """SGLang 0.5.15 and 0.5.16 on one H200: one case slower, one undecided, one failed, some not in both."""

    def case(config: str, verdict: Verdict, *rates: float, **extra: object) -> Record:
        facts = {
            "host": made.h200,
            "suite": "h200_smoke",
            "launches": [made.launch(r, r * 1.001) for r in rates],
        }
        return made.record(config, verdict, **(facts | extra))  # type: ignore[no-any-return]

    newer = EngineBuild(name="sglang", version="0.5.16")
    ok, args = Verdict.OK, {"tp-size": 8, "attention-backend": "fa3"}
    a = [
        case("no-spec", ok, 100.0, 101.0, 100.5, 99.5, line=1),
        case("ngram", ok, 120.0, line=2),
        case("chunked", ok, 90.0, line=3),
        case("moved", ok, 90.0, line=4),
        case("gone", ok, 90.0, line=5),
    ]
    b = [
        case("no-spec", Verdict.REGRESSED, 92.0, 92.5, 91.5, line=1, engine=newer, args=args),
        case("ngram", ok, 121.0, line=2, engine=newer),
        case("chunked", Verdict.START_FAILED, line=3, engine=newer, launches=[]),
        case(
            "moved",
            ok,
            90.0,
            line=4,
            engine=newer,
            host=replace(made.h200, product="NVIDIA H200 NVL"),
            workload_spec={"name": "decode", "concurrency": 8, "requests": 4, "rounds": 5},
        ),
        case("new", Verdict.NO_BASELINE, 90.0, line=6, engine=newer),
    ]
    return a, b


def test_cases_are_joined(runs: tuple[list[Record], list[Record]]) -> None:
    pairs = compare(*runs)
    assert [(pair.case.removesuffix("-decode"), pair.state) for pair in pairs] == [
        ("no-spec", "compared"),
        ("ngram", "compared"),
        ("chunked", "compared"),
        ("moved", "not-comparable"),
        ("gone", "only-in-a"),
        ("new", "only-in-b"),
    ]
    assert [(pair.verdict_a, pair.verdict_b) for pair in pairs[2:]] == [
        ("ok", "start-failed"),
        ("ok", "ok"),
        ("ok", None),
        (None, "no-baseline"),
    ]


def test_a_change_is_proven_only_beyond_its_interval(runs: tuple[list[Record], list[Record]]) -> None:
    no_spec, ngram, chunked, *_ = compare(*runs)
    throughput, tpot = no_spec.figures
    assert (throughput.metric, throughput.change) == ("output_throughput", "worse")
    assert throughput.low is not None
    assert throughput.high is not None
    assert throughput.low < throughput.ratio < throughput.high < 1
    assert throughput.ratio == pytest.approx(0.917, abs=0.001)
    assert (tpot.metric, tpot.change) == ("tpot_ms", "worse"), "a time that grew is worse"
    assert [figure.change for figure in ngram.figures] == ["unproven", "unproven"]
    assert ngram.figures[0].low is None, "one launch each says nothing of how launches scatter"
    assert chunked.figures == []


def test_the_interval_is_students_at_95_percent(made: SimpleNamespace) -> None:
    from scipy import stats

    a, b = (100.0, 101.0, 100.5, 99.5), (92.0, 92.5, 91.5)
    runs = [[made.record("x", Verdict.OK, launches=[made.launch(r) for r in rates])] for rates in (a, b)]
    figure = compare(*runs)[0].figures[0]
    expected = stats.ttest_ind([math.log(r) for r in b], [math.log(r) for r in a]).confidence_interval(0.95)
    assert figure.low == pytest.approx(math.exp(expected.low), rel=1e-4)
    assert figure.high == pytest.approx(math.exp(expected.high), rel=1e-4)


def test_the_same_run_has_not_changed(runs: tuple[list[Record], list[Record]]) -> None:
    for pair in compare(runs[0], runs[0]):
        assert pair.state == "compared"
        assert not pair.differs
        assert all(figure.ratio == 1 and figure.change == "unproven" for figure in pair.figures)


def test_what_forbids_and_what_may_explain(runs: tuple[list[Record], list[Record]]) -> None:
    no_spec, _, _, moved, *_ = compare(*runs)
    assert no_spec.differs == [
        Difference("engine version", "0.5.15", "0.5.16"),
        Difference("--attention-backend", "unset", "fa3"),
    ]
    assert moved.forbids == [
        Difference("GPU product", "NVIDIA H200", "NVIDIA H200 NVL"),
        Difference("workload concurrency", "1", "8"),
    ], "the number of rounds changes how sure a figure is, not what it is"
    assert moved.figures == []


def test_a_simulated_run_is_never_compared_with_a_real_one(
    made: SimpleNamespace, story: list[Record]
) -> None:
    real = replace(story[0], simulated=False, host=replace(story[0].host, simulated=False))
    (pair,) = compare(story[:1], [real])
    assert pair.state == "not-comparable"
    assert pair.forbids == [Difference("simulated", "True", "False")]


def test_the_gated_metrics_are_compared(made: SimpleNamespace) -> None:
    record = made.record(
        "x",
        Verdict.OK,
        launches=[made.launch(90.0)],
        gated=["ttft_ms"],
    )
    (pair,) = compare([record], [record])
    assert [figure.metric for figure in pair.figures] == ["ttft_ms"]


def test_tables(runs: tuple[list[Record], list[Record]]) -> None:
    found = tables(compare(*runs), "old", "new")
    assert [table.title for table in found] == [
        "B (new) against A (old)",
        "not comparable",
        "what else differs",
        "only in A (old)",
        "only in B (new)",
    ]
    compared, forbidden, differs, only_a, only_b = found
    assert compared.rows[0][:2] == ("no-spec-decode", "output tok/s")
    assert compared.rows[0][5:] == ("worse", "ok -> regressed")
    assert compared.rows[1][0] == "", "a case is named once"
    assert compared.rows[-1] == ("chunked-decode", "", "", "", "", "", "ok -> start-failed")
    assert compared.notes
    assert forbidden.rows[0] == ("moved-decode", "GPU product", "NVIDIA H200", "NVIDIA H200 NVL")
    assert differs.rows == (
        ("engine version", "0.5.15", "0.5.16", "all"),
        ("--attention-backend", "unset", "fa3", "no-spec-decode"),
    )
    assert only_a.rows == (("gone-decode", "ok"),)
    assert only_b.rows == (("new-decode", "no-baseline"),)


def test_simulated_cases_are_marked(story: list[Record]) -> None:
    (table,) = tables(compare(story[:1], story[:1]), "a", "b")
    assert table.rows[0][0] == "no-spec-decode (simulated)"
