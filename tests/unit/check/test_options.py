from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.check.options import SGLANG, Options
from pytest_gpuserve.check.values import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.check.package import Package


def test_options_of_an_argparse_call(old: Package) -> None:
    options = Options(old, SGLANG)
    found = options.fields["moe_a2a_backend"]
    assert found.choices == ("none", "deepep", "flashinfer", "mori")
    assert (found.default, found.type, found.help) == ("none", "str", "A2A.")
    assert found.place is not None and found.place.file == "sglang/srt/server_args.py"
    assert options.fields["tp_size"].flags == ("tensor-parallel-size", "tp-size")
    assert options.fields["enable_torch_symm_mem"].switch
    assert options.fields["hybrid_ratio"].deprecated == {
        "hybrid-ratio": "Note: --hybrid-ratio is deprecated. Use --swa-ratio."
    }


def test_options_of_annotated_fields(new: Package) -> None:
    options = Options(new, SGLANG)
    assert options.fields["tp_size"].flags == ("tp-size", "tensor-parallel-size")
    assert options.fields["moe_runner_backend"].help == "The runner."
    assert options.fields["join_offset"].flags == ("elastic-join-offset",)
    assert options.fields["stat_loggers"].flags == ()  # no help, no flag
    # The field itself is no flag any more; a deprecated spelling still sets it.
    found = options.fields["enable_dp_attention"]
    assert found.flags == ("enable-dp-attention",)
    assert "enable-dp-attention" in found.deprecated


def test_variables(old: Package) -> None:
    found = Options(old, SGLANG).variables
    assert {name: (one.type, one.default) for name, one in found.items()} == {
        "SGLANG_NVFP4_DISPATCH": ("bool", False),
        "SGLANG_TOKENS": ("int", 1024),
    }


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("--tp-size", "tp_size"),
        ("tensor_parallel_size", "tp_size"),
        ("tp_size", "tp_size"),
        ("NCCL_ALGO", "NCCL_ALGO"),
        ("nope", None),
    ],
)
def test_what_a_user_may_write(old: Package, written: str, name: str | None) -> None:
    found = Options(old, SGLANG).find(written)
    assert (found.name if found else None) == name


def test_near_words(old: Package) -> None:
    options = Options(old, SGLANG)
    assert options.near("moe-a2a") == ["moe-a2a-backend"]
    assert options.near("--moe-runer-backend")[0] == "moe-runner-backend"
    assert options.near("xyz") == []


def test_a_default_that_is_computed(source: Callable[..., Package]) -> None:
    text = "class ServerArgs:\n    a: int = cpu_count()\n    b: int = 2 * 3\n    c: str = None\n"
    fields = Options(source(srt__server_args=text), SGLANG).fields
    assert [fields[name].default for name in "abc"] == [UNKNOWN, 6, None]
