from __future__ import annotations

import pytest

from pytest_gpuserve.engines.simulated.version import parse_simulate
from pytest_gpuserve.errors import InputError


def test_without_a_value_it_is_the_founding_story() -> None:
    assert parse_simulate(None) == ("sglang", "story")


@pytest.mark.parametrize("text", ["sglang==0.5.14", "SGLang==0.5.14"])
def test_a_version(text: str) -> None:
    assert parse_simulate(text) == ("sglang", "0.5.14")


@pytest.mark.parametrize(
    "text", ["sglang", "0.5.14", "sglang=0.5.14", "sglang>=0.5.14", "sglang==", "x y==1", "", "default"]
)
def test_what_is_no_engine_and_version_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"is no engine==version; there are: sglang==0\.5\.14, ") as info:
        parse_simulate(text)
    assert repr(text) in str(info.value)


@pytest.mark.parametrize("text", ["suites/", "kimi_k2_5.yaml", "suites/a.yaml::test_serving[x-y]"])
def test_a_path_that_the_option_swallowed_is_recognised(text: str) -> None:
    with pytest.raises(InputError, match="Is it a path"):
        parse_simulate(text)


@pytest.mark.parametrize("text", ["sglang==0.5.99", "vllm==0.5.14"])
def test_what_no_profile_describes_lists_what_they_do(text: str) -> None:
    with pytest.raises(InputError, match=r"knows no '.*'; there are: sglang==0\.5\.14, sglang==story"):
        parse_simulate(text)
