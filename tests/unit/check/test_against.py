from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.check.against import as_dict, as_text, compare, normalised
from pytest_gpuserve.check.options import SGLANG
from pytest_gpuserve.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gpuserve.check.against import Change
    from pytest_gpuserve.check.package import Package


@pytest.fixture
def change(old: Package, new: Package) -> Change:
    return compare(new, old, SGLANG, "moe-a2a-backend=flashinfer")


def test_it_is_told_from_the_older_to_the_newer_version(change: Change) -> None:
    assert (change.old_version, change.new_version) == ("0.5.9", "0.5.23")


def test_demands_added_and_changed(change: Change) -> None:
    added = {one.message for one in change.added if one.kind == "demand"}
    assert "A2A requires --attn-dp-size equal to --tp-size" in added
    (pair,) = [pair for pair in change.changed if pair[0].kind == "demand"]
    assert [one.code for one in pair] == [
        "assert moe_runner_backend in ['flashinfer_cutlass']",
        "assert moe_runner_backend in ['flashinfer_cutlass', 'flashinfer_trtllm']",
    ]


def test_moved_code_that_does_the_same_is_no_change(change: Change) -> None:
    # `self.ep_size = self.tp_size` in a method became `return {"ep_size": view.tp_size}` in another file.
    everything = [*change.added, *change.removed, *(one for pair in change.changed for one in pair)]
    assert not [one for one in everything if one.code.startswith(("ep_size", "disable_shared"))]
    assert change.same >= 2


def test_a_demand_that_went_away(old: Package, new: Package) -> None:
    change = compare(old, new, SGLANG, "enable-torch-symm-mem")
    assert [one.site.exception for one in change.removed if one.kind == "demand"] == ["KeyError"]


def test_the_declaration_is_compared(change: Change) -> None:
    assert change.declaration == ["choices added: pplx"]


def test_text_and_json(change: Change) -> None:
    text = as_text(change)
    assert text.startswith("sglang 0.5.9 -> 0.5.23: --moe-a2a-backend flashinfer\n  choices added: pplx\n")
    assert "- sglang/srt/server_args.py:" in text
    assert "+     assert moe_runner_backend in ['flashinfer_cutlass', 'flashinfer_trtllm']" in text
    told = as_dict(change)
    assert told["old"] == "0.5.9" and len(told["changed"]) == len(change.changed)


def test_the_same_version_twice(old: Package, old_folder: Path) -> None:
    change = compare(old, old, SGLANG, "moe-a2a-backend=flashinfer")
    assert not change.any
    assert "Nothing changes." in as_text(change)


def test_an_option_that_one_of_them_lacks(old: Package, new: Package) -> None:
    change = compare(old, new, SGLANG, "attn-dp-size=8")
    assert change.old is None and "sglang 0.5.9 has no option 'attn-dp-size'" in change.missing
    assert "has no option" in as_text(change)
    with pytest.raises(InputError, match="has no option 'nope'"):
        compare(old, new, SGLANG, "nope")


@pytest.mark.parametrize(
    ("code", "bare"),
    [
        ("self.tp_size == cfg.dp_size", "tp_size == dp_size"),
        ("resolved_view(server_args).tp_size", "tp_size"),
        ("assert get_exec().moe.tp_size in (1, other.x)", "assert tp_size in (1, other.x)"),
        ("'text'", "'text'"),
        ("except ImportError", "except ImportError"),
    ],
)
def test_names_of_objects_do_not_count(code: str, bare: str) -> None:
    assert normalised(code, frozenset({"tp_size", "dp_size"})) == bare
