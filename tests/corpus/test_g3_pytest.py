"""What pytest, pytest-xdist and pytest-benchmark do to expected failures and gates, and what ours does with it: each
case of `g3/pytest/`. The files name their threads. Servers are played; see tests/integration/replayed.py."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuserve.yaml_source import load

sys.path.append(str(Path(__file__).parents[1] / "integration"))
import replayed

FOLDER = Path(__file__).parent / "g3" / "pytest"
SUITE = """\
suite: g3
server: {engine: sglang, model: m}
workloads:
  decode: {concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}
configs:
"""
XFAIL = "xfail: {kind: serve, reason: no kernel for sm120, match: {exception: KeyError, message: ^12$}%s}"
DOCUMENTED = "serving: 12"
SPEEDS = [[90.0, 90.5, 89.5]] * 5


def read(number: str) -> Any:
    """The case's file as data."""
    (path,) = FOLDER.glob(f"{number}-*.yaml")
    return load(path).data


@dataclass
class Run:
    """An inner run of pytest, and what it left."""

    folder: Path
    code: int
    text: str

    def record(self, case: str) -> dict[str, Any]:
        lines = (self.folder / "run" / "records.jsonl").read_text().splitlines()
        return next(one for one in map(json.loads, lines) if one["case"] == case)

    def junit(self, case: str) -> ElementTree.Element:
        cases = ElementTree.parse(self.folder / "x.xml").getroot().iter("testcase")
        return next(one for one in cases if one.get("name") == f"test_serving[{case}]")

    def outcome(self, case: str) -> str:
        """pytest's word for it in the short summary."""
        found = re.search(rf"^([A-Z]+) suites/g3\.yaml::test_serving\[{case}\]", self.text, re.MULTILINE)
        assert found, self.text
        return found[1]


def properties(case: ElementTree.Element) -> dict[str, str]:
    return {str(one.get("name")): str(one.get("value")) for one in case.iter("property")}


def project(folder: Path, configs: str, rounds: dict[str, Any]) -> None:
    (folder / "suites").mkdir()
    (folder / "suites" / "g3.yaml").write_text(SUITE + configs)
    (folder / "conftest.py").write_text(replayed.CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "rounds.json").write_text(json.dumps(rounds))


def run(folder: Path, *arguments: str) -> Run:
    shutil.rmtree(folder / "run", ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "suites",
        "--gpuserve-no-check",
        "--gpuserve-run-dir=run",
        "-ra",
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--junitxml=x.xml", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(folder, done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Dead ends that end in every way, a case without a baseline, and one that the host cannot run."""
    ends = {
        "known": DOCUMENTED,
        "port": "OSError",
        "hang": "pytest.fail",
        "leaks": DOCUMENTED,
        "opens": SPEEDS,
    }
    configs = [
        f"  - {{id: {name}, args: {{page-size: {n}}}, {XFAIL % ''}}}" for n, name in enumerate(ends, 1)
    ]
    configs += ["  - {id: fresh}", "  - {id: eight, requires: {gpus: 8}, args: {page-size: 64}}"]
    folder = tmp_path_factory.mktemp("alone")
    project(folder, "\n".join(configs) + "\n", {**ends, "fresh": SPEEDS, "left": ["leaks"]})
    return run(folder)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Under pytest-xdist: a config of two workloads, a dead end that kills its worker, a case of half its speed."""
    folder = tmp_path_factory.mktemp("shared")
    configs = f"""\
  - {{id: two, gate: none}}
  - {{id: kills, args: {{page-size: 2}}, {XFAIL % ""}}}
  - {{id: slow, args: {{page-size: 3}}}}
"""
    project(folder, configs, {"two": SPEEDS, "kills": "worker", "slow": [[90.0] * 3] * 8})
    suite = folder / "suites" / "g3.yaml"
    record = run(folder, "-k", "slow", "--gpuserve-update-baselines")
    assert record.code == 0, record.text
    second = "  batch: {concurrency: 8, requests: 8, input_tokens: 128, output_tokens: 512}\nconfigs:\n"
    suite.write_text(suite.read_text().replace("configs:\n", second))
    (folder / "rounds.json").write_text(
        json.dumps({"two": SPEEDS, "kills": "worker", "slow": [[45.0, 45.2, 44.8]] * 5})
    )
    (folder / "starts.txt").unlink()
    deselect = ("-k", "two or decode")
    return run(folder, "-n3", "--max-worker-restart=0", "--benchmark-compare-fail=mean:5%", *deselect)


def test_01_an_error_of_the_environment_is_no_expected_failure(alone: Run) -> None:
    assert "outcome XFAIL" in read("01")["observed"]
    assert alone.outcome("port-decode") == "FAILED"
    assert "OSError: port in use" in alone.text
    record = alone.record("port-decode")
    assert (record["verdict"], record["outcome"]) == ("error", "failed")
    assert "OSError: port in use" in record["text"]


def test_02_a_documented_failure_is_an_xfail_wherever_it_is_raised(alone: Run) -> None:
    assert read("02")["observed"].startswith("XFAIL")
    assert alone.outcome("known-decode") == "XFAIL"
    assert alone.record("known-decode")["verdict"] == "dead-end"


def test_03_what_stopping_brings_up_is_never_masked(alone: Run) -> None:
    assert "ERROR at teardown" in read("03")["observed"]["with_raises"]
    assert "ERROR suites/g3.yaml::test_serving[leaks-decode]" in alone.text
    assert "XFAIL suites/g3.yaml::test_serving[leaks-decode]" in alone.text
    error = alone.junit("leaks-decode").find("error")
    assert error is not None
    assert "process 4711 is left" in str(error.get("message"))
    record = alone.record("leaks-decode")
    assert (record["verdict"], record["outcome"]) == ("stop-failed", "failed")
    assert record["text"].startswith("process 4711 is left\nBefore that: dead-end.")
    assert properties(alone.junit("leaks-decode"))["gpuserve_verdict"] == "stop-failed"


def test_04_somebody_else_s_timeout_is_no_expected_failure(alone: Run) -> None:
    assert "XFAIL" in read("04")["observed"]["timeout_signal_no_raises"]
    assert alone.outcome("hang-decode") == "FAILED"
    assert alone.record("hang-decode")["verdict"] == "error"


def test_06_a_dead_end_that_works_says_what_to_change_and_where(alone: Run) -> None:
    observed = read("06")["observed"]
    assert alone.outcome("opens-decode") == observed["terminal"].split()[0]
    failure = alone.junit("opens-decode").find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("[XPASS(strict)] no kernel for sm120")
    text = alone.record("opens-decode")["text"]
    assert "works with sglang 0.5.15" in text
    assert "delete the `xfail:` of config 'opens' at suites/g3.yaml:10" in text
    assert text in alone.text


def test_08_junit_tells_dead_ends_from_skips_by_a_property(alone: Run) -> None:
    assert "pytest.xfail" in read("08")["observed"]["xfail"]
    xfailed, skipped = (alone.junit(case).find("skipped") for case in ("known-decode", "eight-decode"))
    assert xfailed is not None
    assert (xfailed.get("type"), xfailed.get("message")) == ("pytest.xfail", "no kernel for sm120")
    assert skipped is not None
    assert skipped.get("type") == "pytest.skip"
    assert properties(alone.junit("known-decode"))["gpuserve_verdict"] == "dead-end"
    assert alone.record("eight-decode")["verdict"] == "skipped"


def test_10_without_any_baseline_a_case_fails_and_the_run_goes_on(alone: Run) -> None:
    assert "UsageError" in read("10")["observed"]
    assert alone.code == pytest.ExitCode.TESTS_FAILED
    assert alone.outcome("fresh-decode") == "FAILED"
    assert alone.record("fresh-decode")["verdict"] == "no-baseline"
    assert "Traceback" not in alone.text


def test_11_a_slowdown_is_found_under_xdist(shared: Run) -> None:
    assert read("11")["observed"].startswith("1 passed, exit 0")
    assert shared.code == pytest.ExitCode.TESTS_FAILED
    assert shared.outcome("slow-decode") == "FAILED"
    record = shared.record("slow-decode")
    assert record["verdict"] == "regressed"
    assert record["comparisons"][0]["ratio"] == pytest.approx(0.5, abs=0.01)


def test_12_a_config_is_started_once_however_many_workers_there_are(shared: Run) -> None:
    assert "three launches on three workers" in read("12")["observed"]
    starts = (shared.folder / "starts.txt").read_text().split()
    assert starts.count("two") == 1
    assert {shared.record(f"two-{workload}")["verdict"] for workload in ("decode", "batch")} == {"measured"}


def test_13_a_worker_that_dies_fails_its_case_alone_and_once(shared: Run) -> None:
    assert "crashed while running" in read("13")["observed"]
    assert shared.outcome("kills-decode") == "FAILED"
    assert "crashed while running 'suites/g3.yaml::test_serving[kills-decode]'" in shared.text
    assert (shared.folder / "starts.txt").read_text().split().count("kills") == 1
    assert shared.record("slow-decode")["launches"], "the others went on"
    record = shared.record("kills-decode")
    assert (record["verdict"], record["outcome"]) == ("error", "failed")
    assert "crashed while running" in record["text"]


def test_07_and_22_exit_codes_and_a_review_that_is_due(tmp_path: Path) -> None:
    observed = read("07")["observed"]
    assert "expired entries fail" in read("22")["expected"]["behaviour"]
    project(tmp_path, f"  - {{id: known, {XFAIL % ', review: 2026-01-01'}}}\n", {"known": DOCUMENTED})
    only_xfailed = run(tmp_path)
    assert only_xfailed.code == observed["only_xfailed"] == 0
    assert "review" in only_xfailed.text
    assert run(tmp_path, "--gpuserve-strict-review").code == 1
    assert run(tmp_path, "--runxfail").code == observed["runxfail_flag"]
    assert run(tmp_path, "-k", "nothing").code == observed["nothing_selected"]


def test_every_case_file_has_its_test() -> None:
    numbers = {path.name[:2] for path in FOLDER.glob("*.yaml")}
    tested = {
        number
        for name in globals()
        if name.startswith("test_")
        for number in re.findall(r"_(\d\d)(?=_)", name)
    }
    assert numbers == tested
