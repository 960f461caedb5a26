"""GPUs as NVML shows them: which there are, which we may use, what their memory holds.

nvidia-ml-py is imported on first use only. Without a driver there are no GPUs, and that is no error.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from . import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

MIB = 1 << 20
BACK_TOLERANCE_MIB = 256.0
"""What a GPU may hold more than before a launch and still count as given back."""
BACK_PATIENCE_S = 60.0
"""Memory is given back after the process has gone; tens of GiB took seconds (sgl-project/sglang#36589)."""

MPS_SERVER = "nvidia-cuda-mps-server"


class Gpu(NamedTuple):
    """`number` as NVML counts, which is CUDA's order under CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    number: int
    uuid: str


@cache
def _nvml() -> ModuleType | None:
    """The initialised library, or None without a driver. Never shut down: it ends with the process."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml  # type: ignore[no-any-return]


def gpus() -> tuple[Gpu, ...]:
    """All GPUs of this machine; empty without a driver."""
    nvml = _nvml()
    if nvml is None:
        return ()
    return tuple(
        Gpu(index, _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))))
        for index in range(nvml.nvmlDeviceGetCount())
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def visible(devices: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Those of the devices that an outer CUDA_VISIBLE_DEVICES allows, in its order; None: all.

    Numbers count as NVML does. As in CUDA, the list ends at the first entry that names no device. MIG devices
    are an InputError: they cannot be leased.
    """
    if setting is None:
        return tuple(devices)
    found: list[Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.upper().startswith("MIG"):
            raise InputError(
                f"CUDA_VISIBLE_DEVICES={setting}: MIG devices cannot be leased; name whole GPUs or unset it"
            )
        match = next((g for g in devices if _names(entry, g)), None)
        if match is None:
            break
        if match not in found:
            found.append(match)
    return tuple(found)


def _names(entry: str, gpu: Gpu) -> bool:
    if entry.isdigit():
        return int(entry) == gpu.number
    return entry.upper().startswith("GPU-") and len(entry) > 4 and gpu.uuid.upper().startswith(entry.upper())


def used_mib(index: int) -> float | None:
    """Memory in use on a GPU, without what the driver reserves for itself; None when it cannot be read."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            # The first version of this call counts the driver's own reserve as used.
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except (nvml.NVMLError, TypeError, AttributeError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:
        return None
    return float(memory.used) / MIB


def library() -> Any:
    """NVML, initialised, or None without a driver."""
    return _nvml()


def users(index: int, nvml: Any = None) -> list[int]:
    """Processes that compute on a GPU, clients of an MPS server too. Inside a container the driver often shows
    none.
    """
    nvml = nvml or _nvml()
    if nvml is None:
        return []
    found: dict[int, None] = {}  # a client of MPS stands in both lists (nvidia-smi: M+C)
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        try:
            listed = getattr(nvml, call)(nvml.nvmlDeviceGetHandleByIndex(index))
        except (AttributeError, nvml.NVMLError):
            continue
        found |= {int(process.pid): None for process in listed}
    return list(found)


def _used_by(index: int) -> str:
    who = ", ".join(processes.describe(pid) for pid in users(index))
    return f", used by {who}" if who else ""


def is_mps_server(pid: int, nvml: Any = None) -> bool:
    """Whether a process is the one through which NVIDIA's Multi-Process Service lets others use a GPU.

    It computes nothing of its own, and stands beside its clients in the driver's list.
    """
    return MPS_SERVER in (processes.program(pid), _name(pid, nvml or _nvml()))


def _name(pid: int, nvml: Any) -> str:
    """As the driver has it, for processes that are not in our process table; empty when it does not tell."""
    try:
        return PurePath(_text(nvml.nvmlSystemGetProcessName(pid))).name
    except (AttributeError, nvml.NVMLError):
        return ""


def memory_left(
    reference: Mapping[int, float],
    wait: Callable[[float], None],
    *,
    patience: float = BACK_PATIENCE_S,
    tolerance: float = BACK_TOLERANCE_MIB,
    used: Callable[[int], float | None] = used_mib,
) -> tuple[str, str]:
    """Wait until every GPU holds no more than before the launch (MiB by index). Returns (what is left, a word
    on the check).

    The first is empty when the memory is back or could not be read; the second then says which.
    """
    if not reference:
        return "", "no GPU"
    end = time.monotonic() + patience
    while True:
        now = {index: used(index) for index in reference}
        over = {
            index: value - reference[index]
            for index, value in now.items()
            if value is not None and value > reference[index] + tolerance
        }
        if not over:
            unknown = sorted(index for index, value in now.items() if value is None)
            return "", f"not readable on GPU {unknown}" if unknown else "back"
        if time.monotonic() >= end:
            text = ", ".join(
                f"GPU {index} holds {more:.0f} MiB more than before{_used_by(index)}"
                for index, more in over.items()
            )
            return text, "not back"
        wait(0.25)
