from __future__ import annotations

import pytest

from pytest_gpuserve.host import profile_name
from pytest_gpuserve.host.visible import select


@pytest.mark.parametrize(
    ("product", "count", "name"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, "rtx-pro-6000-blackwell-x8"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 8, "rtx-pro-6000-blackwell-x8"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 8, "rtx-pro-6000-blackwell-max-q-x8"),
        ("NVIDIA H200", 1, "h200-x1"),
        ("NVIDIA H200 NVL", 1, "h200-nvl-x1"),
        ("NVIDIA H100 NVL", 1, "h100-nvl-x1"),
        ("NVIDIA H100 PCIe", 1, "h100-pcie-x1"),
        ("NVIDIA H100 80GB HBM3", 8, "h100-80gb-hbm3-x8"),
        ("NVIDIA A100-SXM4-40GB", 8, "a100-sxm4-40gb-x8"),
        ("NVIDIA A100-SXM4-80GB", 8, "a100-sxm4-80gb-x8"),
        ("NVIDIA GeForce RTX 5090", 2, "rtx-5090-x2"),
        ("NVIDIA RTX 6000 Ada Generation", 1, "rtx-6000-ada-x1"),
        ("Quadro RTX 6000", 1, "rtx-6000-x1"),
        ("Tesla T4", 4, "t4-x4"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 1, "h100-80gb-hbm3-mig-1g.10gb-x1"),
        ("../../etc", 1, "etc-x1"),
        ("???", 1, "unknown-x1"),
        ("anything", 0, "cpu"),
    ],
)
def test_profiles(product: str, count: int, name: str) -> None:
    assert profile_name(product, count) == name


def test_mixed_hosts_do_not_depend_on_the_order() -> None:
    assert profile_name(["NVIDIA L40S", "NVIDIA H200", "NVIDIA L40S"], 3) == "h200-and-l40s-x3"


UUIDS = ["GPU-aa11", "GPU-ab22", "GPU-cc33"]


@pytest.mark.parametrize(
    ("visible", "chosen", "note"),
    [
        (None, [0, 1, 2], ""),
        ("0,1,2", [0, 1, 2], ""),
        (" 2 , 0 ", [2, 0], ""),
        ("GPU-cc33,GPU-aa", [2, 0], ""),
        ("", [], "CUDA_VISIBLE_DEVICES hides all GPUs"),
        ("-1", [], "CUDA_VISIBLE_DEVICES=-1: '-1' names no GPU"),
        ("0,7,1", [0], "CUDA_VISIBLE_DEVICES=0,7,1: '7' names no GPU"),
        ("1,", [1], ""),
        ("GPU-a", [], "CUDA_VISIBLE_DEVICES=GPU-a: 'GPU-a' names no GPU"),
        ("0,0", [], "CUDA_VISIBLE_DEVICES=0,0 names a GPU twice, for which CUDA hides all"),
    ],
)
def test_visible_devices(visible: str | None, chosen: list[int], note: str) -> None:
    assert select(visible, UUIDS) == (chosen, note)
