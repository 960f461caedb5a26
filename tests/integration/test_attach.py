"""--gpuserve-attach, as far as it can be told without a server; with one: test_local_engine.py."""

from __future__ import annotations

import pytest

SUITE = """\
server: {engine: openai, model: m}
workloads:
  decode: {concurrency: 1, requests: 1, input_tokens: 16, output_tokens: 32}
gate: none
configs:
  - id: one
  - id: two
  - id: dead
    engine: sglang
    args: {no-such-flag: true}
    xfail: {kind: start, reason: no such flag, match: {class: config_invalid}}
"""


@pytest.fixture(autouse=True)
def suite(pytester: pytest.Pytester) -> None:
    (pytester.mkdir("suites") / "s.yaml").write_text(SUITE)


NOBODY = "--gpuserve-attach=http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpuserve-attach=localhost:8000"], "--gpuserve-attach: 'localhost:8000' is no URL such as"),
        ([NOBODY, "--gpuserve-simulate"], "--gpuserve-attach and --gpuserve-simulate: give one of the two"),
        ([NOBODY], "one and two are selected, and one server cannot be both"),
    ],
)
def test_usage_errors(pytester: pytest.Pytester, options: list[str], said: str) -> None:
    result = pytester.runpytest_inprocess("suites", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stdout.str() + result.stderr.str()


def test_without_a_url_its_case_fails_and_others_go_on(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("suites", "-k", "one")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*s.yaml:6: config 'one': where does the server run?*"])


def test_nobody_answers(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("suites", "-k", "one", NOBODY)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no openai answers at http://127.0.0.1:9*"])


def test_a_start_that_is_documented_to_fail_is_none_here(pytester: pytest.Pytester) -> None:
    """Nothing is started, so that a dead end of the start can neither hold nor open."""
    result = pytester.runpytest_inprocess("suites", "-k", "dead", NOBODY)
    result.assert_outcomes(failed=1)
    assert "XPASS" not in result.stdout.str()
