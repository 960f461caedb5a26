"""Every match of the registry fits its own evidence, and no healthy log and no failure of another path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_gpuserve.errors import StartFailed
from pytest_gpuserve.failures.classes import classes
from pytest_gpuserve.failures.classify import classify_file, classify_text
from pytest_gpuserve.failures.dead_end import fits_match, judge_failure
from pytest_gpuserve.failures.known import Registry
from pytest_gpuserve.record import Failure

if TYPE_CHECKING:
    from pytest_gpuserve.failures.entry import Behaviour, Entry

CORPUS = Path(__file__).parent
REGISTRY = Registry.load()
BEHAVIOURS = {
    f"{entry.name}-{index}": (entry, behaviour)
    for entry in REGISTRY.entries
    for index, behaviour in enumerate(entry.behaviours)
}
TOLD = {name: pair for name, pair in BEHAVIOURS.items() if pair[1].dead_end.match}
INERT = {name: pair for name, pair in BEHAVIOURS.items() if pair[1].dead_end.inert_log}
SILENT = {"sglang-ep8-sm120-garbage-0"}
"""Nothing but the answers shows them, so there is no log to hold the match against."""

HEALTHY = [
    log
    for log in sorted((CORPUS / "logs").glob("*/*.log"))
    if log.stem.startswith(("life_", "full_run", "serve-", "artree", "base", "ep-native", "nccl", "symm"))
]


def examples(entry: Entry, behaviour: Behaviour) -> list[Failure]:
    found = [classify_text(example.log, engine=entry.engine) for example in behaviour.examples]
    return [failure for failure in found if failure is not None]


@pytest.fixture(scope="module")
def failures() -> dict[str, list[Failure]]:
    """What every entry's evidence is told to be."""
    return {
        entry.name: [failure for one in entry.behaviours for failure in examples(entry, one)]
        for entry in REGISTRY.entries
    }


@pytest.fixture(scope="module")
def other_failures() -> dict[str, Failure]:
    """Failures of the corpus by their origin: public reports, and real logs."""
    found: dict[str, Failure | None] = {}
    for file in sorted((CORPUS / "g1").glob("*.yaml")):
        case = yaml.safe_load(file.read_text(encoding="utf-8"))
        found[case["source"]] = classify_text(case["log"], engine=case["engine"])
    for log in sorted((CORPUS / "logs").glob("*/*.log")):
        found[f"{log.parent.name}/{log.name}"] = classify_file(log)
    return {origin: failure for origin, failure in found.items() if failure is not None}


@pytest.mark.parametrize("name", sorted(TOLD.keys() - SILENT))
def test_every_match_fits_its_evidence(name: str) -> None:
    entry, behaviour = TOLD[name]
    seen = examples(entry, behaviour)
    assert seen, "keep an example, with its origin, beside the behaviour"
    assert all(example.source for example in behaviour.examples)
    for match in behaviour.dead_end.match:
        assert any(fits_match(match, failure) for failure in seen), match


@pytest.mark.parametrize("name", sorted(TOLD.keys() - SILENT))
def test_every_example_is_judged_to_be_the_dead_end(name: str) -> None:
    """Phases and all, as a failed start would be; `serve` may also fail in the warm-up."""
    entry, behaviour = TOLD[name]
    for example in behaviour.examples:
        failure = classify_text(example.log, engine=entry.engine)
        assert failure is not None
        idle = Failure(
            failure_class=failure.failure_class,
            phase=failure.phase,
            exception=failure.exception,
            message=failure.message,
            gpus_idle_before=True,
        )
        fit = judge_failure(behaviour.dead_end, StartFailed("it died", failure=idle))
        assert fit.fits, fit.why


@pytest.mark.parametrize("name", TOLD)
def test_no_match_fits_the_failure_of_another_path(name: str, failures: dict[str, list[Failure]]) -> None:
    entry, behaviour = TOLD[name]
    for other, seen in failures.items():
        if other == entry.name:
            continue
        for match in behaviour.dead_end.match:
            assert not any(fits_match(match, failure) for failure in seen), f"{match} fits {other}"


SAME = {
    "sglang-nccl-algo-tree": {"sglang-0.5.15-h200-tp2/tree.log"},
    "sglang-flashinfer-a2a": {"sglang-0.5.15-h200/start-a2a-flashinfer.log"},
    "sglang-deepep-missing": {
        "sglang-0.5.15-h200/start-deepep.log",
        "sglang-0.5.15-h200-tp2/ep-deepep.log",
    },
}
"""Real logs of the very path."""


@pytest.mark.parametrize("name", TOLD)
def test_no_match_fits_another_failure_of_the_corpus(name: str, other_failures: dict[str, Failure]) -> None:
    entry, behaviour = TOLD[name]
    own = SAME.get(entry.name, set()) | {
        example.source for one in entry.behaviours for example in one.examples
    }
    for origin, failure in other_failures.items():
        if origin in own:
            continue
        for match in behaviour.dead_end.match:
            assert not fits_match(match, failure), f"{match} fits {origin}"


def test_healthy_logs_are_many() -> None:
    assert len(HEALTHY) >= 20


@pytest.mark.parametrize("log", HEALTHY, ids=lambda log: f"{log.parent.name}/{log.stem}")
def test_a_healthy_log_has_nothing_that_could_fit(log: Path) -> None:
    """There is no failure to hold a match against, and no message in it that a match would find."""
    assert classify_file(log) is None
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for name, (_, behaviour) in TOLD.items():
        for match in behaviour.dead_end.match:
            if match.message is not None:
                hit = next((line for line in lines if re.search(match.message, line)), None)
                assert hit is None, f"{name}: {hit}"


@pytest.mark.parametrize("name", INERT)
def test_every_inert_line_fits_its_evidence_and_nothing_else(name: str) -> None:
    entry, behaviour = INERT[name]
    pattern = re.compile(behaviour.dead_end.inert_log or "")
    assert behaviour.examples
    for example in behaviour.examples:
        assert any(pattern.search(line) for line in example.log.splitlines())
        assert classify_text(example.log, engine=entry.engine) is None, "inert paths start and serve"
    for log in HEALTHY:
        if entry.name == "sglang-torch-symm-mem" and log.stem == "symm":
            continue  # the real log of the very path
        text = log.read_text(encoding="utf-8", errors="replace")
        assert not any(pattern.search(line) for line in text.splitlines()), log.name


def test_a_path_that_needs_no_log_says_how_it_is_told() -> None:
    for name in SILENT:
        match = BEHAVIOURS[name][1].dead_end.match
        assert all(classes()[word].silent for one in match for word in one.failure_class)


def test_every_public_report_that_is_no_fault_of_the_machine_is_an_entry() -> None:
    """Left out: the state of the machine, what is no failure, what only tells of another failure, a licence."""
    sources = {
        source
        for entry in REGISTRY.entries
        for one in entry.behaviours
        for source in (
            *(example.source for example in one.examples),
            one.dead_end.evidence.source if one.dead_end.evidence else "",
        )
    }
    left_out = set()
    for file in sorted((CORPUS / "g1").glob("*.yaml")):
        case = yaml.safe_load(file.read_text(encoding="utf-8"))
        if case["source"] not in sources:
            left_out.add(file.stem[:2])
    assert left_out == {"25", "26", "29", "36", "37", "38", "46", "54", "55", "57", "59"}
