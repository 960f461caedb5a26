"""On a real GPU: memory is back before the lease is free, though the engine was killed and its children live
on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import LeaseTimeout
from pytest_gpuserve.serving import gpus
from pytest_gpuserve.serving.gpu_watch import GpuWatch
from pytest_gpuserve.serving.lease import Leases

sys.path.append(str(Path(__file__).parent))  # the helpers beside this file are scripts, not a package
import stand_in_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_gpuserve.serving.server import Server

pytestmark = pytest.mark.hardware
MIB = 4096


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    if not gpus.gpus():
        pytest.skip("this host has no GPU that NVML shows")
    return Leases(tmp_path / "leases", environment={})


@pytest.fixture
def server(tmp_path: Path, leases: Leases) -> Iterator[Server]:
    server = stand_in_engine.server(tmp_path, leases, args={"gpu-mib": MIB}, count=1)
    yield server
    server.stop()


def test_memory_is_back_when_the_lease_is(server: Server, leases: Leases) -> None:
    server.start()
    server.wait_ready()
    (gpu,) = server.gpus
    before = gpus.used_mib(gpu)
    assert before is not None
    assert before > MIB, "the stand-in should hold memory"
    with pytest.raises(LeaseTimeout, match="held by pid"):
        leases.acquire(len(gpus.gpus()), timeout_s=0.1)
    supervised = server._supervised
    assert supervised is not None
    assert supervised.started is not None
    os.kill(supervised.started["pid"], signal.SIGKILL)
    end = time.monotonic() + 15
    while not server.failed():
        assert time.monotonic() < end
        time.sleep(0.05)
    server.stop()
    assert server.report["memory"] == ""
    assert server.report["memory_check"] == "back"
    after = gpus.used_mib(gpu)
    assert after is not None
    assert after < before - MIB * 0.9
    leases.acquire(1, timeout_s=1).release()


def test_a_gpu_in_use_by_a_stranger_is_not_leased(tmp_path: Path, server: Server, leases: Leases) -> None:
    """The stranger is a stand-in under another lock folder."""
    server.start()
    server.wait_ready()
    other = Leases(tmp_path / "other", environment={"CUDA_VISIBLE_DEVICES": str(server.gpus[0])})
    with pytest.raises(LeaseTimeout, match=rf"GPU {server.gpus[0]} holding \d+ MiB without a lease"):
        other.acquire(1, timeout_s=0.2)


def test_the_watch_over_a_round_tells_its_own_processes_from_a_stranger_s(server: Server) -> None:
    """Asked of a real driver: the server's own process is known, and looking costs next to nothing."""
    server.start()
    server.wait_ready()
    began = time.monotonic()
    with GpuWatch(server.gpus, server.owns) as watch:
        time.sleep(2.2)
    invalid, _ = watch.findings()
    assert [reason for reason in invalid if "another process" in reason] == []
    (seen,) = watch.seen.values()
    assert seen.samples >= 4
    assert watch.cpu_s < 0.01 * (time.monotonic() - began)
    if not seen.ours:
        pytest.skip("the driver shows no process numbers in this container")
    with GpuWatch(server.gpus, lambda pid: False) as watch:
        time.sleep(0.1)
    assert any("was used by another process" in reason for reason in watch.findings()[0])
