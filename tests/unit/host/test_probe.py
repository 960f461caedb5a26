"""The probe against a stand-in for NVML; what real drivers say is noted where it was seen."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml as real
import pytest

from pytest_gpuserve.host.nvml import Gpus
from pytest_gpuserve.host.probe import cpu_name, host_of, probe

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


class Card(NamedTuple):
    """A GPU as the stand-in has it."""

    name: str = "NVIDIA H200"
    capability: tuple[int, int] = (9, 0)
    memory: int = 150_754_820_096
    power: int | None = 700_000
    links: int = 18


class Memory(NamedTuple):
    total: int


class FakeNvml(ModuleType):
    """As much of pynvml as the probe uses. `pairs` are the NVLink pairs; None: the driver does not tell."""

    def __init__(self, cards: list[Card], pairs: set[tuple[int, int]] | None = frozenset()) -> None:  # type: ignore[assignment]
        super().__init__("pynvml")
        self.cards = cards
        self.pairs = pairs
        self.closed = 0
        for name in dir(real):
            if name.startswith("NVML"):
                setattr(self, name, getattr(real, name))

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}0000000-aaaa"

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return self.cards[handle].name.encode()

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return self.cards[handle].capability

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Memory:
        return Memory(self.cards[handle].memory)

    def nvmlDeviceGetPowerManagementLimit(self, handle: int) -> int:
        power = self.cards[handle].power
        if power is None:
            raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
        return power

    def nvmlSystemGetDriverVersion(self) -> str:
        return "590.12"

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, index: int) -> int:
        assert index == real.NVML_P2P_CAPS_INDEX_NVLINK
        if self.pairs is None:
            raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
        joined = (min(a, b), max(a, b)) in self.pairs
        return real.NVML_P2P_STATUS_OK if joined else real.NVML_P2P_STATUS_NOT_SUPPORTED

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= self.cards[handle].links:
            raise real.NVMLError(real.NVML_ERROR_INVALID_ARGUMENT)
        return real.NVML_FEATURE_ENABLED


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(*cards: Card, **more: Any) -> FakeNvml:
        fake = FakeNvml(list(cards), **more)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


BLACKWELL = Card(SERVER, (12, 0), 102_641_958_912, 600_000, 0)


def test_eight_blackwells_behind_pcie(nvml: Any) -> None:
    fake = nvml(*[BLACKWELL] * 8)
    host = probe({})
    assert host.profile == "rtx-pro-6000-blackwell-x8"
    assert (host.product, host.count, host.compute_capability) == (SERVER, 8, "12.0")
    assert (host.topology, host.driver, host.memory_gib, host.power_limit_w) == (
        "pcie",
        "590.12",
        95.6,
        600.0,
    )
    assert (host.simulated, host.note, fake.closed) == (False, "", 1)


def test_one_gpu_is_single_even_with_nvlink(nvml: Any) -> None:
    nvml(Card())
    host = probe({})
    assert (host.profile, host.topology, host.memory_gib) == ("h200-x1", "single", 140.4)


def test_nvlink_means_every_pair(nvml: Any) -> None:
    all_pairs = {(i, j) for i in range(4) for j in range(i + 1, 4)}
    nvml(*[Card()] * 4, pairs=all_pairs)
    assert probe({}).topology == "nvlink"
    nvml(*[Card()] * 4, pairs={(0, 1), (2, 3)})
    assert probe({}).topology == "pcie"
    assert probe({"CUDA_VISIBLE_DEVICES": "0,1"}).topology == "nvlink"
    assert probe({"CUDA_VISIBLE_DEVICES": "1,2"}).topology == "pcie"


def test_links_decide_where_pairs_cannot_be_asked(nvml: Any) -> None:
    nvml(*[Card()] * 2, pairs=None)
    assert probe({}).topology == "nvlink"
    nvml(*[BLACKWELL] * 2, pairs=None)
    assert probe({}).topology == "pcie"


def test_only_visible_gpus_count(nvml: Any) -> None:
    nvml(*[BLACKWELL] * 8)
    host = probe({"CUDA_VISIBLE_DEVICES": "4,5"})
    assert (host.count, host.profile) == (2, "rtx-pro-6000-blackwell-x2")
    hidden = probe({"CUDA_VISIBLE_DEVICES": ""})
    assert (hidden.count, hidden.profile, hidden.note) == (0, "cpu", "CUDA_VISIBLE_DEVICES hides all GPUs")


def test_mixed_products_are_as_able_as_the_least(nvml: Any) -> None:
    nvml(Card(), Card("NVIDIA L40S", (8, 9), 48 << 30, None, 0))
    host = probe({})
    assert (host.profile, host.product) == ("h200-and-l40s-x2", "NVIDIA H200 and NVIDIA L40S")
    assert (host.compute_capability, host.memory_gib, host.power_limit_w) == ("8.9", 48.0, 700.0)


@pytest.mark.parametrize("code", [real.NVML_ERROR_LIBRARY_NOT_FOUND, real.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_machine_without_a_driver_is_a_cpu_host(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fake = nvml()
    monkeypatch.setattr(fake, "nvmlInit", lambda: _raise(real.NVMLError(code)), raising=False)
    host = probe({})
    assert (host.profile, host.count, host.topology, host.note) == ("cpu", 0, "none", "")
    assert host.product


def test_a_driver_in_trouble_is_told(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = nvml(Card())
    error = real.NVMLError(real.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    monkeypatch.setattr(fake, "nvmlInit", lambda: _raise(error), raising=False)
    assert probe({}).note == "NVML: RM has detected an NVML/RM version mismatch."
    fake = nvml(Card())
    lost = real.NVMLError(real.NVML_ERROR_GPU_IS_LOST)
    monkeypatch.setattr(fake, "nvmlDeviceGetName", lambda handle: _raise(lost), raising=False)
    assert probe({}).note == "NVML: GPU is lost"
    assert fake.closed == 1


def _raise(error: Exception) -> None:
    raise error


def test_the_real_library_here_does_not_raise() -> None:
    assert probe().profile


def test_a_processor_has_a_name(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654\nmodel name\t: other\n")
    assert cpu_name(info) == "AMD EPYC 9654"
    assert cpu_name(tmp_path / "nothing")
    assert host_of(Gpus()).profile == "cpu"
