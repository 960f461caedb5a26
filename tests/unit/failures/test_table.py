from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.failures.classes import classes
from pytest_gpuserve.failures.known import Registry
from pytest_gpuserve.failures.table import Filters, changes, class_table, listing, page
from pytest_gpuserve.model import PHASES

OURS = Registry.load()
DOCS = Path(__file__).parents[3] / "docs"


def names(filters: Filters) -> set[str]:
    return {row[0] for row in listing(OURS, filters)}


def test_without_filters_everything_is_listed() -> None:
    assert names(Filters()) == set(OURS.names)


@pytest.mark.parametrize("gpu", ["12.0", "sm120", "SM_120", "sm_120a"])
def test_a_gpu_filters(gpu: str) -> None:
    found = names(Filters(gpu=gpu))
    assert "sglang-trtllm-mla-sm120" in found
    assert "sglang-gemma-rmsnorm-no-sm75-cubin" not in found
    assert "sglang-nccl-algo-tree" in found, "it does not depend on the GPU"


def test_a_product_filters() -> None:
    assert "sglang-deepep-too-many-blocks-h20" in names(Filters(gpu="NVIDIA H20"))
    assert "sglang-deepep-too-many-blocks-h20" not in names(Filters(gpu="NVIDIA H200"))


def test_a_version_filters_behaviours() -> None:
    (row,) = [
        row
        for row in listing(OURS, Filters(version="0.5.14", gpu="12.0"))
        if row[0] == "sglang-torch-symm-mem"
    ]
    assert row[4] == "inert"


@pytest.mark.parametrize("flag", ["--moe-a2a-backend", "moe_a2a", "deepep"])
def test_a_flag_filters(flag: str) -> None:
    assert "sglang-deepep-missing" in names(Filters(flag=flag))
    assert "sglang-torch-symm-mem" not in names(Filters(flag=flag))


def test_an_engine_filters() -> None:
    assert all(name.startswith("vllm-") for name in names(Filters(engine="vllm")))


def test_what_an_upgrade_changes() -> None:
    found = {(row[0], row[2]) for row in changes(OURS, "0.5.13", "0.5.15", Filters(gpu="12.0"))}
    assert ("sglang-torch-symm-mem", "changes its kind") in found
    assert ("sglang-flashinfer-allreduce-fusion-sm120", "changes its kind") in found
    assert not any(name == "sglang-flashinfer-a2a" for name, _ in found)


def test_what_opens_and_closes() -> None:
    found = {(row[0], row[2]) for row in changes(OURS, "0.5.19", "0.5.23", Filters())}
    assert ("sglang-cuda-graph-max-bs-removed", "closes") in found
    assert ("sglang-pcie-ipc-allreduce", "opens") in found
    assert ("sglang-flashinfer-a2a", "fails otherwise") in found
    back = {(row[0], row[2]) for row in changes(OURS, "0.5.23", "0.5.19", Filters())}
    assert ("sglang-cuda-graph-max-bs-removed", "opens") in back


def test_nothing_changes_between_a_version_and_itself() -> None:
    assert changes(OURS, "0.5.14", "0.5.14.post1", Filters()) == []


def test_a_version_must_be_one() -> None:
    with pytest.raises(InputError, match="'latest' is no version"):
        changes(OURS, "0.5.13", "latest", Filters())
    with pytest.raises(InputError, match="'latest' is no version"):
        listing(OURS, Filters(version="latest"))


def test_the_page_is_fresh() -> None:
    """Draw it again with `python -m pytest_gpuserve.failures.table > docs/dead-ends.md`."""
    assert (DOCS / "dead-ends.md").read_text(encoding="utf-8") == page(OURS)


def test_the_page_of_failures_explains_every_class_and_phase() -> None:
    text = (DOCS / "failures.md").read_text(encoding="utf-8")
    assert class_table() in text
    assert all(f"`{name}`" in text for name in (*classes(), *PHASES))
