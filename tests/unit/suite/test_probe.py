from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import SuiteError
from pytest_gpuserve.model import Probe

if TYPE_CHECKING:
    from .conftest import Load

SUITE = """\
server: {{engine: sglang, model: m}}
workloads:
  decode: {{concurrency: 1, requests: 1, input_tokens: 8, output_tokens: 8}}
{top}
configs:
  - id: plain
    {plain}
  - id: spec
    compare_to: plain
    {spec}
"""


def text(top: str = "", plain: str = "", spec: str = "") -> str:
    return SUITE.format(top=top, plain=plain or "gate: none", spec=spec or "gate: none")


def test_without_one_nothing_is_asked(load: Load) -> None:
    assert [config.probe for config in load(text()).configs] == [None, None]


def test_the_suites_holds_for_all_configs_but_those_that_say_otherwise(load: Load) -> None:
    suite = load(text("probe: sane", spec="probe: none"))
    assert [config.probe for config in suite.configs] == [Probe(demand="sane"), None]


def test_a_word_keeps_the_prompt_of_the_suite(load: Load) -> None:
    suite = load(text("probe: {prompt: Hello, output_tokens: 9}", spec="probe: same"))
    assert [config.probe for config in suite.configs] == [
        Probe(demand="sane", prompt="Hello", output_tokens=9),
        Probe(demand="same", prompt="Hello", output_tokens=9),
    ]


@pytest.mark.parametrize(
    ("suite", "said"),
    [
        (text("probe: sam"), r"probe: no probe demands 'sam'; did you mean 'same'\?"),
        (text("probe: {demand: some}"), "no probe demands 'some'"),
        (text(spec="probe: same"), "the same as what\\? plain has no probe"),
        (
            text("probe: same", plain="probe: {demand: sane, prompt: Other}"),
            "plain is asked for something else",
        ),
        (
            text(plain="xfail: {kind: garbage, reason: r, match: {class: silent_wrong_output}}"),
            "nothing would show that it answers nonsense; give the config a probe",
        ),
    ],
)
def test_what_cannot_be(load: Load, suite: str, said: str) -> None:
    with pytest.raises(SuiteError, match=said):
        load(suite)
