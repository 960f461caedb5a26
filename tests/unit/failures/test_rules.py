from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.failures.classes import classes
from pytest_gpuserve.failures.rules import Rule, own_files, rule_set

if TYPE_CHECKING:
    from pathlib import Path

ALL = rule_set(own_files(None))


def test_every_rule_names_a_class_and_its_source() -> None:
    for rule in ALL:
        assert rule.cls in classes()
        assert not classes()[rule.cls].silent
        assert rule.source, rule
        assert rule.pattern or rule.exception or rule.frame


def test_the_rules_of_an_engine_come_before_the_general_ones() -> None:
    general = rule_set(())
    sglang = rule_set(own_files("sglang"))
    assert sglang.exceptions[-len(general.exceptions) :] == general.exceptions
    assert len(sglang.exceptions) > len(general.exceptions)
    assert own_files("nobody's") == ()


def test_a_rule_needs_all_that_it_names() -> None:
    rule = Rule(
        cls="unknown", pattern="x", exception=("KeyError",), frame="a[.]py", phases=frozenset({"args"})
    )
    assert rule.fits("mod.KeyError", "an x", ['File "a.py"'], "args")
    assert not rule.fits("KeyErrorToo", "an x", ['File "a.py"'], "args")
    assert not rule.fits("KeyError", "a y", ['File "a.py"'], "args")
    assert not rule.fits("KeyError", "an x", ['File "b.py"'], "args")
    assert not rule.fits("KeyError", "an x", ['File "a.py"'], "serving")
    assert not Rule(cls="unknown", pattern="x", unless="not").fits(None, "x but not y", [], None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "rules:\n  - {class: unknown, patern: x}\n",
            r"2: rules\[0\].patern: unknown key; did you mean 'pattern'",
        ),
        ("rules:\n  - {class: unknown, pattern: '('}\n", r"2: rules\[0\]: not a regular expression"),
        ("rules:\n  - {class: unknown, phase: argh, pattern: x}\n", "phase"),
        ("rules:\n  - {pattern: x}\n", "the key 'class' is missing"),
        ("- {class: unknown, pattern: x}\n", "1: a list; write it below the key `rules:`"),
        (
            "rules:\n  - {class: unknwon, pattern: x}\n",
            r"2: rules\[0\].class: 'unknwon' is no failure class; did you mean 'unknown'",
        ),
    ],
)
def test_a_wrong_rule_is_an_error_at_its_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        rule_set((file,))
    assert re.search(told, str(error.value))
    assert "rules.yaml" in str(error.value)


def test_a_file_of_rules_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    with pytest.raises(InputError, match=r"rules\.yaml: No such file"):
        rule_set((file,))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"rules\.yaml: is not UTF-8"):
        rule_set((file,))


def test_rules_can_be_left_out_by_their_source() -> None:
    left = ALL.without(frozenset({"sgl-project/sglang#8513"}))
    assert len(list(ALL)) - len(list(left)) == 1
