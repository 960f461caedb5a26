"""What every engine must be, whoever wrote it: each one that is registered is held against the protocol."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, get_args

import pytest
import requests

from pytest_gpuserve.engines.base import Command, Engine
from pytest_gpuserve.engines.registry import find, names
from pytest_gpuserve.engines.tiny_model import MODELS
from pytest_gpuserve.errors import InputError
from pytest_gpuserve.load.api import Api, Target
from pytest_gpuserve.model import PHASES, ApiKind, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Stub

    Make = Callable[..., Any]

METHODS = {
    name: member
    for name, member in vars(Engine).items()
    if inspect.isfunction(member) and not name.startswith("_")
}
TINY = ModelRef(id="gpuserve-tiny")
TARGET = Target(host="127.0.0.1", port=31000)


@pytest.fixture(params=names())
def engine(request: pytest.FixtureRequest) -> Engine:
    return find(request.param)


def test_there_are_all_that_the_documents_name() -> None:
    assert {"llamacpp", "openai", "sglang", "vllm"} <= set(names())


def test_it_has_every_method_with_the_same_parameters(engine: Engine) -> None:
    for name, wanted in METHODS.items():
        has = inspect.signature(getattr(engine, name))
        asks = list(inspect.signature(wanted).parameters.values())[1:]
        assert [(p.name, p.default) for p in has.parameters.values()] == [
            (p.name, p.default) for p in asks
        ], name


def test_its_facts(engine: Engine) -> None:
    assert engine.name in names()
    assert engine.ready_path.startswith("/")
    re.compile(engine.ready)
    assert set(engine.timeouts) <= set(PHASES)
    assert all(seconds > 0 for seconds in engine.timeouts.values())
    assert isinstance(engine.secret_args, frozenset)
    assert {rule.phase for rule in engine.phases} <= set(PHASES)
    for rule in engine.phases:
        re.compile(rule.pattern)
    assert engine.rules() is None or engine.rules().is_file()


def test_it_makes_a_process_that_listens_where_it_is_told(
    engine: Engine, config: Make, site: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    at = site(models={TINY.id: str(tmp_path)}, python="/usr/bin/python3")
    try:
        command = engine.command(config(engine.name, model=TINY), at, TARGET, ())
    except InputError:
        return  # it is not installed here, or it attaches
    assert isinstance(command, Command)
    assert all(isinstance(word, str) for word in command.argv)
    assert str(TARGET.port) in command.argv
    assert any(str(tmp_path) in word for word in command.argv)


@pytest.mark.parametrize("kind", [None, *get_args(ApiKind)])
def test_its_api(engine: Engine, config: Make, workload: Make, kind: Any) -> None:
    """An endpoint, or an error that says which there are."""
    try:
        api = engine.api(config(engine.name), workload(api=kind))
    except InputError as error:
        assert kind is not None, "there must be one by itself"
        assert kind in str(error)
        return
    assert isinstance(api, Api)
    assert api.path.startswith("/") and (kind is None or api.kind == kind)
    assert api.vocabulary > 0


def test_a_plain_config_does_not_speculate(engine: Engine, config: Make) -> None:
    assert engine.speculative(config(engine.name)) is False


def test_nothing_is_said_against_an_empty_round(engine: Engine, tmp_path: Any) -> None:
    log = tmp_path / "log"
    log.write_text("")
    assert engine.round_warnings(log, 0, 0) == ([], [])


def test_a_mute_server_is_a_request_exception(engine: Engine, stub: Stub) -> None:
    target = stub.target
    stub.close()
    with pytest.raises(requests.RequestException):
        engine.info(target)
    for call in (engine.flush, engine.counters):
        try:
            call(target)
        except requests.RequestException:
            pass


def test_a_server_without_counters_has_none(engine: Engine, stub: Stub) -> None:
    assert engine.counters(stub.target) is None


def test_the_names_of_made_models_are_no_hub_names() -> None:
    assert all("/" not in name for name in MODELS)
