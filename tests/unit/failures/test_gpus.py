from __future__ import annotations

import pytest

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.failures.gpus import CAPABILITIES, gpu


@pytest.mark.parametrize(
    ("written", "capability"),
    [
        ("12.0", "12.0"),
        ("sm120", "12.0"),
        ("SM_100a", "10.0"),
        ("h200", "9.0"),
        ("NVIDIA H200", "9.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("RTX PRO 6000", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0"),
        ("NVIDIA GeForce RTX 5070 Ti", "12.0"),
        ("L40S", "8.9"),
    ],
)
def test_a_product_stands_for_its_capability(written: str, capability: str) -> None:
    assert gpu(written).capability == capability


def test_every_product_is_itself() -> None:
    """`H20` is not taken for `H200`, nor `L4` for `L40`."""
    assert {name: gpu(name).capability for name in CAPABILITIES} == CAPABILITIES
    assert gpu("12.0").product is None
    assert gpu("H20").product == "H20"


@pytest.mark.parametrize("written", ["RTX 5090xx", "H2000", "RTX", "", "12", "sm", "NVIDIA"])
def test_what_is_no_gpu_is_refused_with_what_is_taken(written: str) -> None:
    with pytest.raises(InputError, match=r"no GPU .* is known; write its compute capability, .* H200, "):
        gpu(written)


def test_the_near_product_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'RTX 5090'"):
        gpu("RTX 5090xx")
