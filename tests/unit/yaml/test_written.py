from __future__ import annotations

import re
from datetime import date

import pytest

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.model import Evidence, Expect, Match
from pytest_gpuserve.written import DeadEndSpec, RequiresSpec, dead_end, requires
from pytest_gpuserve.yaml_source import loads
from pytest_gpuserve.yaml_values import day, environment, pattern, seconds, share

EMPTY = loads("a: 1", "f.yaml")
KEYS = ("a",)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (90, 90.0),
        (1.5, 1.5),
        ("90s", 90.0),
        ("30m", 1800.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
    ],
)
def test_durations(written: str | float, value: float) -> None:
    assert seconds(EMPTY, KEYS, written) == pytest.approx(value)


@pytest.mark.parametrize(
    "written", ["", "90", "30 m", "m", "1d", "-3s", "1h 30m", -1, float("inf"), float("nan")]
)
def test_what_is_no_duration(written: str | float) -> None:
    with pytest.raises(InputError, match=r"f\.yaml:1: a: .*duration"):
        seconds(EMPTY, KEYS, written)


@pytest.mark.parametrize(
    ("written", "value"), [("15%", 0.15), ("0%", 0.0), ("12.5 %", 0.125), (0.15, 0.15), (1, 1.0)]
)
def test_shares(written: str | float, value: float) -> None:
    assert share(EMPTY, KEYS, written) == pytest.approx(value)


@pytest.mark.parametrize("written", ["15", "x%", "-5%", "101%", -0.1, float("nan")])
def test_what_is_no_share(written: str | float) -> None:
    with pytest.raises(InputError, match="share"):
        share(EMPTY, KEYS, written)


def test_a_bare_percentage_is_guessed() -> None:
    with pytest.raises(InputError, match=r"did you mean 15%\?"):
        share(EMPTY, KEYS, 15)


def test_patterns_compile() -> None:
    assert pattern(EMPTY, KEYS, "^12$") == "^12$"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[a-", "not a regular expression: unterminated character set"),
        ("a{99999999999}", "not a regular expression: the repetition number is too large"),
        ("(" * 5000 + ")" * 5000, "a regular expression nested too deeply"),
        ("[[]rank 3[]]", "an ambiguous regular expression: possible nested set at position 1"),
    ],
    ids=["set", "repetition", "nesting", "warning"],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_is_no_pattern(written: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pattern(EMPTY, KEYS, written)


def test_days() -> None:
    assert day(EMPTY, KEYS, "2027-03-31") == date(2027, 3, 31)
    for wrong in ("2027-02-30", "31.3.2027", "20270331", "soon"):
        with pytest.raises(InputError, match="is no day"):
            day(EMPTY, KEYS, wrong)


def test_variables_are_text() -> None:
    assert environment(EMPTY, KEYS, {"A": "1", "B": None}) == {"A": "1", "B": None}
    with pytest.raises(InputError, match=r'a\.A: the value of a variable is text; quote it: A: "1"'):
        environment(EMPTY, KEYS, {"A": 1})
    with pytest.raises(InputError, match=r'quote it: A: "true"'):
        environment(EMPTY, KEYS, {"A": True})
    with pytest.raises(InputError, match="'A B' is no name for a variable"):
        environment(EMPTY, KEYS, {"A B": "1"})


def written_dead_end(text: str) -> object:
    source = loads(text, "f.yaml")
    return dead_end(source, ("xfail",), source.convert(("xfail",), DeadEndSpec))


def test_a_dead_end_with_all_it_can_say() -> None:
    source = loads(
        """
xfail:
  kind: start
  reason: no table entry
  phases: [comm_init, weights_load]
  match:
    - {class: [hw_unsupported, software_bug], exception: KeyError, message: '^12$'}
    - {class: comm_other}
  run: false
  way_out: another flag
  link: https://example.org/1
  review: 2027-03-31
  evidence: {kind: read in source, source: torch_symm_mem.py:74}
""",
        "f.yaml",
    )
    found = dead_end(source, ("xfail",), source.convert(("xfail",), DeadEndSpec))
    assert found.phases == {"comm_init", "weights_load"}
    assert found.match == (
        Match(failure_class=("hw_unsupported", "software_bug"), exception="KeyError", message="^12$"),
        Match(failure_class=("comm_other",)),
    )
    assert (found.run, found.way_out, found.link) == (False, "another flag", "https://example.org/1")
    assert found.review == date(2027, 3, 31)
    assert found.evidence == Evidence(kind="read in source", source="torch_symm_mem.py:74")
    assert found.place.line == 2


def test_short_forms() -> None:
    expect = "expect: {output_throughput: 54.1}"
    source = loads(f"xfail: {{kind: slower, reason: r, {expect}, phases: serving, evidence: reported}}", "f")
    found = dead_end(source, ("xfail",), source.convert(("xfail",), DeadEndSpec))
    assert found.expect == Expect(metric="output_throughput", value=54.1, tolerance=0.15)
    assert found.phases == {"serving"}
    assert found.evidence == Evidence(kind="reported")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{kind: start, reason: r}", "needs a match"),
        ("{kind: garbage, reason: r}", "needs a match"),
        ("{kind: start, reason: r, match: []}", "needs a match"),
        ("{kind: start, reason: r, match: {}}", "xfail.match: says nothing"),
        ("{kind: start, reason: r, match: [{class: x}, {}]}", "xfail.match[1]: says nothing"),
        ("{kind: start, reason: r, match: {exception: torch.OutOfMemoryError}}", "without its module"),
        ("{kind: start, reason: r, match: {message: '('}}", "xfail.match.message: not a regular expression"),
        (
            "{kind: start, reason: r, match: {class: x}, expect: {tpot_ms: 1}}",
            "xfail.expect: belongs to kind 'slower'",
        ),
        ("{kind: slower, reason: r, inert_log: x}", "xfail.inert_log: belongs to kind 'inert'"),
        ("{kind: slower, reason: r, expect: {tolerance: 15%}}", "names one metric"),
        ("{kind: slower, reason: r, expect: {output_throughput: 1, tpot_ms: 1}}", "names one metric"),
        (
            "{kind: slower, reason: r, expect: {output_thruput: 1}}",
            "no such metric; did you mean 'output_throughput'?",
        ),
        ("{kind: slower, reason: r, expect: {tpot_ms: 0}}", "expected a number above 0, got 0"),
        ("{kind: slower, reason: r, expect: {tpot_ms: 9, tolerance: 15}}", "did you mean 15%?"),
        ("{kind: slow, reason: r}", "'slow' is none of start, serve, slower, inert, missing, garbage"),
        ("{kind: start, phases: [com_init], reason: r}", "did you mean 'comm_init'?"),
        ("{kind: start, match: {class: x}}", "the key 'reason' is missing"),
        ("{kind: start, reason: '', match: {class: x}}", "xfail.reason"),
        (
            "{kind: start, reason: r, match: {clas: x}}",
            "xfail.match.clas: unknown key; did you mean 'class'?",
        ),
        ("{kind: inert, reason: r, review: someday}", "xfail.review: 'someday' is no day"),
        ("{kind: inert, reason: r, evidence: rumour}", "xfail.evidence"),
    ],
)
def test_dead_ends_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        written_dead_end(f"xfail: {text}")
    assert message in str(caught.value)
    assert str(caught.value).startswith("f.yaml:1: xfail")


def test_demands() -> None:
    source = loads("r: {engine: 'sglang>=0.5.21', packages: [a>1, b], gpus: 8, memory_gib: 90}", "f.yaml")
    found = requires(source, ("r",), source.convert(("r",), RequiresSpec))
    assert (found.engine, found.packages) == (("sglang>=0.5.21",), ("a>1", "b"))
    assert (found.gpus, found.memory_gib) == (8, 90.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{engine: 'sglang=>0.5'}", "r.engine: 'sglang=>0.5' is no requirement"),
        ("{packages: ['']}", "is no requirement"),
        ("{compute_capability: 12.0}", "r.compute_capability: expected text, got a number"),
        ("{compute_capability: sm_120}", "neither a compute capability such as '12.0'"),
        ("{topology: nvlnk}", "did you mean 'nvlink'?"),
        ("{product: '('}", "r.product: not a regular expression"),
        ("{gpus: 0}", "r.gpus: expected a whole number >= 1"),
    ],
)
def test_demands_that_make_no_sense(text: str, message: str) -> None:
    source = loads(f"r: {text}", "f.yaml")
    with pytest.raises(InputError) as caught:
        requires(source, ("r",), source.convert(("r",), RequiresSpec))
    assert message in str(caught.value)
