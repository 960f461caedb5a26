"""What NVML says against a round: clocks that were held down, and processes that are not the server's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.load.api import Target
from pytest_gpuserve.record import Round
from pytest_gpuserve.serving import measure, processes
from pytest_gpuserve.serving.gpu_watch import GpuWatch
from pytest_gpuserve.serving.launch import Supervised

if TYPE_CHECKING:
    from pathlib import Path

IDLE, APPLICATION, POWER, SLOWDOWN, SOFT_HEAT, HEAT, BRAKE = 0x01, 0x02, 0x04, 0x08, 0x20, 0x40, 0x80
OURS, CHILD, FOREIGN, STRANGER = 100, 101, 200, 300


class NVMLError(Exception):
    pass


class Nvml:
    """What the watch asks, with one answer after the other; the last one stays."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self, *reasons: int, pids: tuple[int, ...] = (OURS, CHILD), lost_ns: int = 0) -> None:
        self.reasons = list(reasons) or [IDLE]
        self.pids = pids
        self.lost_ns = lost_ns
        self.looks = 0
        self.counts = 0

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        self.looks += 1
        return self.reasons[min(self.looks, len(self.reasons)) - 1]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1980 - 100 * self.looks

    def nvmlDeviceGetViolationStatus(self, handle: int, policy: int) -> Any:
        self.counts += 1
        return SimpleNamespace(violationTime=10**9 + self.lost_ns * (self.counts > 1))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]


def owns(pid: int) -> bool | None:
    return {OURS: True, CHILD: True, FOREIGN: False}.get(pid)


def watched(nvml: Any, *, gpus: tuple[int, ...] = (0,), looks: int = 3) -> tuple[list[str], list[str]]:
    with GpuWatch(gpus, owns, nvml=nvml, pause=0.001) as watch:
        end = time.monotonic() + 10
        while watch.seen[gpus[0]].samples < looks and time.monotonic() < end and nvml.looks < looks:
            time.sleep(0.001)
    return watch.findings()


@pytest.mark.parametrize("bits", [0, IDLE, APPLICATION, IDLE | APPLICATION])
def test_idle_and_application_clocks_are_fine(bits: int) -> None:
    assert watched(Nvml(bits)) == ([], [])


@pytest.mark.parametrize(
    ("bit", "words"),
    [
        (SLOWDOWN, "hardware slowdown"),
        (SOFT_HEAT, "software thermal slowdown"),
        (HEAT, "hardware thermal slowdown"),
        (BRAKE, "hardware power brake"),
    ],
)
def test_one_throttled_sample_makes_a_round_invalid(bit: int, words: str) -> None:
    (reason,), warnings = watched(Nvml(IDLE, bit, 0))
    assert reason.startswith(f"GPU 0 throttled: {words} in 1 of ")
    assert reason.endswith("samples, 1780 MHz at the lowest")
    assert warnings == []


def test_the_power_limit_is_a_warning() -> None:
    invalid, (warning,) = watched(Nvml(POWER))
    assert invalid == []
    assert warning.startswith("GPU 0: clocks held down by the power limit in ")


def test_each_gpu_is_told_by_its_number() -> None:
    invalid, _ = watched(Nvml(HEAT), gpus=(3, 5))
    assert [reason.partition(" throttled")[0] for reason in invalid] == ["GPU 3", "GPU 5"]


def test_heat_between_two_looks_shows_in_the_driver_s_count() -> None:
    (reason,), _ = watched(Nvml(lost_ns=10**12))
    assert "lost to heat, by the driver's count" in reason
    invalid, (warning,) = watched(Nvml(lost_ns=10))
    assert invalid == []
    assert "lost to heat" in warning


def test_an_older_library_names_the_call_otherwise_and_counts_nothing() -> None:
    old = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        looks=0,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: HEAT,
        nvmlDeviceGetClockInfo=lambda handle, kind: 480,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [],
    )
    (reason,), warnings = watched(old)
    assert "hardware thermal slowdown" in reason
    assert "480 MHz" in reason
    assert warnings == []


def test_what_cannot_be_read_is_said_and_is_no_reason() -> None:
    nvml = Nvml()

    def fail(*_: Any) -> int:
        nvml.looks += 1
        raise NVMLError("not supported")

    nvml.nvmlDeviceGetCurrentClocksEventReasons = fail  # type: ignore[method-assign]
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = fail  # type: ignore[attr-defined]
    nvml.nvmlDeviceGetViolationStatus = fail  # type: ignore[method-assign]
    assert watched(nvml) == ([], ["GPU 0: whether its clocks were held down cannot be read here"])


def test_another_process_makes_a_round_invalid() -> None:
    (reason,), _ = watched(Nvml(pids=(OURS, FOREIGN)))
    assert reason == f"GPU 0 was used by another process as well: {FOREIGN}"


def test_a_number_of_another_container_counts_where_our_own_are_seen() -> None:
    (reason,), _ = watched(Nvml(pids=(OURS, STRANGER)))
    assert f"{STRANGER} (of another container" in reason


def test_numbers_of_the_host_prove_nothing_and_are_told() -> None:
    invalid, (warning,) = watched(Nvml(pids=(STRANGER,)))
    assert invalid == []
    assert "cannot be told" in warning


SERVER = 400


class Mps(Nvml):
    """With an MPS server, which computes for its `clients`; they stand in a list of their own."""

    def __init__(self, *, clients: tuple[int, ...], pids: tuple[int, ...] = (SERVER,)) -> None:
        super().__init__(pids=pids)
        self.clients = clients

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.clients]

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        if pid != SERVER:
            raise NVMLError("not found")
        return "/usr/bin/nvidia-cuda-mps-server"


def test_an_mps_server_is_nobody() -> None:
    assert watched(Mps(clients=(OURS, CHILD))) == ([], [])


def test_another_client_of_mps_is_another_process() -> None:
    (reason,), _ = watched(Mps(clients=(OURS, FOREIGN)))
    assert reason == f"GPU 0 was used by another process as well: {FOREIGN}"


def test_mps_that_shows_no_client_proves_nothing_and_is_told() -> None:
    invalid, (warning,) = watched(Mps(clients=()))
    assert invalid == []
    assert "used through MPS" in warning


def test_an_mps_server_is_known_by_its_command_line_where_the_driver_gives_no_name() -> None:
    argv = ["nvidia-cuda-mps-server", "-c", "input()"]
    with subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE) as server:
        try:
            end = time.monotonic() + 10
            while not processes.program(server.pid) and time.monotonic() < end:
                time.sleep(0.01)  # in the middle of exec there is no command line
            nvml = Nvml(pids=(OURS, server.pid))
            with GpuWatch((0,), lambda pid: pid == OURS, nvml=nvml, pause=0.001) as watch:
                while nvml.looks < 3 and time.monotonic() < end:
                    time.sleep(0.001)
        finally:
            server.kill()
    assert watch.findings() == ([], [])


def test_nothing_is_asked_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpuserve.serving.gpus.library", lambda: pytest.fail("NVML was asked for"))
    with GpuWatch((), owns) as watch:
        pass
    assert watch.findings() == ([], [])


def test_watching_takes_little_of_a_core() -> None:
    """A hundredth on a quiet machine; memory that the host of a virtual machine has taken away costs more."""
    began = time.monotonic()
    with GpuWatch(tuple(range(8)), owns, nvml=Nvml(POWER)) as watch:
        time.sleep(1.2)
    assert watch.cpu_s < 0.05 * (time.monotonic() - began)


def test_a_round_carries_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(HEAT | POWER, pids=(OURS, FOREIGN))
    monkeypatch.setattr("pytest_gpuserve.serving.gpus.library", lambda: nvml)
    monkeypatch.setattr(measure.Measurement, "_run", lambda *_: None)
    monkeypatch.setattr(
        measure.metrics, "summarise", lambda *_, **__: Round(duration_s=1.0, invalid=["first"])
    )
    log = tmp_path / "log"
    server: Any = SimpleNamespace(target=Target(host="", port=1), log=log, gpus=(1,), owns=owns)
    engine: Any = SimpleNamespace(
        name="sglang",
        api=lambda *_: None,
        counters=lambda *_: None,
        speculative=lambda *_: False,
        round_warnings=lambda *_: (["cuda graph"], ["accept length"]),
    )
    workload: Any = SimpleNamespace(rounds=1, warmup=0, cache="warm", concurrency=1)
    monkeypatch.setattr(measure.traffic, "warmup", lambda *_: None)
    site: Any = SimpleNamespace(time_scale=1.0)
    (result,) = measure.Measurement(
        server, engine, SimpleNamespace(), workload, site, folder=tmp_path, seed=0, say=lambda text: None
    ).rounds()  # type: ignore[arg-type]
    assert result.invalid[:2] == ["first", "cuda graph"]
    assert [reason.split(":")[0] for reason in result.invalid[2:]] == [
        "GPU 1 throttled",
        "GPU 1 was used by another process as well",
    ]
    assert result.warnings[0] == "accept length"
    assert "power limit" in result.warnings[1]


def test_whose_a_process_is() -> None:
    """By its parents, up to those that the supervisor named."""
    launch = Supervised.__new__(Supervised)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            launch.started = {"pid": child.pid, "supervisor": 2**22 + 1, "guard": 2**22 + 2}
            assert launch.owns(child.pid) is True
            assert launch.owns(os.getpid()) is False
            launch.started = {"pid": os.getpid(), "supervisor": 2**22 + 1, "guard": 2**22 + 2}
            assert launch.owns(child.pid) is True
        finally:
            child.kill()
    assert launch.owns(child.pid) is None
