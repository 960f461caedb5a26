from __future__ import annotations

import pytest

from pytest_gpuserve.host import unmet
from pytest_gpuserve.model import EngineBuild, Host, Requires

BLACKWELL = Host(
    profile="rtx-pro-6000-blackwell-x8",
    product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    count=8,
    compute_capability="12.0",
    topology="pcie",
    driver="590",
    memory_gib=95.6,
)
LAPTOP = Host(
    profile="cpu", product="a CPU", count=0, compute_capability="", topology="none", driver="", memory_gib=0
)
SGLANG = EngineBuild(
    name="sglang",
    version="0.5.21",
    packages={"flashinfer-python": "0.6.18", "torch": "2.13.0"},
)


@pytest.mark.parametrize(
    ("demand", "host", "text"),
    [
        (Requires(gpus=8), BLACKWELL, None),
        (Requires(gpus=8), LAPTOP, "needs 8 GPUs, this host has none"),
        (Requires(gpus=1), LAPTOP, "needs 1 GPU, this host has none"),
        (Requires(gpus=16), BLACKWELL, "needs 16 GPUs, this host has 8"),
        (Requires(product="H200"), BLACKWELL,
         "needs a GPU that matches 'H200', this host has NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        (Requires(product="RTX PRO 6000"), BLACKWELL, None),
        (Requires(product="H200"), LAPTOP, "needs 1 GPU, this host has none"),
        (Requires(compute_capability="12.0"), BLACKWELL, None),
        (Requires(compute_capability="12.1"), BLACKWELL, "needs compute capability 12.1, this host has 12.0"),
        (Requires(compute_capability=">=9.0"), BLACKWELL, None),
        (Requires(compute_capability=">=9.0,<12"), BLACKWELL,
         "needs compute capability >=9.0,<12, this host has 12.0"),
        (Requires(compute_capability="9.0"), LAPTOP, "needs 1 GPU, this host has none"),
        (Requires(topology="pcie"), BLACKWELL, None),
        (Requires(topology="nvlink"), BLACKWELL, "needs topology nvlink, this host has pcie"),
        (Requires(topology="none"), LAPTOP, None),
        (Requires(topology="none"), BLACKWELL, "needs topology none, this host has pcie"),
        (Requires(memory_gib=90), BLACKWELL, None),
        (Requires(memory_gib=96), BLACKWELL, "needs 96 GiB of memory on each GPU, this host has 95.6"),
    ],
)  # fmt: skip
def test_hosts(demand: Requires, host: Host, text: str | None) -> None:
    assert unmet([demand], host, None) == ([text] if text else [])


@pytest.mark.parametrize(
    ("demand", "version", "text"),
    [
        ("sglang>=0.5.21", "0.5.21", None),
        ("sglang>=0.5.21", "0.5.21.post1", None),
        ("sglang>=0.5.21", "0.5.21+cu130", None),
        ("sglang>=0.5.21", "0.5.22rc1", None),
        ("sglang>=0.5.21", "0.5.21rc1", "needs sglang>=0.5.21, here is 0.5.21rc1"),
        ("sglang>=0.5.21", "0.5.9", "needs sglang>=0.5.21, here is 0.5.9"),
        ("sglang>=0.5.21", "0.5.21.dev3+gabc", "needs sglang>=0.5.21, here is 0.5.21.dev3+gabc"),
        ("sglang<0.5.14", "0.5.13.post1", None),
        ("sglang", "unknown", None),
        ("sglang>=0.5", "unknown", "needs sglang>=0.5, here is unknown"),
        ("vllm>=0.9", "0.5.21", "needs vllm>=0.9, this is sglang 0.5.21"),
    ],
)
def test_engine_versions(demand: str, version: str, text: str | None) -> None:
    build = EngineBuild(name="sglang", version=version)
    assert unmet([Requires(engine=(demand,))], LAPTOP, build) == ([text] if text else [])


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (Requires(build="stock"), None),
        (Requires(build="patched"), "needs a patched build of sglang, here is a stock one"),
        (Requires(build="patched", why="no flag"),
         "needs a patched build of sglang, here is a stock one (no flag)"),
        (Requires(packages=("flashinfer_python>=0.6",)), None),
        (Requires(packages=("flashinfer_python>0.6.18",)), "needs flashinfer_python>0.6.18, here is 0.6.18"),
        (Requires(packages=("deep_ep",)), "needs deep_ep, deep_ep is not installed with the engine"),
        (Requires(missing_packages=("deep_ep",)), None),
        (Requires(missing_packages=("torch",)), "is about torch not being installed, here is torch 2.13.0"),
        (Requires(missing_packages=("torch<2",)), None),
    ],
)  # fmt: skip
def test_builds_and_packages(demand: Requires, text: str | None) -> None:
    assert unmet([demand], LAPTOP, SGLANG) == ([text] if text else [])


def test_the_engine_is_judged_once_it_is_known() -> None:
    demand = Requires(gpus=8, engine=("sglang>=1",), build="patched", packages=("deep_ep",))
    assert unmet([demand], BLACKWELL, None) == []
    assert len(unmet([demand], BLACKWELL, SGLANG)) == 3


def test_all_demands_hold_and_nothing_is_said_twice() -> None:
    demands = [Requires(gpus=8, topology="pcie"), Requires(gpus=8), Requires(build="patched")]
    assert unmet(demands, LAPTOP, SGLANG) == [
        "needs 8 GPUs, this host has none",
        "needs a patched build of sglang, here is a stock one",
    ]


def test_why_there_are_no_gpus_is_said() -> None:
    host = Host(
        profile="cpu", product="", count=0, compute_capability="", topology="none", driver="", memory_gib=0,
        note="CUDA_VISIBLE_DEVICES hides all GPUs",
    )  # fmt: skip
    assert unmet([Requires(gpus=2)], host, None) == [
        "needs 2 GPUs, this host has none (CUDA_VISIBLE_DEVICES hides all GPUs)"
    ]
