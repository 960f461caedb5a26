"""`gpuserve check --start` on the simulated host: real processes, leases and logs, and no model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve import cli
from pytest_gpuserve.check.finding import Finding
from pytest_gpuserve.engines.simulated import Simulation
from pytest_gpuserve.serving.lease import Leases
from pytest_gpuserve.session.here import Here

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[..., tuple[int, dict[str, Any]]]

SUITE = """
server:
  engine: sglang
  model: moonshotai/Kimi-K2.5
  args: {tp-size: 8, trust-remote-code: true}
workloads:
  decode: {concurrency: 1, requests: 1, input_tokens: 8, output_tokens: 8}
configs:
  - id: plain
  - id: tree
    env: {NCCL_ALGO: Tree}
  - id: symm-mem
    args: {enable-torch-symm-mem: true}
  - id: never
    args: {moe-a2a-backend: deepep}
    xfail: {kind: start, run: false, reason: it hangs the host, match: {message: x}}
  - id: slow
    args: {speculative-algorithm: EAGLE3, speculative-draft-model-path: x/y}
    compare_to: plain
    xfail: {kind: slower, reason: it is}
  - id: many
    requires: {gpus: 64}
    env: {NCCL_ALGO: Tree}
"""


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    """Runs the command in a folder with that suite; its exit status and what it printed as JSON."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.yaml").write_text(SUITE)

    def run(*argv: str) -> tuple[int, dict[str, Any]]:
        status = cli.main(["check", "--start", "--json", *argv])
        return status, json.loads(capsys.readouterr().out)

    return run


def by_config(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {start["config"]: start for start in told["starts"]}


def test_dead_ends_are_confirmed_and_the_others_told_as_not_checked(check: Check) -> None:
    status, told = check("--simulate=sglang==0.5.14")
    found = by_config(told)
    assert {name: start["outcome"] for name, start in found.items()} == {
        "tree": "confirmed",
        "symm-mem": "confirmed",
        "never": "not checked",
        "slow": "not checked",
        "many": "skipped",
    }
    assert (status, told["exit_status"]) == (0, 0)
    assert told["simulated"].startswith("simulated host")
    tree, inert = found["tree"], found["symm-mem"]
    assert (tree["kind"], tree["failure"]["phase"]) == ("start", "cuda_graph_capture")
    assert "no algorithm/protocol available for function AllGather" in tree["text"]
    assert inert["kind"] == "inert"
    assert "communicator is not available" in inert["text"]
    assert tree["changes"][0].startswith("--load-format dummy")
    log = Path(tree["log"])
    assert log.parent.parent == Path.cwd() / ".gpuserve" / "checks"
    assert "load_format='dummy'" in log.read_text()
    assert "it hangs the host" in found["never"]["text"]
    assert "needs 64 GPUs" in found["many"]["text"]


def test_one_that_opened_and_one_that_changed(check: Check) -> None:
    status, told = check(
        "--simulate=sglang==0.5.14",
        "--perturb=opens:symm-mem",
        "--perturb=otherwise:tree",
        "-ksymm-mem",
        "-ktree",
    )
    found = by_config(told)
    assert {name: start["outcome"] for name, start in found.items()} == {
        "tree": "changed",
        "symm-mem": "open",
    }
    assert status == 1
    assert "does not say that the path is off" in found["symm-mem"]["text"]
    assert "suites/s.yaml' -k symm-mem" in found["symm-mem"]["text"]
    changed = found["tree"]["text"]
    assert "comm_init or cuda_graph_capture" in changed  # what is documented
    assert "SafetensorError" in changed  # what happened


def test_an_ordinary_config_is_started_when_it_is_named(check: Check) -> None:
    status, told = check("--simulate", "--config=pl*")
    assert [(start["config"], start["outcome"]) for start in told["starts"]] == [("plain", "starts")]
    assert status == 0
    status, told = check("--simulate", "--config=s::plain", "--perturb=otherwise:plain")
    (start,) = told["starts"]
    assert (status, start["outcome"]) == (1, "failed")
    assert start["failure"]["phase"] == "weights_load"


def test_without_the_hardware_and_the_engine_nothing_is_started(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpuserve.serving.server.Server.start", lambda server: os.abort())
    _, told = check("--engine-python=/nowhere/python")
    found = by_config(told)
    assert found["many"]["outcome"] == "skipped"
    assert found["tree"]["outcome"] == "skipped"
    assert "/nowhere/python" in found["tree"]["text"]
    assert not (Path.cwd() / ".gpuserve").exists()


@pytest.mark.parametrize(
    ("findings", "outcome"),
    [
        ([("flag", "error"), ("model", "error")], "failed"),
        ([("model", "error")], "skipped"),
        ([("flag", "warning")], "starts"),
    ],
)
def test_what_is_known_to_hinder_a_start_is_told_without_one(
    check: Check, monkeypatch: pytest.MonkeyPatch, findings: list[tuple[Any, Any]], outcome: str
) -> None:
    found = tuple(Finding(severity=severity, topic=topic, text="told") for topic, severity in findings)
    monkeypatch.setattr("pytest_gpuserve.check.preflight.check_case", lambda *_: found)
    simulated = Simulation("0.5.14")
    monkeypatch.setattr(Here, "host", msgspec.structs.replace(simulated.host(), simulated=False))
    monkeypatch.setattr(Here, "engine", lambda here, config: simulated.engine("sglang"))
    monkeypatch.setattr(Here, "site", lambda here, config: simulated.site(config))
    monkeypatch.setattr(Here, "leases", lambda here, folder: Leases(folder, slots=8))
    _, told = check("-kplain")
    (start,) = told["starts"]
    assert start["outcome"] == outcome
    assert (start["log"] is None) is (outcome != "starts")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--simulate"], "--simulate is about starts: add --start"),
        (["--config=plain"], "--config is about starts: add --start"),
        (["--start", "--perturb=opens:plain"], "--perturb changes the simulated host: add --simulate"),
        (["--start", "--simulate=vllm==1"], "--simulate: the simulated host knows no 'vllm==1'"),
        (["--start", "--simulate", "--config=plan"], "did you mean 'plain'?"),
        (
            ["--start", "--simulate", "--perturb=opens:plan"],
            "--perturb: no suite of this run has a config 'plan'",
        ),
    ],
)
def test_what_cannot_be_meant_is_bad_input(
    check: Check, capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    assert cli.main(["check", *argv]) == 2
    assert told in capsys.readouterr().err


def test_a_broken_suite_keeps_all_from_starting(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    Path("suites/t.yaml").write_text("configs: [{id: a, nope: 1}]")
    assert cli.main(["check", "--start", "--simulate"]) == 2
    out, err = capsys.readouterr()
    assert "suites/t.yaml" in err
    assert not out


def test_for_people(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["check", "--start", "--simulate=sglang==0.5.14", "-ktree", "-kmany"]
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert "s::tree" in out
    assert "confirmed (start, sglang-nccl-algo-tree) after " in out
    assert "with --load-format dummy: random weights, none are read" in out
    assert out.endswith("1 started: 1 confirmed, 1 skipped\n")
    assert "tree: weights_load" in err
