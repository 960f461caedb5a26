from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.check.fold import Fold
from pytest_gpuserve.check.options import SGLANG, Options
from pytest_gpuserve.check.readings import Readings
from pytest_gpuserve.check.recognise import Assumed
from pytest_gpuserve.check.sides import Side
from pytest_gpuserve.check.values import UNKNOWN, Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.check.package import Package

ARGS = """
from dataclasses import dataclass
from enum import Enum
from sglang.choices import NAMES, MORE
LOCAL = ("x", *NAMES)

class Kind(Enum):
    AUTO = "auto"
    EAGLE3 = "eagle-3"

    @classmethod
    def from_string(cls, name):
        return cls[name.upper()]

    def is_auto(self):
        return self == Kind.AUTO

    def is_fast(self):
        for _ in ():
            pass
        return True

@dataclass
class ServerArgs:
    mode: str = "auto"
    size: int = 1
    def check(self, other):
        pass
"""

CASES: dict[str, Any] = {
    "self.mode": "b",
    "self.mode == 'b'": True,
    "self.mode != 'b'": False,
    "self.mode in ('a', 'b')": True,
    "self.mode not in NAMES": False,
    "self.mode in LOCAL": True,
    "self.mode in MORE | NAMES": True,
    "self.mode in [other, 'a']": UNKNOWN,
    "self.mode in [other, 'b']": True,
    "self.mode in other": UNKNOWN,
    "self.mode is None": False,
    "self.mode is not None": True,
    "not self.mode": False,
    "self.mode == 'b' and other": UNKNOWN,
    "self.mode == 'a' and other": False,
    "other and self.mode == 'a'": False,
    "self.mode == 'b' or other": True,
    "other or self.mode == 'b'": True,
    "other or self.mode == 'a'": UNKNOWN,
    "self.mode.upper() == 'B'": True,
    "self.mode.startswith('x')": False,
    "len(self.mode) == 1": True,
    "1 < len(self.mode) < 3": False,
    "1 if self.mode == 'b' else other": 1,
    "1 if other else 1": 1,
    "1 if other else 2": UNKNOWN,
    "(x := self.mode) == 'b'": True,
    "self.mode + 'c' == 'bc'": True,
    "self.mode / 0": UNKNOWN,
    "-1 < 0": True,
    "Kind(self.mode).value == 'b'": True,
    "Kind.AUTO.is_auto()": True,
    "Kind('auto').is_auto()": True,
    "Kind(self.mode).is_auto()": False,
    "Kind('auto').is_fast()": UNKNOWN,
    "Kind.from_string('eagle3') == Kind.EAGLE3": True,
    "getattr(self, 'mode', None) == 'b'": True,
    "nobody(self.mode)": UNKNOWN,
    "f'{self.mode}'": UNKNOWN,
    "[x for x in self.mode]": UNKNOWN,
}


@pytest.fixture
def fold(source: Callable[..., Package]) -> Callable[[str], Any]:
    package = source(srt__server_args=ARGS, choices="NAMES = frozenset({'a', 'b'})\nMORE = {'c'}\n")
    options = Options(package, SGLANG)
    readings = Readings(options, Assumed(option=options.fields["mode"], value="b"))
    module = package.find("sglang.srt.server_args")
    assert module is not None
    (check,) = [
        node
        for node in module.classes["ServerArgs"].body
        if isinstance(node, ast.FunctionDef) and node.name == "check"
    ]
    side = Side(readings, "b", is_set=True)
    scope = readings.module_scope(module).inside(check, module.classes["ServerArgs"])
    return lambda text: Fold(side).value(ast.parse(text, mode="eval").body, scope)


@pytest.mark.parametrize(("expression", "value"), CASES.items())
def test_values(fold: Callable[[str], Any], expression: str, value: Any) -> None:
    found = fold(expression)
    if value is UNKNOWN:
        assert found is UNKNOWN
    else:
        assert found == value


def test_an_unknown_value_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(UNKNOWN)


def test_members_compare_by_value() -> None:
    assert Member("x") == Member("x")
    assert Member("x") == "x"
    assert Member("x") in {Member("x")}
