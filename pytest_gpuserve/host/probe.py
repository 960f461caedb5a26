"""What this machine is, as far as results depend on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from ..model import Host
from .nvml import Gpus, read_gpus
from .profile import CPU, profile_name

if TYPE_CHECKING:
    from collections.abc import Mapping


def probe(environ: Mapping[str, str] | None = None) -> Host:
    """This machine, with the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible. Never raises."""
    environ = os.environ if environ is None else environ
    return host_of(read_gpus(environ.get("CUDA_VISIBLE_DEVICES")))


def host_of(found: Gpus) -> Host:
    """A host from its GPUs. Where products are mixed it is as able as the least of them."""
    gpus = found.gpus
    if not gpus:
        return Host(
            profile=CPU,
            product=cpu_name(),
            count=0,
            compute_capability="",
            topology="none",
            driver=found.driver,
            memory_gib=0.0,
            note=found.note,
        )
    products = sorted({gpu.product for gpu in gpus})
    major, minor = min(gpu.compute_capability for gpu in gpus)
    limits = [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None]
    return Host(
        profile=profile_name(products, len(gpus)),
        product=" and ".join(products),
        count=len(gpus),
        compute_capability=f"{major}.{minor}",
        topology="single" if len(gpus) == 1 else "nvlink" if found.nvlink else "pcie",
        driver=found.driver,
        memory_gib=min(gpu.memory_gib for gpu in gpus),
        power_limit_w=min(limits, default=None),
        note=found.note,
    )


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, for figures of machines without GPUs."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"
