"""Which configurations of the suite the profile knows, and that it invents nothing for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpuserve.engines.simulated import Simulated, Simulation
from pytest_gpuserve.errors import EngineMissing
from pytest_gpuserve.model import Case, Lengths, Suite
from pytest_gpuserve.suite import load_suite

SUITE: Suite = load_suite(Path(__file__).parents[4] / "suites" / "kimi_k2_5.yaml")
HYPOTHESES = {"nccl-tree-allreduce", "ep-native", "pcie-ipc-allreduce"}


def case(config_id: str, **changes: Any) -> Case:
    found = next(case for case in SUITE.cases() if case.config.id == config_id)
    config = {k: v for k, v in changes.items() if k in found.config.__struct_fields__}
    workload = {k: v for k, v in changes.items() if k in found.workload.__struct_fields__}
    return msgspec.structs.replace(
        found,
        config=msgspec.structs.replace(found.config, **config),
        workload=msgspec.structs.replace(found.workload, **workload),
    )


def unknown(case: Case, version: str = "story", *perturb: str) -> str | None:
    return Simulation.from_options(None if version == "story" else f"sglang=={version}", perturb).unknown(
        case
    )


def test_exactly_the_hypotheses_are_unknown_in_the_story() -> None:
    assert {case.config.id for case in SUITE.cases() if unknown(case)} == HYPOTHESES


def test_stock_knows_no_patch_either() -> None:
    ids = {case.config.id for case in SUITE.cases() if unknown(case, "0.5.14")}
    assert ids == HYPOTHESES | {"custom-allreduce-pcie"}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("nccl-tree-allreduce", "simulated host: the profile knows nothing of NCCL_ALGO=allreduce:tree"),
        ("ep-native", "simulated host: the profile knows nothing of --ep-size 8"),
        (
            "pcie-ipc-allreduce",
            "simulated host: the profile knows nothing of SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
        ),
    ],
)
def test_the_reason_names_the_setting(config: str, reason: str) -> None:
    assert unknown(case(config)) == reason


def test_settings_that_are_known_alone_are_not_known_together() -> None:
    both = case("torch-symm-mem", env={"NCCL_ALGO": "Tree"})
    assert unknown(both) == (
        "simulated host: the profile knows nothing of --enable-torch-symm-mem True, NCCL_ALGO=Tree"
    )


@pytest.mark.parametrize(
    "args",
    [
        {"tp-size": 8, "mem-fraction-static": 0.8},
        {"tp-size": 4},
        {"tp-size": 8, "speculative-algorithm": "NGRAM"},
        {},
    ],
)
def test_other_values_are_not_known(args: dict[str, Any]) -> None:
    assert unknown(case("no-spec", args=args))


def test_another_number_of_drafts_has_another_speed() -> None:
    args = {**case("eagle3").config.args, "speculative-num-steps": 5}
    assert "--speculative-num-steps 5" in str(unknown(case("eagle3", args=args)))


def test_another_model_is_not_known() -> None:
    other = msgspec.structs.replace(SUITE.configs[0].model, id="org/other")
    assert "nothing of org/other" in str(unknown(case("no-spec", model=other)))


@pytest.mark.parametrize(
    "args", [{"enable-metrics": True}, {"served-model-name": "kimi"}, {"log-level": "warning"}]
)
def test_what_changes_no_figure_does_not_matter(args: dict[str, Any]) -> None:
    assert unknown(case("no-spec", args={"tp-size": 8, **args})) is None


def test_a_flag_that_the_version_refuses_is_known_to_fail() -> None:
    assert unknown(case("no-spec", args={"tp-size": 8, "warp": True})) is None


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ({"concurrency": 8}, "knows concurrency 1, and nothing of 8 requests at once"),
        ({"concurrency": None, "request_rate": 2.0}, "nothing of requests that arrive at a rate"),
        ({"input_tokens": Lengths(mean=32768)}, "prompts of 1 to 2048 tokens, and nothing of 32768"),
        (
            {"output_tokens": Lengths(kind="uniform", mean=5, low=0, high=10)},
            "tokens, and nothing of 0",
        ),
        ({"dataset": "d.jsonl", "input_tokens": Lengths()}, "generated prompts, and nothing of those of a"),
        ({"output_tokens": Lengths(kind="uniform", low=1, high=9000)}, "answers of 1 to 4096 tokens"),
    ],
)
def test_a_load_beyond_what_was_told_is_not_known(workload: dict[str, Any], reason: str) -> None:
    assert reason in str(unknown(case("no-spec", **workload)))


def test_the_load_does_not_matter_to_what_never_serves() -> None:
    assert unknown(case("torch-symm-mem", concurrency=8)) is None
    assert unknown(case("torch-symm-mem", concurrency=8), "story", "opens:torch-symm-mem")


def test_another_engine_is_not_known() -> None:
    assert "nothing of vllm" in str(unknown(case("no-spec", engine="vllm")))
    with pytest.raises(EngineMissing, match="no engine 'vllm'"):
        Simulation().engine("vllm")


def test_the_host_meets_what_the_suite_requires() -> None:
    host = Simulation().host()
    assert (host.profile, host.count, host.compute_capability, host.topology) == (
        "rtx-pro-6000-blackwell-x8",
        8,
        "12.0",
        "pcie",
    )
    assert host.simulated


@pytest.mark.parametrize(
    ("version", "expected"), [("story", ("0.5.10", "patched")), ("0.5.14", ("0.5.14", "stock"))]
)
def test_the_build_is_the_version_s(version: str, expected: tuple[str, str]) -> None:
    simulation = Simulation(version)
    build = simulation.engine("sglang").build(simulation.site(SUITE.configs[0]))
    assert (build.name, build.version, build.build) == ("sglang", *expected)
    assert "deep-ep" not in build.packages and "flashinfer-python" in build.packages


def test_the_command_carries_the_perturbation_of_its_config_only() -> None:
    from pytest_gpuserve.load.api import Target

    simulation = Simulation.from_options(None, ["slowdown:no-spec=8%", "opens:nccl-tree"])
    target = Target(host="127.0.0.1", port=1)

    def argv(config_id: str) -> str:
        config = SUITE.config(config_id)
        return " ".join(Simulated().command(config, simulation.site(config), target, (0, 1)).argv)

    assert "--slowdown 0.08" in argv("no-spec") and "--action" not in argv("no-spec")
    assert "--action opens --env NCCL_ALGO -- --model-path moonshotai/Kimi-K2.5" in argv("nccl-tree")
    assert "--slowdown" not in argv("eagle3") and "--action" not in argv("eagle3")


def test_title() -> None:
    assert Simulation().title == (
        "simulated host rtx-pro-6000-blackwell-x8, sglang 0.5.10 (patched build, the founding story's)"
    )
    assert Simulation.from_options("sglang==0.5.14", ["crash:a"]).title.endswith(
        "sglang 0.5.14 (stock build), perturbed: crash:a"
    )


@pytest.mark.parametrize("flag", ["load-format", "json-model-override-args"])
def test_how_fast_a_cheap_start_would_serve_is_not_known(flag: str) -> None:
    value = {"load-format": "dummy", "json-model-override-args": {"num_hidden_layers": 4}}[flag]
    reason = unknown(case("no-spec", args={"tp-size": 8, flag: value}))
    assert reason is not None
    assert f"--{flag}" in reason
