from __future__ import annotations

import msgspec
import pytest

from pytest_gpuserve.engines.endpoints import OPENAI, Endpoint, chosen
from pytest_gpuserve.errors import SuiteError
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload

CONFIG = Config(id="c", place=Place("s.yaml", 3), engine="e", model=ModelRef(id="m"), args={})
LOAD = Workload(name="w", concurrency=1, input_tokens=Lengths(mean=8), output_tokens=Lengths(mean=8))


def test_the_first_that_is_offered_unless_the_workload_names_one() -> None:
    offered = {"generate": Endpoint("/generate", True), **OPENAI}
    assert chosen(offered, LOAD, CONFIG, engine="E") == ("generate", Endpoint("/generate", True))
    chat = msgspec.structs.replace(LOAD, api="chat")
    assert chosen(offered, chat, CONFIG, engine="E") == ("chat", Endpoint("/v1/chat/completions", False))


def test_one_that_the_engine_does_not_have_names_workload_and_place() -> None:
    load = msgspec.structs.replace(LOAD, api="generate")
    with pytest.raises(SuiteError, match=r"'w'.*has no api 'generate', only completions and chat") as error:
        chosen(OPENAI, load, CONFIG, engine="vLLM")
    assert "s.yaml:3" in str(error.value)
