"""`gpuserve explain` and `gpuserve check` as somebody types them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve import cli
from pytest_gpuserve.commands import engine_python, explain

if TYPE_CHECKING:
    from pathlib import Path


def test_explain(old_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["explain", "moe-a2a-backend=flashinfer", "--engine-path", str(old_folder)])
    assert status == 0
    assert "A2A is only supported with flashinfer_cutlass" in capsys.readouterr().out


@pytest.mark.parametrize(
    "question",
    [
        ["--moe-a2a-backend=flashinfer"],
        ["--moe-a2a-backend", "flashinfer"],
        ["moe-a2a-backend", "flashinfer"],
        ["--moe_a2a_backend=flashinfer"],
    ],
)
def test_an_option_is_asked_of_as_it_is_written(
    old_folder: Path, capsys: pytest.CaptureFixture[str], question: list[str]
) -> None:
    where = ["--engine-path", str(old_folder), "--json"]
    assert cli.main(["explain", "moe-a2a-backend=flashinfer", *where]) == 0
    told = capsys.readouterr().out
    assert cli.main(["explain", *question, *where]) == 0
    assert capsys.readouterr().out == told
    assert cli.main(["explain", *where, *question]) == 0
    assert capsys.readouterr().out == told


def test_flags_that_are_given_besides_may_have_dashes(
    old_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["explain", "moe-a2a-backend=flashinfer", "--engine-path", str(old_folder), "--json", "--given"]
    assert cli.main([*argv, "tp-size=8"]) == 0
    told = capsys.readouterr().out
    assert cli.main([*argv, "--tp-size=8"]) == 0
    assert capsys.readouterr().out == told


def test_explain_asks_of_one_option(old_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "tp-size=8", "--dp-size=8", "--engine-path", str(old_folder)]) == 2
    assert "give others by --given" in capsys.readouterr().err


def test_every_flag_of_explain_is_its_own() -> None:
    parser = argparse.ArgumentParser()
    explain.add(parser.add_subparsers())
    words = [f"{own}=x" for own in explain.OWN] + list(explain.OWN)
    assert explain.as_words(["explain", *words]) == ["explain", *words]
    (asked,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    flags = {flag for one in asked.choices["explain"]._actions for flag in one.option_strings}
    assert flags - {"-h"} == set(explain.OWN)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("vllm=python", "only SGLang's source is read"),
        ("vlm=python", "no engine 'vlm'; there are: llamacpp, "),
        ("sglang=", "names no interpreter"),
    ],
)
def test_an_interpreter_of_another_engine_is_refused(
    capsys: pytest.CaptureFixture[str], given: str, told: str
) -> None:
    assert cli.main(["explain", "tp-size", "--engine-python", given]) == 2
    assert told in capsys.readouterr().err


def test_the_home_folder_is_known_behind_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert engine_python("sglang=~/venv/bin/python") == ("sglang", "/home/me/venv/bin/python")
    assert engine_python("/opt/a=b/bin/python") == ("sglang", "/opt/a=b/bin/python")


def test_explain_in_json_given_and_all(old_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["explain", "moe-a2a-backend=flashinfer", "--engine-path", str(old_folder / "sglang"), "--json"]
    assert cli.main([*argv, "--given", "moe-runner-backend=flashinfer_cutlass"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not [one for one in told["demands"] if "flashinfer_cutlass" in one["message"]]
    assert cli.main([*argv[:-1], "--all"]) == 0
    assert "--all lists them" not in capsys.readouterr().out


def test_explain_against_another_version(
    old_folder: Path, new_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["explain", "moe-a2a-backend=flashinfer", "--engine-path", str(old_folder)]
    assert cli.main([*argv, "--against", str(new_folder)]) == 0
    assert "sglang 0.5.9 -> 0.5.23" in capsys.readouterr().out
    assert cli.main([*argv, "--against", str(new_folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] == "0.5.23"


def test_explain_of_an_interpreter(
    old_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(old_folder))
    for python in (sys.executable, f"sglang={sys.executable}"):
        assert cli.main(["explain", "tp-size", "--engine-python", python]) == 0
    assert capsys.readouterr().out.startswith("sglang 0.5.9: --tp-size\n")


@pytest.mark.parametrize(
    ("question", "told"),
    [("nope", "has no option 'nope'"), ("moe-a2a-backend=x", "'x' is none of the choices")],
)
def test_explain_of_what_is_not_there(
    old_folder: Path, capsys: pytest.CaptureFixture[str], question: str, told: str
) -> None:
    assert cli.main(["explain", question, "--engine-path", str(old_folder)]) == 2
    assert told in capsys.readouterr().err


def test_explain_where_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "tp-size", "--engine-path", str(tmp_path)]) == 2
    assert "no package 'sglang' there" in capsys.readouterr().err
    assert cli.main(["explain", "tp-size", "--engine-python", "/nowhere/python"]) == 2


def test_explain_takes_the_interpreter_of_this_host(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "attn-dp-size=8"]) == 0
    assert capsys.readouterr().out.startswith("sglang 0.5.23: --attn-dp-size 8\n")


SUITE = """
server: {engine: sglang, model: owner/name}
workloads:
  decode: {concurrency: 1, requests: 1, input_tokens: 8, output_tokens: 8}
configs:
  - id: plain
    requires: {gpus: 4096}
    args: %s
"""


@pytest.fixture
def project(tmp_path: Path, new_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose SGLang is the cut-out: it has no `--help`, so that its source tells the flags."""
    (tmp_path / "suites").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "gpuserve.local.yaml").write_text(
        f"engines: {{sglang: {{python: {sys.executable}, env: {{PYTHONPATH: {new_folder}}}}}}}\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        ("{tp-size: 8}", 0, "0 errors"),
        ("{tp-sise: 8}", 1, "sglang 0.5.23 has no flag --tp-sise. Did you mean --tp-size?"),
        ("{moe-a2a-backend: deepp}", 0, "Did you mean 'deepep'?"),  # plugins may add choices
    ],
)
def test_check(project: Path, capsys: pytest.CaptureFixture[str], args: str, status: int, told: str) -> None:
    (project / "suites" / "one.yaml").write_text(SUITE % args)
    assert cli.main(["check", "suites/"]) == status
    out = capsys.readouterr().out
    assert told in " ".join(out.split())
    assert "skipped here: needs 4096 GPUs" in out
    assert not (project / ".gpuserve").exists()  # nothing is run, and nothing left


def test_check_in_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "suites" / "one.yaml").write_text(SUITE % "{nope: 1}")
    assert cli.main(["check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"]["error"] == 1


def test_check_of_a_broken_suite(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "suites" / "one.yaml").write_text("configs: 3\n")
    assert cli.main(["check"]) == 2
    assert "one.yaml:1" in capsys.readouterr().out
    assert cli.main(["check", "nowhere"]) == 2
    assert "no such suite file" in capsys.readouterr().err
