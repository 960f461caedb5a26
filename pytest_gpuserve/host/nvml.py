"""What the NVIDIA driver says of the GPUs, through NVML; read only, and nothing is initialised on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .visible import select

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1 << 30


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU that a server may use."""

    index: int
    """NVML's, in the order of PCI buses."""
    uuid: str
    product: str
    compute_capability: tuple[int, int]
    memory_gib: float
    power_limit_w: float | None


class Gpus(Struct, frozen=True, kw_only=True):
    """All GPUs that are visible to us."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    nvlink: bool = False
    """Every two of them are joined by NVLink, directly or through switches."""
    note: str = ""
    """Why there may be more than could be read."""


def read_gpus(visible: str | None) -> Gpus:
    """The GPUs that `CUDA_VISIBLE_DEVICES` (None: not set) leaves visible.

    Never raises: a driver that is absent gives no GPUs, one that is broken gives a note as well.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(note="" if _no_driver(pynvml, error) else f"NVML: {error}")
    try:
        return _read(pynvml, visible)
    except pynvml.NVMLError as error:
        return Gpus(note=f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def _no_driver(nvml: Any, error: Exception) -> bool:
    """A machine that simply has no NVIDIA driver, as opposed to one whose driver is in trouble."""
    return isinstance(error, nvml.NVMLError_LibraryNotFound | nvml.NVMLError_DriverNotLoaded)


def _read(nvml: Any, visible: str | None) -> Gpus:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    chosen, note = select(visible, uuids)
    return Gpus(
        gpus=tuple(_gpu(nvml, i, uuids[i], handles[i]) for i in chosen),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        nvlink=_all_joined(nvml, [handles[i] for i in chosen]),
        note=note,
    )


def _gpu(nvml: Any, index: int, uuid: str, handle: Any) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        power = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000
    except nvml.NVMLError:  # virtual and some mobile GPUs do not tell
        power = None
    return Gpu(
        index=index,
        uuid=uuid,
        product=_text(nvml.nvmlDeviceGetName(handle)),
        compute_capability=(major, minor),
        memory_gib=round(nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB, 1),
        power_limit_w=power,
    )


def _all_joined(nvml: Any, handles: Sequence[Any]) -> bool:
    """Whether NVLink joins every pair; a bridge between some pairs only leaves all-reduce on PCIe."""
    if len(handles) < 2:
        return False
    try:
        return all(
            nvml.nvmlDeviceGetP2PStatus(a, b, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK
            for i, a in enumerate(handles)
            for b in handles[i + 1 :]
        )
    except nvml.NVMLError:
        return all(_has_link(nvml, handle) for handle in handles)


def _has_link(nvml: Any, handle: Any) -> bool:
    """Some NVLink of the GPU is up: the second best knowledge, where pairs cannot be asked."""
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED:
                return True
        except nvml.NVMLError:
            return False
    return False


def _text(value: Any) -> str:
    """Older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
