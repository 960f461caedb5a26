"""What a start needs of the machine beside the GPUs' kind: idle GPUs, room on disks and in /dev/shm, ports."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..serving.gpus import gpus, used_mib, users, visible
from ..serving.lease import IDLE_MIB
from ..serving.sockets import bind_error
from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..model import Config

GIB = 1 << 30
SHM = Path("/dev/shm")
SHM_LEAST_GIB = 1.0
"""NCCL's and the engine's shared memory between ranks; a container has 64 MB unless told otherwise, and SGLang's
own instructions say `--shm-size 32g`."""


class Room(Struct, frozen=True):
    """A place that must have some space left."""

    what: str
    path: Path
    least_gib: float


def rooms(root: Path, environ: Mapping[str, str]) -> tuple[Room, ...]:
    """Where a run writes. The amounts are what a start was seen to need, rounded up."""
    cache = Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (
        Room("records and logs", root / ".gpuserve", 1.0),
        Room("kernels that are compiled at the first start", cache, 2.0),
        Room("temporary files", Path(tempfile.gettempdir()), 1.0),
    )


def check_host(
    root: Path,
    *,
    gpus_needed: int,
    environ: Mapping[str, str] = os.environ,
    free: Callable[[Path], float | None] | None = None,
) -> Iterator[Finding]:
    """What is short on this machine, whatever the config. `gpus_needed` is the most that one of them takes."""
    free = free or free_gib
    for room in rooms(root, environ):
        left = free(room.path)
        if left is not None and left < room.least_gib:
            yield Finding(
                severity="warning",
                topic="disk",
                text=f"{left:.1f} GiB are free for {room.what} ({room.path}), {room.least_gib:g} are needed",
            )
    left = free(SHM) if gpus_needed > 1 else None
    if left is not None and left < SHM_LEAST_GIB:
        yield Finding(
            severity="warning",
            topic="disk",
            text=f"{left:.2f} GiB are free in {SHM}, which {gpus_needed} ranks share",
            advice="Start the container with --shm-size 32g or --ipc host",
        )
    if gpus_needed:
        yield from _busy(environ)


def free_gib(path: Path) -> float | None:
    """GiB that are free where a path is or would be; None when nobody can tell."""
    there = next((one for one in (path, *path.parents) if one.exists()), None)
    try:
        return shutil.disk_usage(there).free / GIB if there else None
    except OSError:
        return None


def _busy(environ: Mapping[str, str]) -> Iterator[Finding]:
    """GPUs that somebody who leases nothing uses; a run would wait for them."""
    for gpu in visible(gpus(), environ.get("CUDA_VISIBLE_DEVICES")):
        used = used_mib(gpu.number)
        if used is not None and used > IDLE_MIB:
            who = f" ({_named(users(gpu.number))})" if users(gpu.number) else ""
            yield Finding(
                severity="warning",
                topic="gpu",
                text=f"GPU {gpu.number} is in use: {used / 1024:.1f} GiB of its memory{who}",
                advice="A run waits for it; sizes and figures of one that shared it would not count",
            )


def _named(pids: list[int]) -> str:
    """Processes by name and number."""
    import psutil

    told: list[str] = []
    for pid in pids[:3]:
        try:
            told.append(f"{psutil.Process(pid).name()} {pid}")
        except psutil.Error:
            told.append(str(pid))
    return ", ".join(told) + (" ..." if len(pids) > 3 else "")


def check_ports(config: Config) -> Iterator[Finding]:
    """Ports that a config's flags fix and that somebody listens on. Its own port is drawn anew for each start."""
    for flag, value in config.args.items():
        port = _port(flag, value)
        if port is None:
            continue
        error = bind_error("127.0.0.1", port)
        if error is not None:
            yield Finding(
                severity="error",
                topic="port",
                text=f"--{flag}: port {port} cannot be listened on: {error.strerror or error}",
                advice="Leave the flag out, so that a free one is taken",
            )


def _port(flag: str, value: object) -> int | None:
    if flag.endswith("-port") and isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif flag == "dist-init-addr" and isinstance(value, str) and value.rpartition(":")[2].isdigit():
        host, _, text = value.rpartition(":")
        if host not in ("127.0.0.1", "localhost", "0.0.0.0"):
            return None
        number = int(text)
    else:
        return None
    return number if 0 < number < 65536 else None
