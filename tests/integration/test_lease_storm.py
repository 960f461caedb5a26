"""Many processes, random sizes, random deaths: a slot never has two holders, and none is lost.

The witness is another kind of lock (POSIX record locks), so it does not share the mistakes of what it
watches.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from pytest_gpuserve.serving.lease import Leases

ROOT = Path(__file__).parents[2]
SLOTS, WORKERS, ACQUISITIONS = 8, 8, 2000

WORKER = """
import fcntl, os, random, sys, time
from pytest_gpuserve.serving.lease import Leases

folder, seed, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
leases = Leases(folder + "/leases", slots=slots, environment={})
witness = os.open(folder + "/witness", os.O_RDWR)
double = os.open(folder + "/double", os.O_WRONLY | os.O_APPEND)
count = os.open(folder + "/count", os.O_WRONLY | os.O_APPEND)
while True:
    lease = leases.acquire(draw.randint(1, slots), timeout_s=60)
    for slot in lease.gpus:
        try:
            fcntl.lockf(witness, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
        except OSError:
            os.write(double, b"x")
    os.write(count, b"x")
    time.sleep(draw.uniform(0, 0.002))
    for slot in lease.gpus:
        fcntl.lockf(witness, fcntl.LOCK_UN, 1, slot)
    lease.release()
"""


def test_a_storm_of_leases(tmp_path: Path) -> None:
    for name in ("witness", "count", "double"):
        (tmp_path / name).write_bytes(b"")
    draw = random.Random(0)
    seeds = iter(range(10**6))

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(next(seeds)), str(SLOTS)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    workers = [start() for _ in range(WORKERS)]
    killed = 0
    try:
        end = time.monotonic() + 180
        while (tmp_path / "count").stat().st_size < ACQUISITIONS and time.monotonic() < end:
            time.sleep(draw.uniform(0.1, 0.5))
            victim = draw.randrange(WORKERS)
            workers[victim].send_signal(signal.SIGKILL)
            assert workers[victim].wait() == -signal.SIGKILL, "a worker had ended by itself"
            killed += 1
            workers[victim] = start()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert (tmp_path / "count").stat().st_size >= ACQUISITIONS
    assert killed > 10
    assert (tmp_path / "double").read_bytes() == b""
    whole = Leases(tmp_path / "leases", slots=SLOTS, environment={}).acquire(SLOTS, timeout_s=5)
    assert whole.gpus == tuple(range(SLOTS))
    whole.release()
