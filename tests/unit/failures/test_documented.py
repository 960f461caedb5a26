"""A failure that a log tells is held against the registry."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_gpuserve.failures.classify import classify_text
from pytest_gpuserve.failures.documented import documented
from pytest_gpuserve.failures.known import Registry
from pytest_gpuserve.record import Failure

OURS = Registry.load()
DEEPEP = Failure(
    failure_class="dependency_missing",
    phase="weights_load",
    exception="ImportError",
    message="DeepEP is not installed. Please install DeepEP package from https://example.org",
)


def names(failure: Failure, engine: str | None = "sglang") -> list[str]:
    return [one.entry for one in documented(failure, engine, OURS)]


def test_the_entry_is_named_once_with_its_way_out() -> None:
    (found,) = documented(DEEPEP, "sglang", OURS)
    assert found.entry == "sglang-deepep-missing"
    assert found.engine == ">=0.5.9,<0.5.17 or >=0.5.17"
    assert "install DeepEP" in (found.way_out or "")


def test_of_another_engine_phase_or_text_nothing_is_documented() -> None:
    assert names(DEEPEP, "vllm") == []
    assert names(DEEPEP, None) == []
    assert names(replace(DEEPEP, phase="serving")) == []
    assert names(replace(DEEPEP, message="No module named 'x'")) == []


def test_a_phase_that_is_not_known_hinders_nothing() -> None:
    assert names(replace(DEEPEP, phase=None)) == ["sglang-deepep-missing"]


def test_neither_the_machine_nor_a_class_alone_is_a_dead_end() -> None:
    assert names(replace(DEEPEP, environment=True)) == []
    memory = Failure(
        failure_class="oom_gpu", exception="torch.OutOfMemoryError", message="CUDA out of memory"
    )
    assert names(memory) == []


def test_every_example_that_has_a_text_finds_its_own_entry() -> None:
    asked = 0
    for entry in OURS.entries:
        for behaviour in entry.behaviours:
            if not any(match.message for match in behaviour.dead_end.match):
                continue
            for example in behaviour.examples:
                failure = classify_text(example.log, engine=entry.engine)
                if failure is None or failure.environment:
                    continue
                asked += 1
                found = [one.entry for one in documented(failure, entry.engine, OURS)]
                assert entry.name in found or failure.failure_class.startswith("oom")
    assert asked >= 20
