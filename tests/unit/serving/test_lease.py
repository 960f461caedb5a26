"""GPUs and a port as one unit: all or nothing, in order, with a word for who waits."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from pytest_gpuserve.errors import InputError, LeaseTimeout
from pytest_gpuserve.serving import lease as lease_module
from pytest_gpuserve.serving import lock_file
from pytest_gpuserve.serving.gpus import Gpu
from pytest_gpuserve.serving.lease import Lease, Leases, PortTaken, Unit, choose, reserved
from pytest_gpuserve.serving.processes import NONCE_VARIABLE
from pytest_gpuserve.serving.tickets import Waiting

UNITS = tuple(Unit(f"slot-{i}.lock", f"slot {i}") for i in range(8))


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path / "leases", slots=8, environment={})


def pick(free: str, count: int) -> str | None:
    chosen = choose(UNITS, [u for i, u in enumerate(UNITS) if free[i] == "."], count)
    return None if chosen is None else "".join(str(UNITS.index(u)) for u in chosen)


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ("........", 8, "01234567"),
        ("........", 4, "0123"),
        ("#.......", 4, "4567"),  # neighbours first
        ("#...#...", 4, "1235"),
        ("#.......", 2, "23"),
        ("########", 1, None),
        ("#.......", 8, None),
        ("........", 0, ""),
    ],
)
def test_which_units_are_chosen(free: str, count: int, chosen: str | None) -> None:
    assert pick(free, count) == chosen


@pytest.mark.parametrize(
    ("earlier", "free", "kept"),
    [
        ([], "........", ""),
        ([(4, "01234567")], "........", "0123"),
        ([(8, "01234567")], "####....", "4567"),  # it gathers: all that is free
        ([(2, "0123")], "........", "01"),
        ([(2, "0123"), (2, "0123")], "........", "0123"),
        ([(1, "01")], "##......", ""),
    ],
)
def test_what_is_kept_for_earlier_requests(earlier: list[tuple[int, str]], free: str, kept: str) -> None:
    waiting = [Waiting(count, tuple(UNITS[int(i)].name for i in names)) for count, names in earlier]
    found = reserved(waiting, [u for i, u in enumerate(UNITS) if free[i] == "."])
    assert "".join(str(UNITS.index(u)) for u in found) == kept


def test_two_halves_beside_each_other_and_a_whole_alone(leases: Leases) -> None:
    first, second = leases.acquire(4), leases.acquire(4)
    assert first.gpus == (0, 1, 2, 3)
    assert second.gpus == (4, 5, 6, 7)
    assert first.port != second.port
    with pytest.raises(LeaseTimeout):
        leases.acquire(8, timeout_s=0.05)
    first.release()
    with pytest.raises(LeaseTimeout):
        leases.acquire(8, timeout_s=0.05)
    second.release()
    whole = leases.acquire(8)
    assert whole.gpus == tuple(range(8))
    whole.release()


def test_a_failed_attempt_holds_nothing(leases: Leases) -> None:
    held = leases.acquire(1)
    with pytest.raises(LeaseTimeout):
        leases.acquire(8, timeout_s=0.05)
    rest = leases.acquire(7, timeout_s=0.05)
    rest.release()
    held.release()


@pytest.mark.parametrize("what", ["record", "ticket"])
def test_a_full_disk_leaves_nothing_locked(
    leases: Leases, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    leases.acquire(0).release()  # the folder is there
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with monkeypatch.context() as full:
        full.setattr(*((lock_file, "write_record") if what == "record" else (os, "pwrite")), fail)
        with pytest.raises(InputError, match="No space left on device"):
            leases.acquire(8, port=port)
    assert list((leases.folder / "queue").iterdir()) == []
    leases.acquire(8, port=port, timeout_s=0.0).release()


def test_a_handed_over_lease_is_still_held(leases: Leases) -> None:
    held = leases.acquire(8)
    copies = [os.dup(d) for d in held.descriptors]  # as a supervisor has them
    held.hand_over()
    held.release()
    with pytest.raises(LeaseTimeout):
        leases.acquire(1, timeout_s=0.05)
    for copy in copies:
        lock_file.release(copy)
    leases.acquire(8, timeout_s=0.05).release()


def test_who_waits_is_told_for_whom(leases: Leases) -> None:
    held = leases.acquire(3, what="kimi_k2_5, no-spec")
    told: list[str] = []
    with pytest.raises(
        LeaseTimeout, match=r"^gave up after 0\.4 s of waiting for 8 slots, slots 0-2 held by"
    ) as caught:
        leases.acquire(8, timeout_s=0.4, waiting=told.append)
    held.release()
    assert told == [str(caught.value).removeprefix("gave up after 0.4 s of ")]
    assert f"held by pid {os.getpid()} (kimi_k2_5, no-spec) since 2" in told[0]


def test_more_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(LeaseTimeout, match=r"^9 GPUs are needed, there are 8$"):
        Leases(tmp_path, slots=8, environment={}).acquire(9)
    devices = [Gpu(i, f"GPU-{i}") for i in range(8)]
    few = Leases(tmp_path, environment={"CUDA_VISIBLE_DEVICES": "2,3"}, devices=lambda: devices)
    with pytest.raises(LeaseTimeout, match=r"4 GPUs are needed, 2 may be used \(CUDA_VISIBLE_DEVICES=2,3\)"):
        few.acquire(4)


def test_a_large_request_is_not_starved_by_small_ones(leases: Leases) -> None:
    """Two threads keep at least one slot taken at any time; a request for all gets its turn nevertheless."""
    enough = threading.Event()
    gaps: list[float] = []

    def small() -> None:
        while not enough.is_set():
            held = leases.acquire(1, timeout_s=30)
            time.sleep(0.02)
            held.release()

    threads = [threading.Thread(target=small) for _ in range(10)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            began = time.monotonic()
            leases.acquire(8, timeout_s=30).release()
            gaps.append(time.monotonic() - began)
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    assert len(gaps) == 3


@pytest.mark.parametrize("junk", ['{"count": "all", "units": 7}', '{"count": 8}', "[" * 60_000, "7", "\xff"])
def test_what_anybody_wrote_into_a_ticket_or_a_lock_stops_nobody(leases: Leases, junk: str) -> None:
    leases.acquire(1).release()
    paths = [leases.folder / "queue" / "0", leases.folder / "slot-0.lock"]
    held = [lock_file.try_lock(str(path)) for path in paths]
    for descriptor in held:
        assert descriptor is not None
        os.pwrite(descriptor, junk.encode("latin-1"), 0)
    leases.acquire(7, timeout_s=5.0).release()
    with pytest.raises(LeaseTimeout, match="slot 0 held by"):
        leases.acquire(8, timeout_s=0.05)
    for descriptor in held:
        assert descriptor is not None
        os.close(descriptor)
    leases.acquire(8, timeout_s=5.0).release()


def test_a_dead_waiter_blocks_nobody(leases: Leases) -> None:
    held = leases.acquire(1)
    code = (
        "import sys; from pytest_gpuserve.serving.lease import Leases;"
        f"leases = Leases({str(leases.folder)!r}, slots=8, environment={{}});"
        "leases.acquire(8, waiting=lambda text: print(1, flush=True))"
    )
    waiter = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert waiter.stdout is not None
    waiter.stdout.readline()
    with pytest.raises(LeaseTimeout, match="kept for who asked earlier"):
        leases.acquire(1, timeout_s=0.1)
    waiter.kill()
    waiter.wait()
    waiter.stdout.close()
    leases.acquire(7, timeout_s=1.0).release()
    held.release()
    assert list((leases.folder / "queue").iterdir()) == []


# --- GPUs ---


def on_gpus(
    folder: Path, used: dict[int, float], monkeypatch: pytest.MonkeyPatch, setting: str | None = None
) -> Leases:
    monkeypatch.setattr(lease_module, "used_mib", used.get)
    monkeypatch.setattr(lease_module, "users", lambda index: [os.getpid()])
    environment = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    return Leases(folder, environment=environment, devices=lambda: [Gpu(i, f"GPU-{i}") for i in range(4)])


def test_a_gpu_in_use_without_a_lease_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {0: 10.0, 1: 20_000.0, 2: 10.0, 3: 10.0}
    leases = on_gpus(tmp_path, used, monkeypatch)
    held = leases.acquire(2)
    assert held.gpus == (2, 3)
    assert held.memory == {2: 10.0, 3: 10.0}
    held.release()
    with pytest.raises(LeaseTimeout, match=rf"GPU 1 holding 20000 MiB without a lease, by {os.getpid()} \("):
        leases.acquire(4, timeout_s=0.05)
    used[1] = 10.0
    leases.acquire(4, timeout_s=0.05).release()


def test_an_outer_choice_of_gpus_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = on_gpus(tmp_path, {}, monkeypatch, setting="3,1")
    held = leases.acquire(2)
    assert held.gpus == (3, 1)
    other = on_gpus(tmp_path, {}, monkeypatch)
    with pytest.raises(LeaseTimeout, match="GPU 1, GPU 3 held by"):
        other.acquire(4, timeout_s=0.05)
    other.acquire(2).release()
    held.release()


def test_a_waiter_for_some_gpus_keeps_nobody_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = on_gpus(tmp_path, {}, monkeypatch, setting="0,1")
    held = left.acquire(1)
    ended = threading.Thread(target=lambda: left.acquire(2, timeout_s=10).release())
    ended.start()
    while not list((tmp_path / "queue").iterdir()):
        time.sleep(0.01)
    on_gpus(tmp_path, {}, monkeypatch, setting="2,3").acquire(2, timeout_s=1).release()
    held.release()
    ended.join()


# --- ports ---


def test_a_fixed_port_taken_by_a_stranger_names_it(leases: Leases) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            PortTaken, match=rf"^port {port} on 127\.0\.0\.1 is taken by pid {os.getpid()} \("
        ):
            leases.acquire(1, port=port)
    held = leases.acquire(1, port=port)
    assert held.port == port
    with pytest.raises(LeaseTimeout, match=rf"waiting for 1 slot and port {port}, port {port} held by pid"):
        leases.acquire(1, port=port, timeout_s=0.05)
    held.release()


def test_a_port_that_a_stranger_listens_on_is_passed_over(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(lease_module, "PORTS", [taken])
        with pytest.raises(LeaseTimeout, match="every port"):
            leases.acquire(0, timeout_s=0.05)
    held = leases.acquire(0)
    assert held.port == taken
    held.release()


def test_slots_of_one_run_lie_apart_and_ports_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "PORTS", [20_011, 20_024])
    runs = [
        Leases(tmp_path / "host", slots=1, slots_folder=tmp_path / f"run-{n}", environment={})
        for n in range(2)
    ]
    held = [run.acquire(1, timeout_s=1) for run in runs]
    assert {one.port for one in held} == {20_011, 20_024}
    for one in held:
        one.release()


# --- what a killed run left ---


def test_who_takes_the_lease_ends_what_a_killed_run_left(leases: Leases) -> None:
    """Guard and supervisor were killed with pytest: nobody else is left to end their engine's children."""
    nonce = uuid.uuid4().hex
    orphan = subprocess.Popen(["sleep", "60"], env={NONCE_VARIABLE: nonce})
    bystander = subprocess.Popen(["sleep", "60"])
    abandon(leases.acquire(8), nonce=nonce)
    leases.acquire(8, timeout_s=1).release()
    assert orphan.wait(5) == -signal.SIGKILL
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize(
    "change", [{"user": 12345}, {"namespace": "pid:[1]"}, {"nonce": "../../etc"}, {"nonce": None}]
)
def test_a_record_of_somebody_else_is_not_acted_on(leases: Leases, change: dict[str, object]) -> None:
    nonce = str(change.get("nonce") or uuid.uuid4().hex)
    process = subprocess.Popen(["sleep", "60"], env={NONCE_VARIABLE: nonce})
    abandon(leases.acquire(8), **({"nonce": nonce} | change))
    leases.acquire(8, timeout_s=1).release()
    time.sleep(0.1)
    assert process.poll() is None
    process.kill()
    process.wait()


def abandon(lease: Lease, **fields: object) -> None:
    """Let go of a lease as the dead do: unlocked, and the record stays."""
    record = {
        "pid": 1,
        "user": os.getuid(),
        "ticks": 0,
        "namespace": lock_file.pid_namespace(),
    }
    for descriptor in lease.descriptors:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record | fields).encode(), 0)
    lease.hand_over()


# --- bad input ---


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        InputError, match=r"the lock folder .*file.* cannot be used: .*`leases:`.*GPUSERVE_LEASES"
    ):
        Leases(tmp_path / "file" / "leases", slots=1, environment={}).acquire(1)


def test_where_the_folder_is(tmp_path: Path) -> None:
    assert Leases(environment={}).folder == Path("/tmp/gpuserve-leases")
    assert Leases(environment={"GPUSERVE_LEASES": str(tmp_path)}).folder == tmp_path
    assert Leases("/x", environment={"GPUSERVE_LEASES": str(tmp_path)}).folder == Path("/x")
