"""A workload measured on a server of engine openai that speaks otherwise than the engine supposes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.openai import OpenAI
from pytest_gpuserve.errors import Crashed, Invalid
from pytest_gpuserve.load.validity import SATURATED, TOGETHER
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload
from pytest_gpuserve.serving import measure
from pytest_gpuserve.serving.measure import Measurement, with_way_out

from ..load.conftest import Step, loopback, stream  # noqa: F401  (a fixture)
from ..load.test_faults import GOOD, status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_gpuserve.record import Round

    from ..load.conftest import Loopback

    Start = Callable[..., Loopback]

WITHOUT_DONE = stream(*GOOD[:-1])


@pytest.fixture
def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Round]]:
    """What is measured on a server, by a config with these `args`."""
    monkeypatch.setattr(measure, "DEATH_NOTICE_S", 0)

    def run(server: Loopback, *, warmup: int = 0, requests: int = 4, **args: Any) -> list[Round]:
        said = {name.replace("_", "-"): value for name, value in args.items()}
        config = Config(id="c", place=Place("s", 1), engine="openai", model=ModelRef(id="m"), args=said)
        workload = Workload(
            name="w",
            concurrency=1,
            requests=requests,
            warmup=warmup,
            rounds=1,
            input_tokens=Lengths(mean=8),
            output_tokens=Lengths(mean=4),
            busy_machine=True,
        )
        running: Any = SimpleNamespace(
            target=server.target, log=tmp_path / "log", gpus=(), owns=lambda _: None, failed=lambda: False
        )
        return Measurement(
            running,
            OpenAI(),
            config,
            workload,
            Site(python="python"),
            folder=tmp_path,
            seed=0,
            say=lambda _: None,
        ).rounds()

    return run


def test_streams_without_done_are_no_crash_and_the_setting_is_named(
    loopback: Start,  # noqa: F811
    rounds: Any,
) -> None:
    with pytest.raises(Invalid, match=r"every warm-up request failed: no_done: .*`args: \{done: false\}`"):
        rounds(loopback(WITHOUT_DONE), warmup=1)
    (result,) = rounds(loopback(WITHOUT_DONE))
    assert "requests failed: no_done: " in result.invalid[0]
    assert "`args: {done: false}`" in result.invalid[0]
    (result,) = rounds(loopback(WITHOUT_DONE), warmup=1, done=False)
    assert result.invalid == [] and result.requests.ok == 4


def test_errors_to_all_of_a_warm_up_are_a_crash(loopback: Start, rounds: Any) -> None:  # noqa: F811
    with pytest.raises(Crashed, match="every warm-up request failed: http_500: out of memory"):
        rounds(loopback(status(500, b"out of memory")), warmup=1)


def test_a_server_that_closes_after_each_stream_needs_no_setting(
    loopback: Start,  # noqa: F811
    rounds: Any,
) -> None:
    """llama.cpp's does, although the head of its answers says Keep-Alive."""
    closing = loopback(lambda _: [Step(0, stream(*GOOD)), Step(0, None)])
    (result,) = rounds(closing)
    assert result.failures == {} and result.requests.ok == 4


def test_where_a_setting_says_otherwise_the_way_out_is_named() -> None:
    closed = "2 of 4 requests failed: closed_early: the server closed the connection"
    assert with_way_out(closed, "openai").startswith(f"{closed}; ")
    assert "`args: {keep-alive: false}`" in with_way_out(closed, "openai")
    assert with_way_out(closed, "sglang") == closed, "it has no such setting"


def test_a_machine_with_other_work_is_told_of_its_setting() -> None:
    for reason in (f"{SATURATED}34% of the stamps lost", f"{TOGETHER} in 2 of 4 requests: TPOT refused"):
        said = with_way_out(reason, "sglang")
        assert said.startswith(f"{reason}; ") and "`busy_machine: true`" in said
