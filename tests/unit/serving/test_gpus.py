"""What NVML tells, with a library that is made up; nothing here needs a GPU."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.serving import gpus, processes
from pytest_gpuserve.serving.gpus import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterator

EIGHT = tuple(Gpu(i, f"GPU-{i:08x}-0000") for i in range(8))


@pytest.mark.parametrize(
    ("setting", "numbers"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("", []),
        ("3,1", [3, 1]),
        (" 4 , 5", [4, 5]),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("2,2", [2]),
        ("GPU-00000006", [6]),
        ("gpu-00000006-0000,0", [6, 0]),
        ("GPU-ffff,0", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices(setting: str | None, numbers: list[int]) -> None:
    assert [g.number for g in gpus.visible(EIGHT, setting)] == numbers


def test_mig_devices_are_refused() -> None:
    with pytest.raises(InputError, match="MIG devices cannot be leased"):
        gpus.visible(EIGHT, "MIG-8f3e")


class Waits:
    """Counts waits, and changes memory while one waits."""

    def __init__(self, values: list[float | None]) -> None:
        self.values = values
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.waits += 1

    def used(self, index: int) -> float | None:
        return self.values[min(self.waits, len(self.values) - 1)]


def test_memory_that_comes_back_late() -> None:
    slow = Waits([30_000.0, 30_000.0, 500.0])
    assert gpus.memory_left({0: 400.0}, slow.wait, used=slow.used) == ("", "back")
    assert slow.waits == 2


def test_memory_that_stays_is_named() -> None:
    stuck = Waits([30_000.0])
    left, _ = gpus.memory_left({5: 100.0}, stuck.wait, used=stuck.used, patience=0.0)
    assert left == "GPU 5 holds 29900 MiB more than before"


def test_who_uses_what_is_not_given_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "users", lambda index: [os.getpid()] if index == 5 else [])
    left, _ = gpus.memory_left({5: 100.0}, Waits([]).wait, used=lambda index: 900.0, patience=0.0)
    assert left == f"GPU 5 holds 800 MiB more than before, used by {processes.describe(os.getpid())}"


def test_memory_that_cannot_be_read_is_said() -> None:
    blind = Waits([None])
    assert gpus.memory_left({0: 0.0}, blind.wait, used=blind.used) == ("", "not readable on GPU [0]")
    assert gpus.memory_left({}, blind.wait) == ("", "no GPU")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    library: Any = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def memory(handle: int, version: int | None = None) -> SimpleNamespace:
        if version is None:
            return SimpleNamespace(used=900 << 20)
        if handle == 1:
            raise NVMLError("not supported")
        return SimpleNamespace(used=4 << 20)

    library.NVMLError = NVMLError
    library.nvmlMemory_v2 = 2
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetCount = lambda: 2
    library.nvmlDeviceGetHandleByIndex = lambda index: index
    library.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}".encode() if handle else "GPU-0"
    library.nvmlDeviceGetMemoryInfo = memory
    library.nvmlDeviceGetComputeRunningProcesses = lambda handle: [SimpleNamespace(pid=42)]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    gpus._nvml.cache_clear()
    yield library
    gpus._nvml.cache_clear()


def test_the_library_is_asked(nvml: ModuleType) -> None:
    assert gpus.gpus() == (Gpu(0, "GPU-0"), Gpu(1, "GPU-1"))
    assert gpus.used_mib(0) == 4.0
    assert gpus.used_mib(1) == 900.0  # an old driver knows the first version only
    assert gpus.users(0) == [42]


def test_without_a_driver_there_are_none(nvml: Any) -> None:
    def fail() -> None:
        raise nvml.NVMLError("driver not loaded")

    nvml.nvmlInit = fail
    gpus._nvml.cache_clear()
    assert gpus.gpus() == ()
    assert gpus.used_mib(0) is None
    assert gpus.users(0) == []
