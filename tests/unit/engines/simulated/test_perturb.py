from __future__ import annotations

import pytest

from pytest_gpuserve.engines.simulated.perturb import Change, Perturbation, parse
from pytest_gpuserve.errors import InputError


def test_nothing() -> None:
    assert parse([]) == Perturbation()
    assert parse([]).of("any") == Change()


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("slowdown=8%", "any", Change(slowdown=0.08)),
        ("slowdown:no-spec=2.5%", "no-spec", Change(slowdown=0.025)),
        ("slowdown:no-spec=2.5%", "eagle3", Change()),
        ("slowdown=-10%", "any", Change(slowdown=-0.1)),
        ("opens:torch-symm-mem", "torch-symm-mem", Change(action="opens")),
        ("otherwise:ep-deepep", "ep-deepep", Change(action="otherwise")),
        ("crash:no-spec", "no-spec", Change(action="crash")),
        ("hang:no-spec", "eagle3", Change()),
    ],
)
def test_forms(text: str, config: str, expected: Change) -> None:
    assert parse([text]).of(config) == expected


def test_a_config_s_own_slowdown_wins_over_the_general_one() -> None:
    found = parse(["slowdown=8%", "slowdown:a=1%", "crash:a"])
    assert found.of("a") == Change(slowdown=0.01, action="crash")
    assert found.of("b") == Change(slowdown=0.08)
    assert found.texts() == ("slowdown=8.00%", "slowdown:a=1.00%", "crash:a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slowdown",
        "slowdown=8",
        "slowdown=%",
        "slowdown:=8%",
        "slow=8%",
        "opens",
        "opens:",
        "opens:a=8%",
        "melts:a",
    ],
)
def test_anything_else_is_quoted_with_the_forms_that_exist(text: str) -> None:
    with pytest.raises(
        InputError, match=r"--gpuserve-perturb '.*': expected slowdown=8%, .* or hang:<config>"
    ) as info:
        parse([text])
    assert repr(text) in str(info.value)


@pytest.mark.parametrize("percent", ["100%", "-100%", "250%"])
def test_a_slowdown_leaves_something(percent: str) -> None:
    with pytest.raises(InputError, match="lies between"):
        parse([f"slowdown={percent}"])


@pytest.mark.parametrize(
    "texts",
    [
        ["slowdown=1%", "slowdown=2%"],
        ["slowdown:a=1%", "slowdown:a=2%"],
        ["crash:a", "hang:a"],
        ["opens:a", "opens:a"],
    ],
)
def test_two_that_contradict(texts: list[str]) -> None:
    with pytest.raises(InputError, match=r"already|before"):
        parse(texts)


def test_a_config_that_no_suite_has() -> None:
    found = parse(["opens:torch-sym-mem", "slowdown:no-spec=1%"])
    with pytest.raises(
        InputError, match=r"no suite of this run has a config 'torch-sym-mem'; did you mean 'torch-symm"
    ):
        found.check(["no-spec", "torch-symm-mem"])
    found.check(["no-spec", "torch-sym-mem"])
