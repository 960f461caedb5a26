"""Every public report is told as expected, and without the rules taken from it rightly or not at all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gpuserve.failures.classes import classes
from pytest_gpuserve.failures.classify import Classifier, classify_text
from pytest_gpuserve.failures.rules import own_files, rule_set

CASES = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in sorted((Path(__file__).parent / "g1").glob("*.yaml"))
}


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def silent(case: dict[str, Any]) -> bool:
    named = several(case["expected"]["failure_class"])
    return all(name is not None and classes()[name].silent for name in named)


TOLD = [name for name, case in CASES.items() if not silent(case)]


def test_the_corpus_is_whole() -> None:
    assert len(CASES) == 42
    assert len(TOLD) == 40


@pytest.mark.parametrize("known_engine", [True, False], ids=["engine", "recognised"])
@pytest.mark.parametrize("name", TOLD)
def test_a_report_is_told(name: str, known_engine: bool) -> None:
    case = CASES[name]
    expected = case["expected"]
    failure = classify_text(case["log"], engine=case["engine"] if known_engine else None)
    if failure is None:
        assert None in several(expected["failure_class"])
        return
    assert failure.failure_class in several(expected["failure_class"])
    assert failure.failure_class not in several(expected.get("must_not_classify_as"))
    assert failure.phase in several(expected["phase"]) or expected["phase"] is None
    assert failure.exception in several(expected["exception"])
    assert failure.line is not None
    assert failure.line <= case["log"].count("\n")
    if signature := expected.get("signature"):
        assert re.search(signature, f"{failure.message}\n{failure.excerpt}")


@pytest.mark.parametrize("name", [name for name in CASES if silent(CASES[name])])
def test_what_only_results_show_is_not_guessed_from_the_log(name: str) -> None:
    assert classify_text(CASES[name]["log"], engine=CASES[name]["engine"]) is None


@pytest.mark.parametrize("name", TOLD)
def test_without_its_own_rules_a_report_is_told_rightly_or_not_at_all(name: str) -> None:
    case = CASES[name]
    rules = rule_set(own_files(None)).without(frozenset({case["source"]}))
    classifier = Classifier(engine=case["engine"], rules_given=rules)
    for line in case["log"].split("\n"):
        classifier.feed(line)
    failure = classifier.finish()
    told = failure.failure_class if failure else None
    assert told in (None, "unknown", *several(case["expected"]["failure_class"]))


def test_most_rules_are_kinds_and_not_cases() -> None:
    """Leaving a case's own rules out leaves most cases told: the rules are not a list of the cases."""
    told = 0
    for name in TOLD:
        case = CASES[name]
        rules = rule_set(own_files(None)).without(frozenset({case["source"]}))
        classifier = Classifier(engine=case["engine"], rules_given=rules)
        for line in case["log"].split("\n"):
            classifier.feed(line)
        failure = classifier.finish()
        told += (failure.failure_class if failure else None) in several(case["expected"]["failure_class"])
    assert told >= 0.8 * len(TOLD)
