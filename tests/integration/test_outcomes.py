"""What pytest makes of a case, its record says as well, whoever had a say in it; and nothing ends without a record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from pytest_gpuserve.record import Record, Verdict

sys.path.append(str(Path(__file__).parent))  # the helper beside this file is a conftest, not a package
import replayed

SUITE = """\
server: {engine: sglang, model: m}
workloads:
  decode: {concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}
configs:
  - {id: trial, gate: none}
  - id: dead
    args: {page-size: 2}
    xfail: {kind: serve, reason: as ever, match: {exception: KeyError, message: '^12$'}}
  - id: never
    args: {page-size: 3}
    xfail: {kind: serve, reason: it hangs the host, run: false, match: {exception: KeyError}}
"""
ROUNDS = {"trial": [[90.0, 90.0, 90.0]], "dead": "serving: 12", "never": "serving: 12"}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    (pytester.path / "suites").mkdir()
    (pytester.path / "suites" / "s.yaml").write_text(SUITE)
    (pytester.path / "rounds.json").write_text(json.dumps(ROUNDS))
    pytester.makeconftest(replayed.CONFTEST)
    return pytester


def run(project: pytest.Pytester, *arguments: str, **outcomes: int) -> dict[str, Record]:
    """The records by config, of a run that must come to these outcomes."""
    result = project.runpytest_subprocess(
        "suites", "--gpuserve-no-check", "--gpuserve-run-dir=run", *arguments
    )
    result.assert_outcomes(**outcomes)
    text = result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in text
    lines = (project.path / "run" / "records.jsonl").read_text().splitlines()
    return {one.config: one for one in (msgspec.json.decode(line, type=Record) for line in lines)}


def test_as_documented(project: pytest.Pytester) -> None:
    records = run(project, passed=1, xfailed=2)
    assert {name: (one.verdict, one.outcome) for name, one in records.items()} == {
        "trial": (Verdict.MEASURED, "passed"),
        "dead": (Verdict.DEAD_END, "xfailed"),
        "never": (Verdict.DEAD_END, "xfailed"),
    }


def test_without_xfails_a_dead_end_fails_and_a_dangerous_one_is_skipped(project: pytest.Pytester) -> None:
    records = run(project, "--runxfail", passed=1, failed=1, skipped=1)
    assert (records["dead"].verdict, records["dead"].outcome) == (Verdict.DEAD_END, "failed")
    assert (records["never"].verdict, records["never"].outcome) == (Verdict.SKIPPED, "skipped")
    assert not records["never"].launches


def test_a_mark_of_somebody_elses_has_a_say(project: pytest.Pytester) -> None:
    (project.path / "rounds.json").write_text(
        json.dumps(ROUNDS | {"trial": "serving: 12", "dead": "serving: 13"})
    )
    (project.path / "suites" / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.xfail(reason='not today', strict=False))\n"
    )
    records = run(project, xfailed=3)
    assert (records["trial"].verdict, records["trial"].outcome) == (Verdict.CRASHED, "xfailed")
    assert (records["dead"].verdict, records["dead"].outcome) == (Verdict.DEAD_END_CHANGED, "xfailed")


@pytest.mark.parametrize("fault", ["OSError", "pytest.fail"])
def test_what_nobody_foresaw_leaves_a_record(project: pytest.Pytester, fault: str) -> None:
    (project.path / "rounds.json").write_text(json.dumps(ROUNDS | {"trial": fault, "dead": fault}))
    records = run(project, failed=2, xfailed=1)
    for name in ("trial", "dead"):
        assert (records[name].verdict, records[name].outcome) == (Verdict.ERROR, "failed")
        assert "dead end" not in records[name].text, "nobody knows what it would have done"
