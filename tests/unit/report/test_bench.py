"""pytest-benchmark as the archive: its own JSON, tables and options, in real pytest runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.report import bench, store

if TYPE_CHECKING:
    from pytest_gpuserve.record import Record

CONFTEST = """
    from pathlib import Path
    import pytest
    from pytest_gpuserve.report import bench, store

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(items):
        with bench.counted_as_benchmarks([item for item in items if "case" in item.fixturenames]):
            return (yield)

    def pytest_generate_tests(metafunc):
        if "case" in metafunc.fixturenames:
            marks = bench.mark(metafunc.config)
            records = store.read(Path(__file__).parent / "run")
            params = [pytest.param(r.nodeid, id=f"{r.suite}:{r.case}", marks=marks) for r in records]
            metafunc.parametrize("case", params, indirect=True)

    @pytest.fixture
    def case(request):
        records = store.read(Path(__file__).parent / "run")
        return next(record for record in records if record.nodeid == request.param)
"""
TEST = """
    from pytest_gpuserve.report import bench

    def test_serving(request, case):
        bench.archive(request, case)
        assert case.outcome != "failed", case.text

    def test_other():
        pass
"""


@pytest.fixture
def given(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    story: list[Record],
    trouble: list[Record],
) -> pytest.Pytester:
    """Cases with figures (ok and dead-end, simulated; regressed) and without (dead-end-changed, invalid)."""
    folder = store.RunFolder(pytester.path / "run")
    for record in (*story[:2], trouble[0], trouble[2], trouble[4]):
        folder.write(record)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")  # it costs a second a run
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TEST)
    return pytester


def archived(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    found = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    return {each["param"]: each for each in found}


def test_the_archive_holds_tok_per_s(given: pytest.Pytester) -> None:
    result = given.runpytest("--benchmark-json=out.json")
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.no_fnmatch_line("*fixture was not used*")
    found = archived(given)
    assert set(found) == {
        "kimi_k2_5:no-spec-decode",
        "kimi_k2_5:eagle3-decode",
        "h200_smoke:no-spec-decode",
    }
    assert found["h200_smoke:no-spec-decode"]["group"] == "h200_smoke"
    eagle3 = found["kimi_k2_5:eagle3-decode"]
    assert eagle3["stats"]["ops"] == pytest.approx(1 / eagle3["stats"]["mean"])
    assert eagle3["stats"]["ops"] == pytest.approx(54.1, rel=1e-4)
    assert eagle3["stats"]["rounds"] == 3
    assert eagle3["stats"]["data"] == pytest.approx([1 / 54.0, 1 / 54.1, 1 / 54.2])
    assert eagle3["options"]["timer"] == "seconds_per_output_token"
    assert eagle3["group"] == "kimi_k2_5 (simulated)"
    assert eagle3["extra_info"]["verdict"] == "dead-end"
    assert eagle3["extra_info"]["accept_length"] == 2.31
    assert eagle3["extra_info"]["simulated"] is True


def test_rounds_of_all_launches_are_replayed(trouble: list[Record]) -> None:
    assert bench.seconds_per_token(trouble[0]) == [1 / 82.3, 1 / 82.5, 1 / 82.4, 1 / 82.4]
    assert bench.seconds_per_token(trouble[4]) == [], "invalid rounds are nobody's figures"


def test_the_table_ranks_by_tok_per_s(given: pytest.Pytester) -> None:
    result = given.runpytest("--benchmark-columns=ops,rounds", "-k", "kimi")
    result.stdout.fnmatch_lines(["*benchmark 'kimi_k2_5 (simulated)': 2 tests*", "*eagle3-decode*54.0*3*"])


def test_under_xdist_nothing_is_archived_and_nothing_breaks(given: pytest.Pytester) -> None:
    result = given.runpytest_subprocess("-n1")
    result.assert_outcomes(passed=3, failed=3)


def test_without_pytest_benchmark(given: pytest.Pytester) -> None:
    given.runpytest_subprocess("-p", "no:benchmark", "--strict-markers").assert_outcomes(passed=3, failed=3)


def test_benchmark_only_and_skip(given: pytest.Pytester) -> None:
    given.runpytest("--benchmark-only").assert_outcomes(passed=2, failed=3, skipped=1)
    given.runpytest("--benchmark-skip").assert_outcomes(passed=1, skipped=5)


def test_a_slower_run_is_seen_by_benchmark_compare(given: pytest.Pytester) -> None:
    given.runpytest("--benchmark-save=a", "-k", "eagle3")
    path = given.path / "run" / "records" / "kimi_k2_5--eagle3-decode.json"
    record = json.loads(path.read_text())
    for round_ in record["launches"][0]["rounds"]:
        round_["metrics"]["output_throughput"] *= 0.9
    path.write_text(json.dumps(record))
    result = given.runpytest_subprocess(
        "--benchmark-compare", "--benchmark-compare-fail=mean:5%", "-k", "eagle3"
    )
    assert result.ret == 1
    result.stderr.fnmatch_lines(["*Performance has regressed*"])


def test_what_identifies_the_gpus(story: list[Record]) -> None:
    assert bench.machine_info(story[0].host) == {
        "profile": "rtx-pro-6000-blackwell-x8",
        "product": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "count": 8,
        "compute_capability": "12.0",
        "topology": "pcie",
        "simulated": True,
    }
