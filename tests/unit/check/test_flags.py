from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.check.flags import check_flags, removed
from pytest_gpuserve.check.help_page import Flag, Page
from pytest_gpuserve.check.variables import check_variables
from pytest_gpuserve.model import Config, ModelRef, Place

if TYPE_CHECKING:
    from pytest_gpuserve.check.finding import Finding

PAGE = Page(
    flags=(
        Flag(names=("model-path", "model")),
        Flag(names=("tp-size", "tensor-parallel-size")),
        Flag(names=("trust-remote-code",), least=0, most=0),
        Flag(names=("tf32", "no-tf32"), least=0, most=0),
        Flag(names=("moe-a2a-backend",), choices=("none", "deepep", "flashinfer")),
        Flag(names=("log-level",), choices=("0", "1")),
        Flag(names=("numa-node",), least=1, most=None),
        Flag(names=("modules",), least=0, most=None, choices=("q", "k")),
        Flag(names=("cuda-graph-max-bs-decode",)),
        Flag(names=("cuda-graph-max-bs-prefill",)),
        Flag(names=("enable-dp-attention",), least=0, most=0, help="Deprecated. Use --attn-dp-size."),
        Flag(names=("nsa-decode-backend",)),
        Flag(names=("old-thing",), least=0, most=0, help="[Deprecated] Use --new-thing."),
    )
)


def config(args: dict[str, Any] | None = None, *, extra: tuple[str, ...] = (), **more: Any) -> Config:
    return Config(
        id="one",
        place=Place("suite.yaml", 7),
        engine="sglang",
        model=ModelRef(id="m"),
        args=args or {},
        extra_args=extra,
        **more,
    )


def check(args: dict[str, Any] | None = None, *, extra: tuple[str, ...] = ()) -> list[Finding]:
    return list(check_flags(config(args, extra=extra), PAGE, "0.5.23"))


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"tp-size": 8, "tensor-parallel-size": 8, "trust-remote-code": True, "model": "x"},
        {"trust-remote-code": False, "nope": False, "neither": None},  # left out of the command line
        {"moe-a2a-backend": "deepep", "log-level": 1, "numa-node": [0, 1], "modules": []},
        {"modules": ["q", "k"], "tf32": True, "no-tf32": True},
    ],
)
def test_what_is_right(args: dict[str, Any]) -> None:
    assert check(args) == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"moe-a2a-backnd": "x"}, "has no flag --moe-a2a-backnd. Did you mean --moe-a2a-backend?"),
    ({"qwertz": 1}, "sglang 0.5.23 has no flag --qwertz"),
    (
        {"moe-a2a-backend": "deepp"},
        "'deepp' is none of the choices that sglang 0.5.23 has for --moe-a2a-backend. Did you mean 'deepep'?",
    ),
    ({"log-level": 7}, "It takes 0, 1"),
    ({"modules": ["q", "x"]}, "'x' is none of the choices"),
    ({"trust-remote-code": "yes"}, "is a switch and takes no value, here it has 'yes'. Write `true`"),
    ({"tf32": "false"}, "`false` is --no-tf32"),
    ({"numa-node": True}, "--numa-node of sglang 0.5.23 needs a value"),
    ({"tp-size": [1, 2]}, "takes 1 value(s), here are 2"),
    ({"cuda-graph-max-bs": 8}, "has no flag --cuda-graph-max-bs since 0.5.21 at the latest. Write"),
    ({"cuda-graph-max": 8}, "is ambiguous in sglang 0.5.23: it could be --cuda-graph-max-bs-decode, --cuda"),
    ({"attn-dp-size": 8}, "It came later; this version has --enable-dp-attention"),
    ({"dsa-decode-backend": "x"}, "It came later; this version has --nsa-decode-backend"),
]


@pytest.mark.parametrize(("args", "told"), WRONG, ids=[f"{one[0]}" for one in WRONG])
def test_what_is_wrong(args: dict[str, Any], told: str) -> None:
    (found,) = check(args)
    assert found.severity == "error"
    assert told in str(found)


def test_choices_that_only_the_source_tells_are_warned_of() -> None:
    page = Page(flags=PAGE.flags, origin="source")
    args = {"moe-a2a-backend": "own-plugin", "nope": 1}
    found = check_flags(config(args), page, "0.5.23")
    assert [one.severity for one in found] == ["warning", "error"]


def test_abbreviations_are_warned_of() -> None:
    (found,) = check({"tp": 8})
    assert found.severity == "warning"
    assert "--tp is an abbreviation of --tp-size" in found.text
    assert "is none of the choices" in str(check({"moe-a2a": "x"})[1])


def test_deprecated_flags_are_noted_with_what_takes_their_place() -> None:
    found = check({"enable-dp-attention": True, "old-thing": True, "nsa-decode-backend": "x"})
    assert {one.severity for one in found} == {"note"}
    assert [one.advice for one in found] == [
        "Write --attn-dp-size N in place of --dp-size N --enable-dp-attention",
        "It says: [Deprecated] Use --new-thing.",
        "There it is --dsa-decode-backend",
    ]


def test_words_passed_as_they_stand_are_checked_too() -> None:
    assert check(extra=("--moe-a2a-backend=deepep", "--tp-size", "8", "positional")) == []
    assert "none of the choices" in str(check(extra=("--moe-a2a-backend=x",))[0])
    assert "has no flag --nope" in str(check(extra=("--nope", "1"))[0])


def test_the_table_of_removed_flags() -> None:
    table = removed("sglang")
    assert table["cuda-graph-max-bs"].gone == "0.5.21"
    for name, one in table.items():
        assert name not in one.flags
        assert one.instead
        assert all(flag in one.instead for flag in one.flags), name
        # What takes its place may be gone in turn, but not in the same version.
        assert all(table[flag].gone != one.gone for flag in one.flags if flag in table)
    assert removed("nobody") == {}


def test_variables_that_nothing_reads() -> None:
    known = frozenset({"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "SGLANG_LOG_MS"})
    env = {"SGLANG_ENABLE_PCIE_IPC_ALREDUCE": "1", "SGLANG_LOG_MS": "1", "NCCL_ALGO": "Tree"}
    (found,) = check_variables(config(env=env), known, "0.5.23")
    assert (found.severity, found.advice) == ("warning", "Did you mean SGLANG_ENABLE_PCIE_IPC_ALLREDUCE?")
    (found,) = check_variables(config(env={"SGLANG_OTHER": "1"}), known, "0.5.9")
    assert found.text == "nothing in sglang 0.5.9 reads SGLANG_OTHER: it has no effect"
    assert list(check_variables(config(env=env), frozenset(), "0.5.23")) == []
