from __future__ import annotations

import argparse

import pytest

from pytest_gpuserve.engines.flags import refuse, render
from pytest_gpuserve.errors import SuiteError
from pytest_gpuserve.model import Config, ModelRef, Place


def test_args_become_flags_in_their_order() -> None:
    args = {
        "tp-size": 8,
        "trust-remote-code": True,
        "mem-fraction-static": 0.85,
        "cuda-graph-bs": [1, 2, 4],
        "json-model-override-args": {"num_hidden_layers": 2},
    }
    assert render(args) == (
        *("--tp-size", "8", "--trust-remote-code", "--mem-fraction-static", "0.85"),
        *("--cuda-graph-bs", "1", "2", "4"),
        *("--json-model-override-args", '{"num_hidden_layers": 2}'),
    )


@pytest.mark.parametrize("value", [None, False])
def test_nothing_and_false_leave_a_flag_out(value: object) -> None:
    assert render({"enable-metrics": value}) == ()


def test_argparse_reads_back_values_that_begin_with_a_dash() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prefix")
    parser.add_argument("--interval", type=int)
    read = parser.parse_args(render({"prefix": "-x", "interval": -1}))
    assert (read.prefix, read.interval) == ("-x", -1)


def test_a_list_may_hold_mappings() -> None:
    assert render({"lora-paths": [{"lora_name": "a"}, "b"]}) == ("--lora-paths", '{"lora_name": "a"}', "b")


def config(**changes: object) -> Config:
    base = {"id": "c", "place": Place("s.yaml", 7), "engine": "sglang", "model": ModelRef(id="m"), "args": {}}
    return Config(**{**base, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [{"args": {"port": 1}}, {"extra_args": ("--port=1",)}, {"extra_args": ("--port", "1")}]
)
def test_a_flag_that_is_ours_is_refused_at_the_place_of_its_config(given: dict[str, object]) -> None:
    with pytest.raises(SuiteError, match=r"^s\.yaml:7: config 'c': the flag `port` .*; choose no port$"):
        refuse(config(**given), {"port": "choose no port"})


def test_other_flags_are_none_of_its_business() -> None:
    refuse(config(args={"ports": 1}, extra_args=("port",)), {"port": "choose no port"})
