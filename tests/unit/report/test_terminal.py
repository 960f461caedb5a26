"""Inside a real pytest run: what the terminal shows while it runs and when it is over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import tabulate  # noqa: F401 - pytester forgets what a run imports, and importing is what costs

from pytest_gpuserve.report import store, terminal  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_gpuserve.record import Record

CONFTEST = """
    from pathlib import Path
    from types import SimpleNamespace
    import pytest
    from pytest_gpuserve.report import store
    from pytest_gpuserve.report.terminal import Progress, Summary

    FOLDER = pytest.StashKey()

    def pytest_configure(config):
        given = getattr(config, "workerinput", {}).get("folder")
        folder = store.RunFolder(Path(given) if given else None, runs=config.rootpath / ".gpuserve" / "runs")
        config.stash[FOLDER] = folder
        if not hasattr(config, "workerinput"):
            summary = Summary(config, SimpleNamespace(folder=folder), simulated="sglang==0.5.14")
            config.pluginmanager.register(summary)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(node):
        node.workerinput["folder"] = str(node.config.stash[FOLDER].path)

    @pytest.fixture
    def gpuserve_case(request):
        for record in store.read(Path(__file__).parent / "given.jsonl"):
            request.config.stash[FOLDER].write(record)

    @pytest.fixture
    def say(request):
        return Progress(request.config).say
"""


@pytest.fixture
def given(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose conftest does what the plugin does; `write_records` gives it the records to leave."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")  # it costs a second a run
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("def test_it(gpuserve_case): pass")
    return pytester


def write_records(pytester: pytest.Pytester, records: Sequence[Record]) -> None:
    folder = store.RunFolder(pytester.path / "elsewhere")
    for record in records:
        folder.write(record)
    folder.finish(store.RunInfo())
    (folder.path / store.LINES).rename(pytester.path / "given.jsonl")


def run_folder(pytester: pytest.Pytester) -> store.Path:
    (folder,) = (pytester.path / ".gpuserve" / "runs").iterdir()
    return folder


def test_tables_verdicts_and_the_place_of_the_records(given: pytest.Pytester, story: list[Record]) -> None:
    write_records(given, story)
    result = given.runpytest()
    result.stdout.fnmatch_lines(
        [
            "=* gpuserve: results on rtx-pro-6000-blackwell-x8, sglang 0.5.10 patched, simulated =*",
            "case            verdict      output    baseline    change    TPOT    accept    launches  note",
            "no-spec-decode  ok             90.2        89.5     +0.8%    11.1         -      *  against*",
            "=* gpuserve: documented dead ends on *simulated =*",
            "torch-symm-mem-decode  start    comm_init     dead-end   torch symmetric memory*",
            "=* gpuserve: skipped on rtx-pro-6000-blackwell-x8, simulated =*",
            "gpuserve: 1 ok, 3 dead-end, 1 skipped, simulated",
            "gpuserve: records and server logs in .gpuserve/runs/20*Z",
            "=* 1 passed in *",
        ]
    )
    assert store.read(run_folder(given)) == story


def test_the_run_describes_itself(given: pytest.Pytester, story: list[Record]) -> None:
    write_records(given, story)
    given.runpytest("-q")
    info = store.info_of(run_folder(given))
    assert info.command[0] == "pytest"
    assert "-q" in info.command
    assert info.exit_status == 0
    assert info.host == story[0].host
    assert info.simulated == "sglang==0.5.14"
    assert info.started <= info.ended
    assert set(info.versions) == {"pytest-gpuserve", "pytest", "python"}
    assert json.loads((run_folder(given) / "run.json").read_text())["schema"] == 1


def test_a_run_without_cases_shows_and_leaves_nothing(given: pytest.Pytester) -> None:
    given.makepyfile("def test_it(): pass")
    given.runpytest().stdout.no_fnmatch_line("*gpuserve*:*")
    assert not (given.path / ".gpuserve").exists()


def test_no_summary_is_honoured(given: pytest.Pytester, story: list[Record]) -> None:
    write_records(given, story)
    given.runpytest("--no-summary").stdout.no_fnmatch_line("*gpuserve: *")


def test_verdicts_are_coloured(given: pytest.Pytester, trouble: list[Record]) -> None:
    write_records(given, trouble)
    text = given.runpytest("--color=yes").stdout.str()
    assert "\x1b[31mregressed\x1b[0m" in text
    assert "\x1b[33minconclusive\x1b[0m" in text
    assert "\x1b[31mdead-end-changed\x1b[0m" in text


def test_github_gets_annotations_and_a_summary(
    given: pytest.Pytester, trouble: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(given.path / "summary.md"))
    write_records(given, trouble)
    given.runpytest().stdout.fnmatch_lines(
        ["::error file=suites/h200_smoke.yaml,line=12,title=h200_smoke%3A%3Ano-spec-decode%3A regressed::*"]
    )
    assert (given.path / "summary.md").read_text().startswith("## gpuserve: 1 regressed")


def test_a_record_that_cannot_be_read_is_told(given: pytest.Pytester, story: list[Record]) -> None:
    write_records(given, story)
    given.makepyfile(
        """
        def test_it(gpuserve_case, request):
            from conftest import FOLDER
            (request.config.stash[FOLDER].path / "records" / "x.json").write_text('{"schema": 7}')
        """
    )
    result = given.runpytest()
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["gpuserve: no summary: *x.json: written by newer pytest-gpuserve (schema 7*"]
    )
    assert (run_folder(given) / "records" / "kimi_k2_5--no-spec-decode.json").exists()


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_a_folder_of_an_earlier_run_is_refused(
    given: pytest.Pytester, story: list[Record], workers: tuple[str, ...]
) -> None:
    write_records(given, story)
    store.RunFolder(given.path / "used").write(story[0])
    conftest = given.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace("if given else None", "if given else Path('used')"))
    result = given.runpytest_subprocess(*workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: used holds the records of an earlier run: name another folder or*"])
    given.makepyfile("def test_it(): pass")
    assert given.runpytest().ret == 0, "a run without cases does not care"


def test_workers_write_and_the_controller_tells(given: pytest.Pytester, story: list[Record]) -> None:
    write_records(given, story)
    given.makepyfile(
        """
        def test_it(gpuserve_case, say):
            say("no-spec: ready in 412 s")
        """
    )
    result = given.runpytest_subprocess("-n1", "-v")
    result.stderr.fnmatch_lines(["[[]gw0] gpuserve: no-spec: ready in 412 s"])
    result.stdout.fnmatch_lines(["gpuserve: 1 ok, 3 dead-end, 1 skipped, simulated"])
    assert store.read(run_folder(given)) == story


def test_progress_passes_pytests_capturing_at_v(given: pytest.Pytester) -> None:
    given.makepyfile("def test_it(say): say('no-spec: weights_load')")
    given.runpytest("-v").stdout.fnmatch_lines(["    gpuserve: no-spec: weights_load"])
    given.runpytest().stdout.no_fnmatch_line("*weights_load*")
    given.runpytest("-v", "-s").stdout.fnmatch_lines(["    gpuserve: no-spec: weights_load"])


def test_progress_is_in_the_log_of_a_failure(given: pytest.Pytester) -> None:
    given.makepyfile(
        """
        def test_it(say, caplog):
            caplog.set_level("INFO")
            say('no-spec: weights_load')
            assert False
        """
    )
    given.runpytest().stdout.fnmatch_lines(["*Captured log call*", "INFO *no-spec: weights_load"])
