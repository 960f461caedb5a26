"""Recorded rounds through the plugin: what pytest says of a case is what the gate says of its launches."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pytest_gpuserve.gate.baselines import Baselines
from pytest_gpuserve.gate.verdict import judge, to_error
from pytest_gpuserve.record import Launch, Record, Verdict
from pytest_gpuserve.suite import load_suite

sys.path.append(str(Path(__file__).parent))  # the helper beside this file is a conftest, not a package
import replayed

SUITE = """\
suite: recorded
server: {engine: sglang, model: m}
workloads:
  decode: {concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}
configs:
  - {id: steady}
  - {id: slow, args: {page-size: 2}}
  - {id: fast, args: {page-size: 3}}
  - {id: noisy, args: {page-size: 4}}
  - {id: new, args: {page-size: 5}}
  - {id: moved, args: {page-size: 6}}
"""

VERDICTS = {
    "steady": Verdict.OK,
    "slow": Verdict.REGRESSED,
    "fast": Verdict.IMPROVED,
    "noisy": Verdict.INCONCLUSIVE,
    "new": Verdict.NO_BASELINE,
    "moved": Verdict.NOT_COMPARABLE,
}
SPEED = {"slow": 0.92, "fast": 1.15, "noisy": 0.965}
"""Of the run, as a share of the baseline's."""
NOISE = {"noisy": 0.05}
"""Between launches and again between rounds; else 0.8 %."""


def drawn(rng: np.random.Generator, config: str, launches: int, speed: float = 90.0) -> list[list[float]]:
    noise = NOISE.get(config, 0.008)
    between, within = rng.standard_normal((launches, 1)), rng.standard_normal((launches, 3))
    found: list[list[float]] = (speed * np.exp(noise * (between + within))).tolist()
    return found


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> dict[str, list[list[float]]]:
    """A project whose cases have a baseline of eight launches, and the launches that a run will find."""
    rng = np.random.default_rng(6)
    (pytester.path / "suites").mkdir()
    suite = pytester.path / "suites" / "recorded.yaml"
    suite.write_text(SUITE)
    pytester.makeconftest(replayed.CONFTEST)
    rounds = pytester.path / "rounds.json"
    rounds.write_text(json.dumps({name: drawn(rng, name, 8) for name in VERDICTS}))
    result = pytester.runpytest_subprocess("suites", "--gpuserve-no-check", "--gpuserve-update-baselines")
    assert result.ret == 0, result.stdout.str()
    (stored,) = (pytester.path / "baselines").rglob("recorded.yaml")
    result.stdout.fnmatch_lines([f"gpuserve: wrote {stored.relative_to(pytester.path)}"])
    text = stored.read_text()
    assert "  new-decode:" in text
    stored.write_text(text.replace("  new-decode:", "  of-another-name-decode:"))
    suite.write_text(SUITE.replace("{id: moved, args:", "{id: moved, model: another, args:"))
    found = {name: drawn(rng, name, 5, 90.0 * SPEED.get(name, 1.0)) for name in VERDICTS}
    rounds.write_text(json.dumps(found))
    return found


def expected(root: Path, name: str, rounds: list[list[float]]) -> tuple[int, Verdict, str, bool]:
    """Launches used, verdict, first line and whether it fails, by asking the gate after each launch."""
    suite = load_suite(root / "suites" / "recorded.yaml")
    case = next(one for one in suite.cases() if one.config.id == name)
    baselines = Baselines(root / "baselines")
    launches: list[Launch] = []
    for speeds in rounds:
        launches.append(Launch(started="", rounds=[replayed.round_of(speed) for speed in speeds]))
        judgement = judge(
            case,
            launches,
            host=replayed.HOST,
            engine=replayed.BUILD,
            baseline=baselines.find(replayed.HOST, case),
            speculative=False,
            orphans=baselines.orphans(replayed.HOST.profile, suite),
        )
        if not judgement.undecided:
            break
    return len(launches), judgement.verdict, judgement.text.splitlines()[0], to_error(judgement) is not None


def test_pytest_says_what_the_gate_says_alone_and_under_xdist(
    pytester: pytest.Pytester, recorded: dict[str, list[list[float]]]
) -> None:
    wanted = {name: expected(pytester.path, name, rounds) for name, rounds in recorded.items()}
    assert {name: verdict for name, (_, verdict, _, _) in wanted.items()} == VERDICTS, (
        "the draw is a poor one"
    )
    for run, workers in (("alone", ()), ("shared", ("-n2",))):
        result = pytester.runpytest_subprocess(
            "suites", "--gpuserve-no-check", f"--gpuserve-run-dir={run}", "--junitxml=x.xml", *workers
        )
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.assert_outcomes(passed=3, failed=3)
        records, junit = records_of(pytester.path / run), failures(pytester.path / "x.xml")
        for name, (launches, verdict, text, fails) in wanted.items():
            record, failure = records[name], junit[name]
            assert (record.verdict, len(record.launches)) == (verdict, launches), (run, name)
            assert record.text.splitlines()[0] == text
            assert record.outcome == ("failed" if fails else "passed")
            assert (failure is not None) == fails, (run, name)
            assert failure is None or text in failure


def records_of(run: Path) -> dict[str, Record]:
    lines = (run / "records.jsonl").read_text().splitlines()
    return {one.config: one for one in (msgspec.json.decode(line, type=Record) for line in lines)}


def failures(report: Path) -> dict[str, str | None]:
    """By config, what JUnit says of its failure; None of one that passed."""
    found: dict[str, str | None] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        failure = case.find("failure")
        config = str(case.get("name")).partition("[")[2].removesuffix("-decode]")
        found[config] = None if failure is None else str(failure.get("message"))
    return found
