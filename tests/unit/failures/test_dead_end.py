from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from pytest_gpuserve.errors import (
    CaseError,
    Crashed,
    Garbage,
    Inert,
    Invalid,
    NoBaseline,
    Regressed,
    SlowerThanPartner,
    Stalled,
    StartFailed,
)
from pytest_gpuserve.failures.dead_end import changed, judge_failure, open_, review_due
from pytest_gpuserve.model import (
    Case,
    Config,
    DeadEnd,
    EngineBuild,
    Expect,
    Lengths,
    Match,
    ModelRef,
    Place,
    Workload,
)
from pytest_gpuserve.record import Comparison, Failure

HERE = Place("known/mine.yaml", 12)
KEY_ERROR = Failure(
    failure_class="hw_unsupported", phase="comm_init", exception="KeyError", message="12", line=7, rank=3
)
SYMM = (Match(failure_class=("hw_unsupported",), exception="KeyError", message="^12$"),)
CASE = Case(
    suite="kimi",
    config=Config(
        id="symm", place=Place("suites/kimi.yaml", 30), engine="sglang", model=ModelRef(id="m"), args={}
    ),
    workload=Workload(
        name="decode", concurrency=1, requests=1, input_tokens=Lengths(mean=8), output_tokens=Lengths(mean=8)
    ),
)


def end(kind: str = "start", **fields: Any) -> DeadEnd:
    return DeadEnd(kind=kind, reason="no entry for 12", place=HERE, **fields)  # type: ignore[arg-type]


def failed(
    kind: type[CaseError] = StartFailed, failure: Failure | None = KEY_ERROR, **changes: Any
) -> CaseError:
    import msgspec

    return kind("it died", failure=msgspec.structs.replace(failure, **changes) if failure else None)


def test_the_documented_failure_fits() -> None:
    fit = judge_failure(end(phases=frozenset({"comm_init"}), match=SYMM), failed())
    assert fit.fits
    assert "KeyError: 12" in fit.why


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"phase": "weights_load"}, "failed in phase weights_load, not in comm_init"),
        ({"phase": None}, "no phase that is known"),
        ({"failure_class": "software_bug"}, "class is software_bug, not hw_unsupported"),
        ({"exception": "ValueError"}, "raised ValueError, not KeyError"),
        ({"message": "120"}, r"message does not fit '^12$'"),
    ],
)
def test_every_difference_is_told(changes: dict[str, Any], told: str) -> None:
    fit = judge_failure(end(phases=frozenset({"comm_init"}), match=SYMM), failed(**changes))
    assert not fit.fits
    assert told in fit.why


def test_the_module_of_an_exception_does_not_matter() -> None:
    error = failed(exception="torch.OutOfMemoryError", failure_class="oom_gpu", gpus_idle_before=True)
    assert judge_failure(end(match=(Match(exception="OutOfMemoryError"),)), error).fits


def test_any_of_several_matches_will_do() -> None:
    other = Match(message="nothing like it")
    assert judge_failure(end(match=(other, *SYMM)), failed()).fits
    assert not judge_failure(end(match=(other,)), failed()).fits


def test_a_message_of_several_lines_is_searched_by_lines() -> None:
    assert judge_failure(end(match=SYMM), failed(message="first\n12")).fits


def test_no_phases_means_any() -> None:
    assert judge_failure(end(match=SYMM), failed(phase="kv_alloc")).fits


# --- the machine --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu_busy", "port_conflict", "device_lost", "oom_host", "environment"])
@pytest.mark.parametrize("flagged", [True, False])
def test_the_machine_is_never_a_dead_end(name: str, flagged: bool) -> None:
    """Whatever the entry says, and whether or not whoever made the failure flagged it."""
    anything = end(match=(Match(failure_class=(name,)),))
    fit = judge_failure(anything, failed(failure_class=name, environment=flagged))
    assert not fit.fits
    assert "state of the machine" in fit.why


@pytest.mark.parametrize("name", ["oom_gpu", "oom_kv", "oom_graph"])
def test_gpu_memory_counts_only_after_an_idle_check(name: str) -> None:
    documented = end(match=(Match(failure_class=(name,)),))
    assert judge_failure(documented, failed(failure_class=name, gpus_idle_before=True)).fits
    fit = judge_failure(documented, failed(failure_class=name))
    assert not fit.fits
    assert "idle before the start" in fit.why


# --- kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fitting"),
    [
        ("start", {StartFailed}),
        ("missing", set()),
        ("serve", {Crashed, Stalled, Invalid}),
        ("slower", {SlowerThanPartner, Regressed}),
        ("inert", {Inert}),
        ("garbage", {Garbage}),
    ],
)
def test_a_kind_ends_as_it_does(kind: str, fitting: set[type[CaseError]]) -> None:
    every = (
        *(StartFailed, Crashed, Stalled, Invalid, Inert, Garbage, SlowerThanPartner, Regressed, NoBaseline),
    )
    matches = SYMM if kind not in ("slower", "inert") else ()
    found = {one for one in every if judge_failure(end(kind, match=matches), failed(one)).fits}
    assert found == fitting


def test_missing_is_missing_and_nothing_else() -> None:
    absent = end("missing", match=(Match(exception="ImportError"),))
    assert judge_failure(absent, failed(exception="ImportError", failure_class="dependency_missing")).fits
    fit = judge_failure(absent, failed(exception="ImportError", failure_class="dependency_abi"))
    assert not fit.fits
    assert "dependency_abi" in fit.why


def test_a_start_may_fail_at_the_first_request_where_the_entry_says_so() -> None:
    late = end(match=SYMM, phases=frozenset({"warmup", "serving"}))
    assert judge_failure(late, failed(Crashed, phase="serving")).fits
    assert judge_failure(late, failed(StartFailed, phase="warmup")).fits
    assert not judge_failure(end(match=SYMM), failed(Crashed, phase="serving")).fits


def test_a_request_that_is_answered_with_an_error_needs_no_log() -> None:
    documented = end("serve", match=(Match(message="500 Internal"),))
    assert judge_failure(documented, Invalid("4 of 4 requests failed: 500 Internal Server Error")).fits
    assert not judge_failure(documented, Invalid("the cache was warm")).fits


def compared(decision: str, value: float) -> SlowerThanPartner:
    held = Comparison(
        metric="output_throughput",
        against="expect",
        reference=38,
        value=value,
        ratio=value / 38,
        decision=decision,
        text=f"output_throughput {value}",
    )
    return SlowerThanPartner("slower than no-spec", comparisons=(held,))


@pytest.mark.parametrize(
    ("decision", "fits", "told"),
    [
        ("ok", True, "as slow as documented"),
        ("better", True, "faster than documented"),
        ("worse", False, "slower than was ever documented"),
    ],
)
def test_below_its_figure_a_slower_path_has_changed_and_above_it_stays(
    decision: str, fits: bool, told: str
) -> None:
    slow = end("slower", expect=Expect(metric="output_throughput", value=38, tolerance=0.15))
    fit = judge_failure(slow, compared(decision, 30))
    assert (fit.fits, told in fit.why) == (fits, True)


def test_a_documented_figure_must_have_been_measured() -> None:
    slow = end("slower", expect=Expect(metric="tpot_ms", value=38, tolerance=0.15))
    assert not judge_failure(slow, SlowerThanPartner("slower")).fits
    assert judge_failure(end("slower"), SlowerThanPartner("slower")).fits


# --- messages -------------------------------------------------------------------------------------------


def test_a_changed_dead_end_shows_both_side_by_side() -> None:
    documented = end(
        phases=frozenset({"comm_init"}),
        match=SYMM,
        entry="sglang-torch-symm-mem",
        engine_range=">=0.5.7,<0.5.14",
        link="https://example.com/1",
    )
    error = failed(phase="weights_load", exception="ValueError", message="something else " * 10)
    text = changed(documented, error, judge_failure(documented, error))
    assert "known/mine.yaml:12 (sglang-torch-symm-mem, >=0.5.7,<0.5.14): no entry for 12" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ") and line.strip()}
    assert "comm_init" in rows["phase"]
    assert "weights_load" in rows["phase"]
    assert "KeyError" in rows["exception"]
    assert "ValueError" in rows["exception"]
    assert "https://example.com/1" in text
    assert max(map(len, text.splitlines()[3:])) <= 130


def test_a_changed_figure_is_shown_too() -> None:
    slow = end("slower", expect=Expect(metric="output_throughput", value=38, tolerance=0.15))
    error = compared("worse", 20)
    assert "output_throughput 38 within 15%" in changed(slow, error, judge_failure(slow, error))


def test_an_open_dead_end_of_the_registry_says_where_to_end_its_range() -> None:
    known = end(entry="sglang-torch-symm-mem", engine_range=">=0.5.7")
    text = open_(known, case=CASE, nodeid="suites/kimi.yaml::test_serving[symm-decode]", build=EngineBuild(
        name="sglang", version="0.5.24rc1"
    ))  # fmt: skip
    assert "known/mine.yaml:12" in text
    assert "`>=0.5.7` of entry sglang-torch-symm-mem" in text
    assert ",<0.5.24" in text
    assert "sglang 0.5.24rc1" in text
    assert "pytest 'suites/kimi.yaml::test_serving[symm-decode]' --gpuserve-update-baselines" in text


def test_an_open_dead_end_of_the_suite_says_what_to_delete() -> None:
    text = open_(end(), case=CASE, nodeid="x")
    assert "delete the `xfail:` of config 'symm' at known/mine.yaml:12" in text


@pytest.mark.parametrize(
    ("review", "due"),
    [(None, False), (date(2027, 1, 2), False), (date(2027, 1, 1), True), (date(2026, 1, 1), True)],
)
def test_a_review_is_due_from_its_day_on(review: date | None, due: bool) -> None:
    text = review_due(end(review=review), date(2027, 1, 1))
    assert (text is not None) is due
    if text:
        assert "known/mine.yaml:12" in text
