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
    records = run(project, xfailed=2, skipped=1)
    assert (records["trial"].verdict, records["trial"].outcome) == (Verdict.CRASHED, "xfailed")
    assert (records["dead"].verdict, records["dead"].outcome) == (Verdict.DEAD_END_CHANGED, "xfailed")
    assert "never" not in (project.path / "starts.txt").read_text(), "their mark hid the one that forbids it"


@pytest.mark.parametrize("fault", ["OSError", "pytest.fail"])
def test_what_nobody_foresaw_leaves_a_record(project: pytest.Pytester, fault: str) -> None:
    (project.path / "rounds.json").write_text(json.dumps(ROUNDS | {"trial": fault, "dead": fault}))
    records = run(project, failed=2, xfailed=1)
    for name in ("trial", "dead"):
        assert (records[name].verdict, records[name].outcome) == (Verdict.ERROR, "failed")
        assert "dead end" not in records[name].text, "nobody knows what it would have done"


@pytest.mark.parametrize("off", [["-p", "no:skipping"], ["--benchmark-skip"]], ids=["unmarked", "skipped"])
def test_what_is_never_started_is_not_started_whatever_becomes_of_its_marks(
    project: pytest.Pytester, off: list[str]
) -> None:
    records = run(project, *off, "-k", "never", skipped=1, deselected=2)
    assert (records["never"].verdict, records["never"].outcome) == (Verdict.SKIPPED, "skipped")
    assert not (project.path / "starts.txt").exists()


def test_a_plan_of_the_run_leaves_nothing(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("suites", "--setup-plan")
    assert result.ret == pytest.ExitCode.OK
    assert not (project.path / ".gpuserve").exists()
    assert "gpuserve: " not in result.stdout.str()


def test_as_many_workers_as_fit(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("suites", "--gpuserve-no-check", "-n", "auto", "-k", "trial")
    result.assert_outcomes(passed=1, deselected=2)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("option", ["--gpuserve-run-dir", "--gpuserve-baselines"])
def test_a_file_is_no_folder(project: pytest.Pytester, option: str) -> None:
    (project.path / "file").touch()
    result = project.runpytest_subprocess("suites", "--gpuserve-no-check", f"{option}=file")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stdout.str() + result.stderr.str()
    assert "file" in text
    assert "Traceback" not in text
    assert not (project.path / "starts.txt").exists()


def test_nothing_is_written_for_tests_of_others(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_other="def test_it(): pass")
    (pytester.path / ".gpuserve").write_text("in the way")
    result = pytester.runpytest_subprocess("-n1")
    result.assert_outcomes(passed=1)


def test_a_warning_that_is_an_error_fails_its_case(project: pytest.Pytester) -> None:
    suite = project.path / "suites" / "s.yaml"
    suite.write_text(SUITE.replace("reason: as ever,", "reason: as ever, review: 2026-01-01,"))
    result = project.runpytest_subprocess(
        "suites", "--gpuserve-no-check", "-W", "error", "-k", "dead-decode or trial"
    )
    assert "INTERNALERROR" not in result.stdout.str()
    result.assert_outcomes(passed=1, xfailed=1, deselected=1)
    (project.path / "rounds.json").write_text(json.dumps(ROUNDS | {"dead": [[90.0]]}))
    result = project.runpytest_subprocess("suites", "--gpuserve-no-check", "-W", "error", "-k", "dead-decode")
    assert "INTERNALERROR" not in result.stdout.str()
    result.assert_outcomes(failed=1, deselected=2)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-k", "never-decode"], pytest.ExitCode.TESTS_FAILED),
        (["-k", "no-such-case"], pytest.ExitCode.TESTS_FAILED),
        (["-k", "dead-decode"], pytest.ExitCode.OK),
        (["-k", "trial"], pytest.ExitCode.OK),
        (["--collect-only", "-q"], pytest.ExitCode.OK),
        (["--setup-plan"], pytest.ExitCode.OK),
    ],
)
def test_a_run_that_starts_nothing_is_red_where_one_is_required(
    project: pytest.Pytester, arguments: list[str], code: int
) -> None:
    result = project.runpytest_subprocess(
        "suites", "--gpuserve-no-check", "--gpuserve-require-run", *arguments
    )
    assert result.ret == code
    assert ("nothing was run" in result.stdout.str()) == (code != pytest.ExitCode.OK)


def test_a_suite_that_cannot_be_read_is_told_alone(project: pytest.Pytester) -> None:
    (project.path / "suites" / "s.yaml").write_text("suite: s\nconfgs: []\n")
    result = project.runpytest_subprocess("suites", "--gpuserve-require-run")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "did you mean 'configs'" in result.stdout.str()
    assert "nothing was run" not in result.stdout.str()


def test_baselines_that_cannot_be_written_are_told_with_the_rest(project: pytest.Pytester) -> None:
    (project.path / "suites" / "s.yaml").write_text(SUITE.replace(", gate: none", ""))
    (project.path / "baselines").mkdir()
    (project.path / "baselines" / "h200-x1").write_text("in the way")
    result = project.runpytest_subprocess(
        "suites", "--gpuserve-no-check", "-k", "trial", "--gpuserve-update-baselines"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert "h200-x1" in text
    assert "INTERNALERROR" not in text


def test_a_suite_that_is_named_twice_is_measured_once(project: pytest.Pytester) -> None:
    records = run(project, "suites/s.yaml", "--keep-duplicates", "-k", "trial", passed=2, deselected=4)
    assert len(records["trial"].launches) == 1
    assert (project.path / "starts.txt").read_text().split() == ["trial"]


@pytest.mark.parametrize("argument", ["suites", "suites/s.yaml"])
def test_a_family_stays_together_where_the_root_is_elsewhere(project: pytest.Pytester, argument: str) -> None:
    other = project.mkdir("elsewhere")
    (project.path / "suites" / "s.yaml").write_text(
        SUITE.replace(
            "{id: trial, gate: none}",
            "{id: trial, gate: none}\n  - {id: beside, compare_to: trial, gate: none}",
        )
    )
    (project.path / "rounds.json").write_text(json.dumps(ROUNDS | {"beside": [[99.0]]}))
    (project.path / "suites" / "conftest.py").write_text(replayed.CONFTEST)
    arguments = [
        "--gpuserve-no-check",
        f"--rootdir={other}",
        "--gpuserve-run-dir=run",
        "-n2",
        "-k",
        "trial or beside",
    ]
    project.runpytest_subprocess(argument, *arguments).assert_outcomes(passed=2)
    lines = (project.path / "run" / "records.jsonl").read_text().splitlines()
    beside = next(
        one for one in (msgspec.json.decode(line, type=Record) for line in lines) if one.config == "beside"
    )
    assert [one.against for one in beside.comparisons] == ["partner", "partner"]
