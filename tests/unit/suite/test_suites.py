"""The suites of this repository say what they are meant to say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytest_gpuserve.suite import load_suite
from pytest_gpuserve.yaml_source import load

SUITES = Path(__file__).parents[3] / "suites"


def test_the_blackwell_suite() -> None:
    suite = load_suite(SUITES / "kimi_k2_5.yaml", engines=["sglang"], markers=["blackwell", "sm120"])
    assert suite.name == "kimi_k2_5"
    assert [case.id for case in suite.cases()] == [
        f"{config}-decode"
        for config in (
            "no-spec", "eagle3", "flashinfer-allreduce-fusion", "custom-allreduce-pcie", "nccl-tree",
            "nccl-tree-allreduce", "torch-symm-mem", "ep-flashinfer-a2a", "ep-deepep", "ep-native",
            "pcie-ipc-allreduce",
        )
    ]  # fmt: skip
    by_id = {config.id: config for config in suite.configs}
    for config in suite.configs:
        assert (config.args["tp-size"], config.gpus, config.markers) == (8, 8, ("blackwell", "sm120"))
        assert config.model.id == "moonshotai/Kimi-K2.5"
    eagle = by_id["eagle3"].dead_end
    assert eagle is not None
    assert eagle.expect is not None
    assert (eagle.kind, eagle.expect.value, eagle.expect.tolerance) == ("slower", 54.1, 0.15)
    assert {c.id: c.known for c in suite.configs if c.known} == {
        "flashinfer-allreduce-fusion": "sglang-flashinfer-allreduce-fusion-sm120",
        "custom-allreduce-pcie": "sglang-custom-allreduce-pcie",
        "nccl-tree": "sglang-nccl-algo-tree",
        "nccl-tree-allreduce": "none",
        "torch-symm-mem": "sglang-torch-symm-mem",
        "ep-flashinfer-a2a": "sglang-flashinfer-a2a",
        "ep-deepep": "sglang-deepep-missing",
    }
    assert [c.id for c in suite.configs if c.gate.hypothesis] == [
        "nccl-tree-allreduce", "ep-native", "pcie-ipc-allreduce",
    ]  # fmt: skip
    assert by_id["custom-allreduce-pcie"].requires[-1].build == "patched"


def test_the_smoke_suite() -> None:
    suite = load_suite(SUITES / "h200_smoke.yaml", engines=["sglang"], markers=["hopper"])
    assert [(config.id, config.model.id) for config in suite.configs] == [
        ("no-spec", "llama1b"),
        ("ngram", "llama1b"),
        ("moe-no-spec", "moe"),
        ("deepep", "moe"),
        ("ep-flashinfer-a2a", "moe"),
    ]
    assert {w.name: w.concurrency for w in suite.workloads.values()} == {"decode": 1, "batch": 16}
    assert all(config.gpus == 1 for config in suite.configs)


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_without_libyaml_the_same_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = load_suite(path)
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    assert load_suite(path) == fast
    assert load(path).place("configs", 1, "id").line > 1


def test_a_thousand_cases_load_at_once(tmp_path: Path) -> None:
    """0.25 s on one core of 2026; the bound only catches what grows faster than the file."""
    head, configs = (SUITES / "kimi_k2_5.yaml").read_text().split("configs:\n")
    lines = configs.splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if "id: torch-symm-mem" in line)
    block = "".join(lines[start : start + 3])
    text = head + "configs:\n" + configs
    text += "".join(block.replace("id: torch-symm-mem", f"id: copy{i}") for i in range(1000))
    (tmp_path / "s.yaml").write_text(text)
    began = time.process_time()
    suite = load_suite(tmp_path / "s.yaml", engines=["sglang"], markers=["blackwell", "sm120"])
    assert len(suite.cases()) == 1011
    assert time.process_time() - began < 5
