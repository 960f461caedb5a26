from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_gpuserve.errors import BaselineError
from pytest_gpuserve.gate.baseline_file import HEADER, BaselineFile, read, render, write
from pytest_gpuserve.gate.baselines import Baselines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_gpuserve.gate.baseline import Baseline
    from pytest_gpuserve.model import Case, Host

GOOD = """\
# A header
# of two lines.
suite: kimi
host: {product: NVIDIA H200, count: 1, topology: single}
cases:
  ngram-decode:
    reported:
      source: a forum
      metric: output_throughput
      value: 1191
      workload: one stream
  no-spec-decode:
    model: llama1b
    tolerance: 4%
    workload: {concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}
    measured:
      date: 2026-11-29T10:00:00+00:00
      definition: gpuserve-1
      engine: sglang
      version: 0.5.15
      args:
        tp-size: 1
        json-model-override-args: {"num_hidden_layers": 2}
    rounds:
      output_throughput:
        - [695.1, 696, 694.2]
        - [697.3, 698.1, 696.9]
      tpot_ms:
        - [1.23, 1.23, 1.24]
        - [1.22, 1.22, 1.23]
...
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kimi.yaml"


@pytest.fixture
def broken(path: Path) -> Callable[[str, str], str]:
    """The error for the good file with one text replaced by another."""

    def attempt(old: str, new: str) -> str:
        assert old in GOOD
        path.write_text(GOOD.replace(old, new, 1))
        with pytest.raises(BaselineError) as caught:
            read(path)
        return str(caught.value)

    return attempt


def test_what_a_file_says(path: Path) -> None:
    path.write_text(GOOD)
    file = read(path)
    assert file.header == "# A header\n# of two lines."
    measured, reported = file.cases["no-spec-decode"], file.cases["ngram-decode"]
    assert measured.count == 2
    assert measured.label == "baseline"
    assert measured.tolerance == 0.04
    assert measured.launches["output_throughput"][1] == [697.3, 698.1, 696.9]
    assert measured.place.line == 12
    assert measured.measured is not None
    assert measured.measured.args == {"tp-size": 1, "json-model-override-args": {"num_hidden_layers": 2}}
    assert reported.count == 0
    assert reported.label == "reported"
    assert reported.launches == {"output_throughput": [[1191.0]]}


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("694.2", ".nan", 26, "cases.no-spec-decode.rounds.output_throughput[0][2]: nan is no"),
        ("694.2", ".inf", 26, "rounds.output_throughput[0][2]: inf is no"),
        ("694.2", "0", 26, "rounds.output_throughput[0][2]: 0.0 is no"),
        ("694.2", "-1", 26, "rounds.output_throughput[0][2]: -1.0 is no"),
        ("694.2", "null", 26, "rounds"),
        ("694.2", "fast", 26, "rounds"),
        ("value: 1191", "value: 0", 10, "cases.ngram-decode.reported.value: 0.0 is no output_throughput"),
        ("source: a forum", "sauce: a forum", 8, "unknown key; did you mean 'source'?"),
        ("tolerance: 4%", "tolerances: 4%", 14, "unknown key; did you mean 'tolerance'?"),
        ("tolerance: 4%", "tolerance: null", 14, "cases.no-spec-decode.tolerance: has no value"),
        ("tolerance: 4%", "tolerance:", 14, "cases.no-spec-decode.tolerance: has no value"),
        ("version: 0.5.15", "version: ~", 20, "cases.no-spec-decode.measured.version: has no value"),
        (
            "workload: one stream",
            "workload:",
            11,
            "cases.ngram-decode.reported.workload: expected text, got nothing",
        ),
        ("product: NVIDIA H200", "product: null", 4, "host.product: has no value"),
        ("tolerance: 4%", "tolerance: 400%", 14, "cases.no-spec-decode.tolerance"),
        ("tolerance: 4%", "tolerance: 0", 14, "gates nothing"),
        (
            "concurrency: 1",
            "concurency: 1",
            15,
            "workload.concurency: unknown key; did you mean 'concurrency'?",
        ),
        ("concurrency: 1", "concurrency: one", 15, "workload.concurrency: expected a whole number"),
        ("concurrency: 1", "concurrency: null", 15, "workload.concurrency: expected a whole number"),
        ("concurrency: 1", "rounds: 3", 15, "workload.rounds: unknown key"),
        ("input_tokens: 128", "input_tokens: {maen: 128}", 15, "input_tokens.maen: unknown key; did you"),
        ("concurrency: 1", "cache: hot", 15, "workload.cache: 'hot'"),
        (
            "concurrency: 1",
            "slo: {tftt_ms: 1}",
            15,
            "workload.slo.tftt_ms: unknown key; did you mean 'ttft_ms'?",
        ),
        ("host: {product", "hots: {product", 4, "unknown key; did you mean 'host'?"),
        ("product: NVIDIA H200, ", "", 4, "host: the key 'product' is missing"),
        ("count: 1", "count: one", 4, "host.count: expected a whole number"),
        ("      tpot_ms:", "      tpto_ms:", 28, "'tpto_ms' is no metric; did you mean 'tpot_ms'?"),
        ("        - [1.22, 1.22, 1.23]\n", "", 28, "rounds.tpot_ms: has other launches or rounds"),
        ("[1.22, 1.22, 1.23]", "[1.22, 1.22]", 28, "rounds.tpot_ms: has other launches or rounds"),
        ("[697.3, 698.1, 696.9]", "[]", 25, "rounds.output_throughput: has a launch without rounds"),
        ("    model: llama1b\n", "", 12, "the key 'model' is missing"),
        ("      definition: gpuserve-1\n", "", 16, "the key 'definition' is missing"),
        ("suite: kimi", "suite: other", 3, "suite: 'other' does not belong in kimi.yaml"),
        ("  ngram-decode:\n", "  no-spec-decode:\n", 12, "the key 'no-spec-decode' is given twice"),
        ("    model: llama1b", "\tmodel: llama1b", 13, "tab"),
    ],
)
def test_a_wrong_file_is_an_error_at_its_line(
    broken: Callable[[str, str], str], old: str, new: str, line: int, told: str
) -> None:
    message = broken(old, new)
    found = re.search(r"kimi\.yaml:(\d+): ", message)
    assert found, message
    assert int(found[1]) == line, message
    assert told in message


def test_either_measured_or_reported(broken: Callable[[str, str], str]) -> None:
    neither = broken("    measured:\n", "    reported:\n")
    assert "kimi.yaml:" in neither
    both = broken(
        "    rounds:\n", "    reported: {source: a, metric: tpot_ms, value: 1, workload: b}\n    rounds:\n"
    )
    assert "takes either `measured` with `rounds`, or `reported`" in both


def test_a_file_that_was_cut_off_anywhere_is_never_taken_for_whole(path: Path) -> None:
    whole = GOOD.rstrip("\n")
    for length in range(len(whole)):
        path.write_text(whole[:length])
        with pytest.raises(BaselineError, match=r"kimi\.yaml:\d+: "):
            read(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 12), st.text(max_size=4))
def test_a_damaged_file_is_an_error_or_holds_usable_figures(
    path: Path, start: int, length: int, inserted: str
) -> None:
    path.write_text(GOOD[:start] + inserted + GOOD[start + length :], errors="surrogatepass")
    try:
        cases = read(path).cases
    except BaselineError as error:
        assert re.search(r"kimi\.yaml:\d+: ", str(error))
        return
    for case in cases.values():
        values = [value for each in case.launches.values() for rounds in each for value in rounds]
        assert values
        assert all(0 < value < math.inf for value in values)


def test_an_unreadable_file_is_an_error_that_names_it(path: Path) -> None:
    path.mkdir()
    with pytest.raises(BaselineError, match=r"kimi\.yaml"):
        read(path)


# --- writing ----------------------------------------------------------------------------------------


def test_what_is_written_reads_back_the_same_and_writes_the_same_again(path: Path) -> None:
    path.write_text(GOOD)
    before = read(path)
    write(path, before)
    after = read(path)
    assert after.header == before.header
    assert {
        name: msgspec.structs.replace(case, place=before.cases[name].place)
        for name, case in after.cases.items()
    } == before.cases
    once = path.read_text()
    write(path, after)
    assert path.read_text() == once


def test_cases_and_metrics_are_sorted_so_that_a_diff_shows_what_moved(path: Path) -> None:
    path.write_text(GOOD)
    file = read(path)
    shuffled = msgspec.structs.replace(file, cases=dict(reversed(file.cases.items())))
    assert render(shuffled) == render(file)
    text = render(file)
    assert text.index("ngram-decode") < text.index("no-spec-decode")
    assert "        - [695.1, 696.0, 694.2]\n" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("concurrency: 1,", "warmup: 1, seed: 0, concurrency: 1,"),
        ("input_tokens: 128", "input_tokens: {mean: 128}"),
        ("input_tokens: 128", "input_tokens: 128.0"),
    ],
)
def test_a_workload_is_the_same_however_it_is_written(path: Path, old: str, new: str) -> None:
    path.write_text(GOOD)
    plain = read(path).cases["no-spec-decode"].workload
    assert plain == {"concurrency": 1, "requests": 4, "input_tokens": 128, "output_tokens": 512}
    path.write_text(GOOD.replace(old, new, 1))
    assert read(path).cases["no-spec-decode"].workload == plain


def test_a_file_without_a_comment_gets_one(path: Path) -> None:
    path.write_text(GOOD.partition("suite:")[1] + GOOD.partition("suite:")[2])
    write(path, read(path))
    assert path.read_text().startswith(HEADER)


def test_figures_keep_six_digits(path: Path) -> None:
    path.write_text(GOOD.replace("695.1", "695.123456789"))
    assert "[695.123, " in render(read(path))


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(GOOD)
    file = read(path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, file)
    assert path.read_text() == GOOD
    assert list(path.parent.iterdir()) == [path]


def test_what_could_not_be_read_again_is_not_written(path: Path) -> None:
    path.write_text(GOOD)
    file = read(path)
    wrong = msgspec.structs.replace(file.cases["no-spec-decode"], rounds={"tpot_ms": [[0.0]]})
    with pytest.raises(BaselineError, match="is no tpot_ms"):
        write(path, msgspec.structs.replace(file, cases={"no-spec-decode": wrong}))
    assert path.read_text() == GOOD


# --- the folder -------------------------------------------------------------------------------------


def test_a_case_is_found_by_host_profile_suite_and_id(
    tmp_path: Path, host: Host, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    baselines = Baselines(tmp_path)
    assert baselines.find(host, make_case()) is None
    stored = make_baseline()
    write(
        baselines.path(host.profile, "kimi_k2_5"),
        BaselineFile(suite="kimi_k2_5", host=stored.host, cases={stored.case: stored}),
    )
    found = baselines.find(host, make_case())
    assert found is not None
    assert found.rounds["output_throughput"] == stored.rounds["output_throughput"]
    assert baselines.find(host, make_case(id="other")) is None
    assert baselines.find(msgspec.structs.replace(host, profile="h200-x1"), make_case()) is None
    assert baselines.files() == [("rtx-pro-6000-blackwell-x8", "kimi_k2_5")]


def test_the_shipped_baselines_can_be_read() -> None:
    from pathlib import Path

    folder = Path(__file__).parents[3] / "baselines"
    files = Baselines(folder).files()
    assert ("rtx-pro-6000-blackwell-x8", "kimi_k2_5") in files
    for profile, suite in files:
        assert Baselines(folder).cases(profile, suite)
    kimi = Baselines(folder).cases("rtx-pro-6000-blackwell-x8", "kimi_k2_5")["no-spec-decode"]
    assert kimi.launches == {"output_throughput": [[89.5]]}
