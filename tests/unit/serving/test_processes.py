"""The process table, and signals that reach nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.serving import processes
from pytest_gpuserve.serving.processes import NONCE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

NONCE = uuid.uuid4().hex


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the nonce, and a child of its own that has it too."""
    code = "import os, sys, time; pid = os.fork(); print(1, flush=True) if pid else 0; time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, NONCE_VARIABLE: NONCE}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    for one in processes.carriers(
        NONCE, processes.table().values(), since=0
    ):  # its own may be orphans by now
        processes.send(one, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()


def test_we_find_ourselves() -> None:
    me = processes.read(os.getpid())
    assert me is not None
    assert (me.ppid, me.session, me.gone) == (os.getppid(), os.getsid(0), False)
    assert abs(processes.wall_clock(me.started) - time.time()) < 3600
    assert processes.table()[os.getpid()] == me


def test_a_process_that_is_not_there() -> None:
    assert processes.read(2**22 + 1) is None


def test_descendants_are_found_over_generations(child: subprocess.Popen[bytes]) -> None:
    table = processes.table()
    found = processes.descendants([os.getpid()], table)
    assert child.pid in {p.pid for p in found}
    assert any(p.ppid == child.pid for p in found)
    assert os.getpid() not in {p.pid for p in found}


def test_carriers_have_the_nonce_and_are_young_enough(child: subprocess.Popen[bytes]) -> None:
    table = processes.table()
    started = table[child.pid].started
    assert len(processes.carriers(NONCE, table.values(), since=started)) == 2
    assert processes.carriers(NONCE, table.values(), since=started + 10_000) == []
    assert processes.carriers(uuid.uuid4().hex, table.values(), since=0) == []
    assert processes.carriers(NONCE[:16], table.values(), since=0) == []


def test_a_signal_reaches_the_process(child: subprocess.Popen[bytes]) -> None:
    process = processes.read(child.pid)
    assert process is not None
    assert processes.send(process, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not processes.send(process, signal.SIGKILL)


def test_a_number_that_was_given_to_another_process_is_not_signalled(child: subprocess.Popen[bytes]) -> None:
    process = processes.read(child.pid)
    assert process is not None
    assert not processes.send(process._replace(started=process.started - 1), signal.SIGKILL)
    assert child.poll() is None


def test_without_pidfd_the_number_is_still_checked(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pidfd(pid: int) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    process = processes.read(child.pid)
    assert process is not None
    assert not processes.send(process._replace(started=1), signal.SIGKILL)
    assert processes.send(process, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def test_description_for_people(child: subprocess.Popen[bytes]) -> None:
    # The child has written a line, so it has long begun.
    assert processes.describe(child.pid).startswith(f"{child.pid} ({sys.executable} -c import os")
    assert processes.describe(2**22 + 1) == str(2**22 + 1)


def test_a_description_holds_no_secret() -> None:
    """It ends in records and in what those are told who wait; the command line may be a stranger's."""
    words = ["--api-key", "secret-a", "--hf-token=secret-b", "HF_TOKEN=secret-c", "--max-tokens", "7"]
    argv = ["somebody", "-c", "input()", *words]
    with subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE) as process:
        try:
            end = time.monotonic() + 10
            while not processes.program(process.pid) and time.monotonic() < end:
                time.sleep(0.01)  # in the middle of exec there is no command line
            text = processes.describe(process.pid)
        finally:
            process.kill()
    shown = "somebody -c input() --api-key *** --hf-token=*** HF_TOKEN=*** --max-tokens 7"
    assert text == f"{process.pid} ({shown})"
