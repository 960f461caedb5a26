"""The founding suite on the simulated host, as a user runs it, and how people see the gate work on it."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = "suites/kimi_k2_5.yaml"

HYPOTHESES = {"nccl-tree-allreduce", "ep-native", "pcie-ipc-allreduce"}
DEAD_ENDS = {
    "eagle3": ("slower", None),
    "flashinfer-allreduce-fusion": ("start", "cuda_graph_capture"),
    "custom-allreduce-pcie": ("slower", None),
    "nccl-tree": ("start", "cuda_graph_capture"),
    "torch-symm-mem": ("start", "comm_init"),
    "ep-flashinfer-a2a": ("start", None),
    "ep-deepep": ("missing", "weights_load"),
}


@pytest.fixture
def project(pytester):
    """The suite and its baselines in a folder of their own, as a fresh clone has them."""
    shutil.copytree(ROOT / "suites", pytester.path / "suites")
    shutil.copytree(ROOT / "baselines", pytester.path / "baselines")
    pytester.makepyprojecttoml('[tool.pytest]\nminversion = "9.0"\nstrict = true\n')
    return pytester


def records(project):
    runs = sorted((project.path / ".gpuserve" / "runs").iterdir())
    lines = (runs[-1] / "records.jsonl").read_text().splitlines()
    return {record["config"]: record for record in map(json.loads, lines)}


def test_the_whole_suite_tells_the_story(project):
    result = project.runpytest_subprocess(
        "suites",
        "-m",
        "blackwell",
        "--gpuserve-simulate",
        "--gpuserve-strict-skips",
        "--junitxml=x.xml",
        "-v",
    )
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=1, xfailed=7, skipped=3)
    found = records(project)
    assert found["no-spec"]["verdict"] == "ok"
    assert {name for name, record in found.items() if record["outcome"] == "skipped"} == HYPOTHESES
    for name, (kind, phase) in DEAD_ENDS.items():
        record = found[name]
        assert (record["verdict"], record["dead_end_kind"]) == ("dead-end", kind), record
        assert record["reason"]
        if phase is not None:
            assert record["failure"]["phase"] == phase, name
    assert all(record["simulated"] and record["host"]["simulated"] for record in found.values())
    text = result.stdout.str()
    assert "simulated" in text
    assert re.search(r"\b5[0-5]\.\d\b", text)  # eagle3, as reported, timed on this machine
    cases = ElementTree.parse(project.path / "x.xml").getroot().iter("testcase")
    skipped = {
        case.get("name"): case.find("skipped").get("type")
        for case in cases
        if case.find("skipped") is not None
    }
    assert skipped["test_serving[torch-symm-mem-decode]"] == "pytest.xfail"
    assert skipped["test_serving[ep-native-decode]"] == "pytest.skip"


def test_a_later_stock_version_shows_what_had_changed_by_then(project):
    result = project.runpytest_subprocess("suites", "-m", "blackwell", "--gpuserve-simulate=sglang==0.5.14")
    assert result.ret == 0, result.stdout.str()
    found = records(project)
    assert found["torch-symm-mem"]["dead_end_kind"] == "inert"
    assert found["ep-flashinfer-a2a"]["failure"]["phase"] == "args"
    assert found["flashinfer-allreduce-fusion"]["failure"]["exception"] == "ValueError"
    assert found["custom-allreduce-pcie"]["outcome"] == "skipped"
    assert "stock SGLang has no way" in found["custom-allreduce-pcie"]["reason"]


def test_a_skip_that_is_no_hypothesis_can_be_red(project):
    arguments = ["-k", "custom-allreduce or ep-native", "--gpuserve-simulate=sglang==0.5.14"]
    assert project.runpytest_subprocess("suites", *arguments).ret == 0
    result = project.runpytest_subprocess("suites", *arguments, "--gpuserve-strict-skips")
    assert result.ret == 1
    assert "custom-allreduce-pcie-decode" in result.stdout.str().splitlines()[-2]
    assert "ep-native" not in result.stdout.str().splitlines()[-2]


def test_a_baseline_file_cut_in_half_fails_its_cases_before_anything_is_started(project):
    path = next((project.path / "baselines").rglob("kimi_k2_5.yaml"))
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    result = run(project, "no-spec or torch-symm-mem")
    assert result.ret == 1
    record = records(project)["no-spec"]
    assert record["verdict"] == "not-comparable"
    assert "kimi_k2_5.yaml" in record["text"]
    assert record["launches"] == []
    assert "Traceback" not in result.stdout.str()


def run(project, select, *perturb):
    arguments = [f"--gpuserve-perturb={one}" for one in perturb]
    return project.runpytest_subprocess("suites", "-k", select, "--gpuserve-simulate", *arguments)


def test_a_slowdown_regresses(project):
    result = run(project, "no-spec", "slowdown:no-spec=8%")
    assert result.ret == 1
    record = records(project)["no-spec"]
    assert record["verdict"] == "regressed"
    text = result.stdout.str()
    assert "no-spec" in text
    assert "Traceback" not in text
    assert "plugin.py" not in text, "our own frames help nobody"


def test_a_dead_end_that_opens_says_what_to_change(project):
    result = run(project, "torch-symm-mem", "opens:torch-symm-mem")
    assert result.ret == 1
    assert records(project)["torch-symm-mem"]["verdict"] == "dead-end-open"
    text = result.stdout.str()
    assert "[XPASS(strict)]" in text
    assert "sglang-torch-symm-mem" in text
    assert "sglang.yaml:" in text, "file and line of the range to end"


def test_a_slower_dead_end_that_opens(project):
    result = run(project, "no-spec or eagle3", "opens:eagle3")
    assert result.ret == 1
    assert records(project)["eagle3"]["verdict"] == "dead-end-open"
    assert "kimi_k2_5.yaml:" in result.stdout.str()


def test_a_dead_end_that_fails_otherwise_shows_both_texts(project):
    result = run(project, "torch-symm-mem", "otherwise:torch-symm-mem")
    assert result.ret == 1
    record = records(project)["torch-symm-mem"]
    assert record["verdict"] == "dead-end-changed"
    text = result.stdout.str()
    assert "dead end changed" in text
    assert "KeyError" in text


def test_a_slower_dead_end_that_became_slower_still_has_changed(project):
    result = run(project, "no-spec or eagle3", "slowdown:eagle3=30%")
    assert result.ret == 1
    assert records(project)["eagle3"]["verdict"] == "dead-end-changed"


@pytest.mark.parametrize(("what", "verdict"), [("crash", "crashed"), ("hang", "stalled")])
def test_a_server_that_ends_in_midstream(project, what, verdict):
    suite = project.path / SUITE
    suite.write_text(suite.read_text().replace("rounds: 3}", "rounds: 3, stall: 20}"))
    result = run(project, "no-spec", f"{what}:no-spec")
    assert result.ret == 1
    record = records(project)["no-spec"]
    assert record["verdict"] == verdict, record["text"]
    assert record["failure"]["phase"] == "serving"


def test_workers_change_nothing(project):
    result = project.runpytest_subprocess(
        "suites",
        "--gpuserve-simulate",
        "-n2",
        "-k",
        "no-spec or eagle3 or torch-symm-mem or ep-deepep or nccl-tree",
    )
    assert result.ret == 0, result.stdout.str()
    found = records(project)
    assert found["no-spec"]["verdict"] == "ok"
    assert {found[name]["verdict"] for name in ("eagle3", "torch-symm-mem", "ep-deepep", "nccl-tree")} == {
        "dead-end"
    }


def test_without_the_hardware_everything_is_skipped_and_that_can_be_red(project):
    result = project.runpytest_subprocess("suites", "-m", "blackwell")
    assert result.ret == 0
    result.assert_outcomes(skipped=11)
    result = project.runpytest_subprocess("suites", "-m", "blackwell", "--gpuserve-require-run")
    assert result.ret == 1
    assert "nothing was run" in result.stdout.str()
    result = project.runpytest_subprocess("suites", "-k", "nothing_like_it", "--gpuserve-require-run")
    assert result.ret == 1


def test_the_archive_of_pytest_benchmark(project):
    result = project.runpytest_subprocess(
        "suites", "-k", "no-spec", "--gpuserve-simulate", "--benchmark-json=bench.json"
    )
    assert result.ret == 0, result.stdout.str()
    (archived,) = json.loads((project.path / "bench.json").read_text())["benchmarks"]
    assert archived["params"] == {"gpuserve_case": "no-spec-decode"}
    assert archived["stats"]["ops"] == pytest.approx(
        records(project)["no-spec"]["launches"][0]["rounds"][0]["metrics"]["output_throughput"], rel=0.1
    )
