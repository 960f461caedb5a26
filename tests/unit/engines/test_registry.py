from __future__ import annotations

import re
from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pytest_gpuserve.engines import registry
from pytest_gpuserve.engines.openai import OpenAI
from pytest_gpuserve.engines.registry import GROUP, find, names
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.errors import InputError
from pytest_gpuserve.model import PhaseRule, Place

if TYPE_CHECKING:
    from pathlib import Path


class Foreign(OpenAI):
    """Somebody's, whole."""


class Half(OpenAI):
    counters: ClassVar[Any] = None
    ready_path: ClassVar[Any] = property(lambda _: [].nothing)  # type: ignore[attr-defined]


class Misnamed(OpenAI):
    phases = (PhaseRule(phase="first_forward", pattern="x"),)  # type: ignore[arg-type]


class Ruled(OpenAI):
    file: ClassVar[Path]

    def rules(self) -> Any:
        return self.file


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, value, GROUP)
        for name, value in {
            "broken": "pytest_gpuserve.engines.nowhere:Engine",
            "foreign": f"{__name__}:Foreign",
            "other": "collections:OrderedDict",
            "half": f"{__name__}:Half",
            "misnamed": f"{__name__}:Misnamed",
            "ruled": f"{__name__}:Ruled",
        }.items()
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
    monkeypatch.setattr(registry, "OWN", {"sglang": "pytest_gpuserve.engines.sglang:SGLang"})


def test_engines_are_listed_without_being_loaded() -> None:
    assert names() == ("broken", "foreign", "half", "misnamed", "other", "ruled", "sglang")


def test_our_own_need_no_entry_point() -> None:
    assert isinstance(find("sglang"), SGLang)


def test_third_parties_are_found_too() -> None:
    assert isinstance(find("foreign"), Foreign)


def test_an_unknown_name_suggests_the_near_one_at_its_place() -> None:
    with pytest.raises(InputError, match=r"^s\.yaml:3: unknown engine 'sglag'; did you mean 'sglang'\?$"):
        find("sglag", Place("s.yaml", 3))


def test_a_name_like_no_other_lists_what_there_is() -> None:
    with pytest.raises(
        InputError,
        match="unknown engine 'trt'; there are: broken, foreign, half, misnamed, other, ruled, sglang",
    ):
        find("trt")


def test_an_engine_that_cannot_be_loaded_names_its_owner() -> None:
    with pytest.raises(
        InputError, match=r"engine 'broken' of pytest_gpuserve\.engines\.nowhere:Engine cannot be"
    ):
        find("broken")


def test_an_engine_that_lacks_something_is_told_with_all_that_it_lacks() -> None:
    with pytest.raises(InputError, match=r"^s\.yaml:3: the engine 'half' of .*: \S+\.Half lacks ") as error:
        find("half", Place("s.yaml", 3))
    assert "lacks ready_path, counters(); docs/engines.md" in str(error.value)
    with pytest.raises(
        InputError, match=r"collections\.OrderedDict lacks name, ready, .*round_warnings\(\);"
    ):
        find("other")


def test_a_phase_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(
        InputError, match=r"Misnamed\.phases: 'first_forward' is no phase; there are: import,"
    ):
        find("misnamed")


def test_an_engines_rules_are_read_before_anything_is_started(tmp_path: Path) -> None:
    Ruled.file = tmp_path / "failures.yaml"
    with pytest.raises(InputError, match=r"Ruled\.rules\(\): .*failures\.yaml: No such file"):
        find("ruled")
    Ruled.file.write_text("rules:\n  - {class: oom_kv, patern: full}\n")
    at = re.escape(f"Ruled.rules(): {Ruled.file}:2: rules[0].patern: unknown key; did you mean 'pattern'?")
    with pytest.raises(InputError, match=at):
        find("ruled")
