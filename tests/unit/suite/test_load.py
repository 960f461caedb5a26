from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import SuiteError
from pytest_gpuserve.model import Args, Config, Gate, Launches, ModelRef, Place, Requires

from .conftest import SMALL

if TYPE_CHECKING:
    from .conftest import Load

FULL = """\
suite: kimi
markers: [blackwell]
requires: {gpus: 8, compute_capability: "12.0"}
tolerance: 4%
server:
  engine: sglang
  model: {id: moonshotai/Kimi-K2.5, revision: abc}
  args: {tp-size: 8, trust-remote-code: true, a: 1}
  extra_args: [--x]
  env: {A: "1", B: "2"}
  env_from: [HF_TOKEN]
  timeouts: {weights_load: 30m, shutdown: 90}
  python: /opt/python
workloads:
  decode: {concurrency: [1, 8], requests: 8, input_tokens: 128, output_tokens: 512}
  open: {request_rate: 2.5, duration: 30s, input_tokens: 100, output_tokens: 10}
launches: {min: 2, max: 3, baseline: 4}
configs:
  - id: no-spec
  - id: eagle3
    args: {a: null, b: [1, 2], c: {x: 1}, tp-size: 4}
    extra_args: [--y, "1"]
    env: {B: null, C: "3"}
    requires: {engine: "sglang>=0.5.10"}
    timeouts: {shutdown: 5}
    markers: [slow, blackwell]
    compare_to: no-spec
    gate: [tpot_ms]
    active_if: {log: 'workspace built'}
    workloads: [decode]
    known: none
    xfail: {kind: slower, reason: r, expect: {output_throughput: 54.1, tolerance: 15%}}
  - id: other
    engine: vllm
    model: small
    gate: none
    workloads: [open, decode_c8]
    xfail: {known: some-entry}
"""


def test_everything_a_suite_can_say(load: Load) -> None:
    suite = load(FULL, known=["some-entry"], engines=["sglang", "vllm"], markers=["blackwell", "slow"])
    assert (suite.name, suite.markers) == ("kimi", ("blackwell",))
    assert suite.launches == Launches(min=2, max=3, baseline=4)
    assert list(suite.workloads) == ["decode_c1", "decode_c8", "open"]
    plain, eagle, other = suite.configs

    assert plain.model == ModelRef(id="moonshotai/Kimi-K2.5", revision="abc")
    assert plain.args == {"tp-size": 8, "trust-remote-code": True, "a": 1}
    assert plain.env == {"A": "1", "B": "2"}
    assert (plain.own_args, plain.own_env) == (frozenset(), frozenset())
    assert plain.timeouts == {"weights_load": 1800.0, "shutdown": 90.0}
    assert plain.gate == Gate(tolerance=0.04)
    assert (plain.python, plain.markers) == ("/opt/python", ("blackwell",))

    assert eagle.args == {"tp-size": 4, "trust-remote-code": True, "b": [1, 2], "c": {"x": 1}}
    assert list(eagle.args) == ["tp-size", "trust-remote-code", "b", "c"]
    assert eagle.extra_args == ("--x", "--y", "1")
    assert eagle.env == {"A": "1", "C": "3"}
    assert eagle.env_from == ("HF_TOKEN",)
    assert eagle.own_args == {"a", "b", "c", "tp-size"}
    assert eagle.own_env == {"B", "C"}
    assert [r.gpus or r.engine for r in eagle.requires] == [8, ("sglang>=0.5.10",)]
    assert eagle.timeouts == {"weights_load": 1800.0, "shutdown": 5.0}
    assert eagle.markers == ("blackwell", "slow")
    assert eagle.gate == Gate(metrics=("tpot_ms",), tolerance=0.04, explicit=True)
    assert eagle.active_if is not None
    assert eagle.active_if.log == "workspace built"
    assert eagle.dead_end is not None
    assert eagle.dead_end.kind == "slower"
    assert (eagle.known, eagle.compare_to, eagle.workloads) == ("none", "no-spec", ("decode_c1", "decode_c8"))
    assert (eagle.place.file, eagle.place.line) == ("s.yaml", 20)
    assert eagle.dead_end.place.line == 32

    assert (other.engine, other.args, other.env, other.extra_args) == ("vllm", {}, {}, ())
    assert (other.python, other.env_from) == (None, ("HF_TOKEN",))
    assert (other.known, other.dead_end, other.gate.hypothesis) == ("some-entry", None, True)
    assert other.workloads == ("open", "decode_c8")
    assert [case.id for case in suite.cases()] == [
        "no-spec-decode_c1", "no-spec-decode_c8", "no-spec-open", "eagle3-decode_c1", "eagle3-decode_c8",
        "other-open", "other-decode_c8",
    ]  # fmt: skip


def test_the_small_one(load: Load) -> None:
    suite = load(SMALL)
    assert (suite.name, [case.id for case in suite.cases()]) == ("s", ["no-spec-decode"])
    assert suite.configs[0].gate == Gate()


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("none", Gate(metrics=(), explicit=True)),
        ("ttft_ms", Gate(metrics=("ttft_ms",), explicit=True)),
        ("[e2e_ms, goodput]", Gate(metrics=("e2e_ms", "goodput"), explicit=True)),
        ("{metrics: [goodput], tolerance: 8%}", Gate(metrics=("goodput",), tolerance=0.08, explicit=True)),
        ("{tolerance: 0.1}", Gate(tolerance=0.1)),
    ],
)
def test_forms_of_a_gate(load: Load, gate: str, expected: Gate) -> None:
    assert load(SMALL + f"    gate: {gate}").configs[0].gate == expected


def test_a_gate_of_the_suite_is_inherited(load: Load) -> None:
    suite = load(
        SMALL + "  - {id: b, gate: {tolerance: 2%}}\n  - {id: c, gate: none}\ngate: [tpot_ms]\ntolerance: 9%"
    )
    gates = [config.gate for config in suite.configs]
    assert gates[0] == Gate(metrics=("tpot_ms",), tolerance=0.09, explicit=True)
    assert gates[1] == Gate(metrics=("tpot_ms",), tolerance=0.02, explicit=True)
    assert gates[2] == Gate(metrics=(), tolerance=0.09, explicit=True)


def test_known_and_xfail_known_are_the_same(load: Load) -> None:
    suite = load(
        SMALL
        + "  - {id: b, known: x}\n  - {id: c, xfail: {known: x}}\n  - {id: d, known: x, xfail: {known: x}}"
    )
    assert [config.known for config in suite.configs] == [None, "x", "x", "x"]


def test_a_variable_is_passed_from_outside_or_set(load: Load) -> None:
    suite = load(SMALL.replace("model}", "model, env_from: [A]}") + "    env_from: [B, A]\n    env: {C: x}")
    config = suite.configs[0]
    assert config.env_from == ("A", "B")
    assert config.own_env == {"A", "B", "C"}


def more(text: str) -> str:
    """SMALL with a further key of its config."""
    return f"{SMALL}    {text}\n"


def config(text: str) -> str:
    """SMALL with a second config."""
    return f"{SMALL}  - {text}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.yaml:1: is empty"),
        ("# nothing\n", "s.yaml:1: is empty"),
        ("- a\n", "s.yaml:1: expected a mapping, got a list"),
        (SMALL.replace("configs:\n  - id: no-spec\n", ""), "s.yaml:1: configs: no configs"),
        (SMALL.replace("  - id: no-spec\n", "  []\n"), "s.yaml:4: configs: no configs"),
        (SMALL.replace("  - id: no-spec\n", ""), "s.yaml:4: configs: expected a list, got nothing"),
        ("configs: [{id: a}]", "workloads: no workloads"),
        (SMALL.replace("server:", "sever:"), "s.yaml:1: sever: unknown key; did you mean 'server'?"),
        (more("gates: none"), "s.yaml:6: configs[0].gates: unknown key; did you mean 'gate'?"),
        (more("compare-to: x"), "unknown key; did you mean 'compare_to'?"),
        (SMALL.replace("concurrency: 1", "concurency: 1"),
         "s.yaml:3: workloads.decode.concurency: unknown key; did you mean 'concurrency'?"),
        (SMALL.replace("requests: 4", "requests: four"),
         "s.yaml:3: workloads.decode.requests: expected a whole number, got text"),
        (config("id: no-spec"), "s.yaml:6: configs[1].id: the id 'no-spec' is taken (line 5)"),
        (config("args: {}"), "s.yaml:6: configs[1]: the key 'id' is missing"),
        (config("id: a b"), "may hold ASCII letters and digits, joined by one of . _ -"),
        (config("id: a--b"), "may hold ASCII letters and digits, joined by one of . _ -"),
        (config("id: 'a[1]'"), "may hold ASCII letters and digits, joined by one of . _ -"),
        (config("id: Zürich"), "may hold ASCII letters and digits"),
        (config('id: "b\\n"'), "the id 'b\\n' may hold ASCII letters and digits"),
        (config(f"id: {'b' * 81}"), "s.yaml:6: configs[1].id: the id has 81 characters; at most 80"),
        (SMALL + f"suite: {'b' * 200}\n", "s.yaml:6: suite: the name has 200 characters; at most 80"),
        (SMALL + "suite: a/b\n", "s.yaml:6: suite: the name 'a/b'"),
        (SMALL.replace("engine: sglang, ", ""), "s.yaml:5: configs[0]: no engine"),
        (SMALL.replace(", model: some/model", ""), "s.yaml:5: configs[0]: no model"),
        (SMALL.replace("some/model", "''"), "no model"),
        (SMALL.replace("sglang", "sglag"), "s.yaml:1: server.engine: no engine 'sglag' among sglang, vllm; "),
        (more("engine: vlm"), "s.yaml:6: configs[0].engine: no engine 'vlm' among sglang, vllm; did"),
        (more("compare_to: no-spek"),
         "s.yaml:6: configs[0].compare_to: no config 'no-spek' in this suite; did you mean 'no-spec'?"),
        (more("compare_to: no-spec"), "leads back to where it began: no-spec -> no-spec"),
        (more("compare_to: b\n  - {id: b, compare_to: no-spec}"),
         "leads back to where it began: no-spec -> b -> no-spec"),
        (more("known: some-entri"),
         "s.yaml:6: configs[0].known: no entry in the registry of dead ends 'some-entri' among other, some-"),
        (more("xfail: {known: x}"), "s.yaml:6: configs[0].xfail.known: no entry"),
        (more("xfail: {known: none}"), "write `known: none` in the config itself"),
        (more("xfail: {known: some-entry, kind: start}"), "configs[0].xfail.kind: unknown key"),
        (more("known: other\n    xfail: {known: some-entry}"),
         "configs[0].known: says 'other', and xfail says 'some-entry'"),
        (more("known: some-entry\n    xfail: {kind: slower, reason: r, expect: {tpot_ms: 9}}"),
         "configs[0].known: this config writes its own xfail"),
        (more("xfail: {kind: slower, reason: r}"), "slower than what? give compare_to"),
        (more("xfail: {kind: inert, reason: r}"), "nothing would show that it is inert"),
        (more("xfail: {kind: start, reason: r}"), "needs a match"),
        (more("xfail: {kind: start, reason: r, match: {class: hw_unsuported}}"),
         "no failure class 'hw_unsuported' among hw_unsupported; did you"),
        (SMALL + "markers: [blackwel]\n",
         "s.yaml:6: markers[0]: the marker 'blackwel' is not registered (pytest's `markers` setting); "
         "did you mean 'blackwell'?"),
        (more("markers: [hoper]"), "s.yaml:6: configs[0].markers[0]: the marker 'hoper'"),
        (more("markers: ['a b']"), "'a b' is no name for a marker"),
        (SMALL + "markers: [xfail]\n",
         "s.yaml:6: markers[0]: the marker 'xfail' is no label, pytest acts on it; write `xfail:` in the config"),
        (more("markers: [blackwell, usefixtures]"), "configs[0].markers[1]: the marker 'usefixtures' is no label"),
        (more("active_if: {log: '['}"), "s.yaml:6: configs[0].active_if.log: not a regular expression"),
        (more("requires: {engine: 'vllm>=0.9'}"), "is about vllm, and no-spec starts sglang"),
        (SMALL + "requires: {engine: 'vllm>=0.9'}", "s.yaml:6: requires.engine: is about vllm"),
        (more("gate: outputs"), "configs[0].gate: no metric 'outputs'"),
        (more("gate: [tpot_ms, ttft]"), "configs[0].gate[1]: no metric 'ttft'; did you mean 'ttft_ms'?"),
        (more("gate: [tpot_ms, tpot_ms]"), "the metric 'tpot_ms' twice"),
        (more("gate: []"), "no metrics; `gate: none` makes a hypothesis"),
        (more("timeouts: {wait_load: 3}"), "configs[0].timeouts.wait_load: no such phase"),
        (more("timeouts: {weights_lod: 3}"), "did you mean 'weights_load'?"),
        (more("timeouts: {warmup: soon}"), "'soon' is no duration"),
        (more("timeouts: {warmup: 0}"), "configs[0].timeouts.warmup: a duration cannot be 0 here"),
        (more('extra_args: ["a\\0b"]'), "s.yaml:6: a NUL character"),
        (more('"a\\nb": 1'), "s.yaml:6: configs[0].'a\\nb': unknown key"),
        (more("workloads: [decod]"), "configs[0].workloads[0]: no workload 'decod'; did you mean 'decode'?"),
        (more("workloads: []"), "an empty list"),
        (more("workloads: [decode, decode]"), "the workload 'decode' twice"),
        (SMALL + "tolerance: 5\n", "s.yaml:6: tolerance: a share lies between 0 and 1"),
        (SMALL + "launches: {min: 3, max: 2}\n", "s.yaml:6: launches.max: is less than min (3)"),
        (SMALL + "launches: {baseline: 0}\n", "launches.baseline: expected a whole number >= 1"),
        (SMALL + "launches: {max: 2000}\n", "launches.max: expected a whole number <= 1000"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(
            text,
            known=["some-entry", "other"],
            engines=["sglang", "vllm"],
            markers=["blackwell", "hopper", "xfail", "usefixtures"],
            failure_classes=["hw_unsupported"],
        )
    assert message in str(caught.value)
    assert str(caught.value).startswith("s.yaml:")


@pytest.mark.parametrize(
    ("server", "config", "message"),
    [
        ("args: {--tp-size: 8}", "", "server.args.--tp-size: flags are written without the dashes: tp-size"),
        ("args: {tp-size=8: true}", "", "'tp-size=8' is no flag"),
        ("args: {a: null}", "", "server.args.a: null removes what is inherited, and nothing is"),
        (
            "args: {tp-size: 8}",
            "args: {tp-sise: null}",
            "configs[0].args.tp-sise: null removes what is inherited, "
            "and nothing is; write true for a flag without a value; did you mean 'tp-size'?",
        ),
        ("args: {a: [1, [2]]}", "", "a list is passed as `--key a b` and holds numbers and text alone"),
        ("args: {a: [null]}", "", "holds numbers and text alone"),
        ("args: {a: .nan}", "", "nan cannot be passed"),
        ("args: [a]", "", "server.args: expected a mapping, got a list"),
        ("env: {A: 1}", "", 'server.env.A: the value of a variable is text; quote it: A: "1"'),
        ("", "env: {A: true}", 'configs[0].env.A: the value of a variable is text; quote it: A: "true"'),
        ("", "env: {A: null}", 'null removes what is inherited, and nothing is; write ""'),
        ("env: {A: x}", "env_from: [A]", "configs[0].env_from[0]: A is set in env as well"),
        ("env_from: [A]", "env: {A: x}", "server.env_from[0]: A is set in env as well"),
        ("env_from: ['A-B']", "", "'A-B' is no name for a variable"),
        ("extra_args: [1]", "", "server.extra_args[0]: expected text, got a whole number"),
        ("timeouts: {shutdown: -1}", "", "a duration cannot be -1"),
    ],
)
def test_args_and_env(load: Load, server: str, config: str, message: str) -> None:
    text = f"""\
server:
  engine: sglang
  model: some/model
  {server}
workloads:
  decode: {{concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}}
configs:
  - id: no-spec
    {config}
"""
    with pytest.raises(SuiteError) as caught:
        load(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("s.yaml:4: " if "server." in message else "s.yaml:")


def test_a_shutdown_may_take_no_time(load: Load) -> None:
    assert load(more("timeouts: {shutdown: 0}")).configs[0].timeouts == {"shutdown": 0.0}


def test_nothing_is_checked_against_lists_that_are_not_given(load: Load) -> None:
    suite = load(SMALL + "    engine: my-engine\n    known: my-entry\n    markers: [mine]\n")
    assert suite.configs[0].known == "my-entry"


def test_a_partner_must_be_measured_with_the_same_workloads(load: Load) -> None:
    text = SMALL.replace("configs:", "  batch: {requests: 4, input_tokens: 1, output_tokens: 1}\nconfigs:")
    with pytest.raises(SuiteError, match=r"configs\[1\]\.compare_to: no-spec is not measured with batch"):
        load(text + "    workloads: [decode]\n  - {id: b, compare_to: no-spec}\n")
    assert load(text + "    workloads: [decode]\n  - {id: b, compare_to: no-spec, workloads: [decode]}\n")


@pytest.mark.parametrize(
    ("args", "gpus"),
    [
        ({}, 2),
        ({"tp-size": 1}, 1),
        ({"dp-size": 1}, 2),
        ({"tensor-parallel-size": 4, "pipeline-parallel-size": 2}, 8),
        ({"pp-size": 4}, 4),
        ({"tp-size": 4, "dp-size": 2}, 8),
        ({"data-parallel-size": 8}, 8),
        ({"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}, 8),
        ({"tp": 4, "dp": 2}, 8),
    ],
)
def test_how_many_gpus_a_server_takes(args: Args, gpus: int) -> None:
    config = Config(
        id="c",
        place=Place("s.yaml", 1),
        engine="sglang",
        model=ModelRef(id="m"),
        args=args,
        requires=(Requires(gpus=2),),
    )
    assert config.gpus == gpus
