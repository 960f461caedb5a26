from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from pytest_gpuserve.engines import registry
from pytest_gpuserve.engines.registry import GROUP, find, names
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.errors import InputError
from pytest_gpuserve.model import Place


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, value, GROUP)
        for name, value in {
            "broken": "pytest_gpuserve.engines.nowhere:Engine",
            "foreign": "collections:OrderedDict",
        }.items()
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
    monkeypatch.setattr(registry, "OWN", {"sglang": "pytest_gpuserve.engines.sglang:SGLang"})


def test_engines_are_listed_without_being_loaded() -> None:
    assert names() == ("broken", "foreign", "sglang")


def test_our_own_need_no_entry_point() -> None:
    assert isinstance(find("sglang"), SGLang)


def test_third_parties_are_found_too() -> None:
    assert find("foreign") == {}


def test_an_unknown_name_suggests_the_near_one_at_its_place() -> None:
    with pytest.raises(InputError, match=r"^s\.yaml:3: unknown engine 'sglag'; did you mean 'sglang'\?$"):
        find("sglag", Place("s.yaml", 3))


def test_a_name_like_no_other_lists_what_there_is() -> None:
    with pytest.raises(InputError, match="unknown engine 'trt'; there are: broken, foreign, sglang"):
        find("trt")


def test_an_engine_that_cannot_be_loaded_names_its_owner() -> None:
    with pytest.raises(
        InputError, match=r"engine 'broken' of pytest_gpuserve\.engines\.nowhere:Engine cannot be"
    ):
        find("broken")
