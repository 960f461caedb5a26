"""The supervisor as its driver sees it, with real processes. Killing it:
tests/integration/test_kill_matrix.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.serving import launch, processes
from pytest_gpuserve.serving.keeper import Spec
from pytest_gpuserve.serving.launch import Supervised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 20.0
Start = "Callable[..., Supervised]"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Start a shell script as an engine."""
    begun: list[Supervised] = []

    def run(script: str, **changes: Any) -> Supervised:
        fields: dict[str, Any] = {
            "argv": ["sh", "-c", script],
            "env": {"PATH": os.environ["PATH"]},
            "log": str(tmp_path / "log"),
            "nonce": uuid.uuid4().hex,
            "driver": os.getpid(),
            "grace": 5.0,
        }
        supervised = Supervised(Spec(**(fields | changes)))
        begun.append(supervised)
        supervised.wait_started(PATIENCE_S)
        return supervised

    yield run
    for supervised in begun:
        if supervised.report is None:
            supervised.finish(0.0, 0.0)


def until(condition: Callable[[], object], supervised: Supervised) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        supervised.hear(0.05)


def test_output_goes_to_the_log_and_an_exit_is_told(start: Any, tmp_path: Path) -> None:
    one = start("echo out; echo err >&2; exit 7")
    until(lambda: one.exited is not None, one)
    assert one.over
    assert one.exited == 7
    report = one.finish(0.0, 0.0)
    assert report["reason"] == "the engine ended"
    assert report["status"] == 7
    assert sorted((tmp_path / "log").read_text().split()) == ["err", "out"]
    assert not (tmp_path / "log.supervisor").exists()


def test_an_engine_in_its_own_session_with_standard_input_closed(start: Any, tmp_path: Path) -> None:
    one = start("cat; echo done; sleep 60")
    until(lambda: (tmp_path / "log").read_text() == "done\n", one)
    engine = processes.read(one.started["pid"])
    assert engine is not None
    assert engine.session == engine.pid != os.getsid(0)
    assert one.started["pid"] in one.members()
    assert one.finish(5.0, 0.0)["survivors"] == []
    assert processes.read(engine.pid) is None


def test_what_the_engine_inherits(start: Any, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    one = start("env; ls /proc/self/fd | wc -l; pwd", cwd="/")
    until(lambda: one.exited is not None, one)
    lines = (tmp_path / "log").read_text().splitlines()
    assert f"GPUSERVE_NONCE={one.spec.nonce}" in lines
    assert not any(line.startswith("PYTHONPATH") for line in lines)
    assert lines[-2:] == ["4", "/"]  # input, output, errors, and the folder that ls reads
    os.close(read)
    os.close(write)


def test_a_command_that_does_not_exist(start: Any) -> None:
    one = start("", argv=["/no/such/engine"])
    assert one.started is None
    assert one.start_error.startswith("FileNotFoundError")
    assert "/no/such/engine" in one.start_error
    until(lambda: one.report is not None, one)
    assert one.report["survivors"] == []


def test_the_parent_is_asked_first_and_alone(start: Any, tmp_path: Path) -> None:
    one = start(
        "sh -c 'trap \"echo child was asked; exit 0\" TERM; echo up; while :; do sleep 0.05; done' &"
        "trap 'echo parent was asked; sleep 0.5; echo parent ends; exit 0' TERM; wait; wait"
    )
    until(lambda: "up" in (tmp_path / "log").read_text(), one)
    one.finish(5.0, 0.0)
    said = [line for line in (tmp_path / "log").read_text().splitlines() if line != "Terminated"]
    assert said == ["up", "parent was asked", "parent ends", "child was asked"]


def test_force_comes_after_the_grace(start: Any, tmp_path: Path) -> None:
    one = start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    until(lambda: "up" in (tmp_path / "log").read_text(), one)
    began = time.monotonic()
    report = one.finish(0.7, 0.0)
    assert time.monotonic() - began >= 0.7
    assert report["status"] == -9
    assert report["survivors"] == []


def test_the_temporary_folder_is_made_private_and_removed(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    one = start(f"ls -ld {folder}; touch {folder}/left; sleep 60", temporary=str(folder))
    until(lambda: (folder / "left").exists(), one)
    assert (tmp_path / "log").read_text().startswith("drwx------")
    assert one.finish(5.0, 0.0)["removed"] == [f"{folder}/left"]
    assert not folder.exists()


def test_shared_memory_goes_though_all_who_watched_were_killed_and_the_engine_has_ended(start: Any) -> None:
    path = Path(f"/dev/shm/gpuserve-test-{uuid.uuid4().hex}")
    one = start(f"exec 3>{path}; sleep 60 3>&-")
    try:
        until(lambda: path.name in one._shared_memory, one)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # neither must have time to do what the other cannot
            for who in ("guard", "supervisor"):
                os.kill(one.started[who], number)
        until(lambda: one.lost, one)
        for left in processes.carriers(one.spec.nonce, processes.table().values(), since=0):
            processes.send(left, signal.SIGKILL)
        assert one.finish(0.0, 0.0)["removed"] == [str(path)]
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_a_temporary_folder_that_was_there_is_not_touched(start: Any, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    one = start("sleep 60", temporary=str(tmp_path / "precious"))
    assert one.start_error.startswith("FileExistsError")
    one.finish(0.0, 0.0)
    assert (tmp_path / "precious").exists()


def test_a_full_disk_is_told_before_and_while(start: Any, tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    one = start("sleep 60", min_free=total * 2)
    assert "no space left for the log" in one.start_error
    assert "MiB free" in one.start_error


def test_a_log_that_cannot_be_written(start: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError):
        start("sleep 60", log=str(tmp_path / "file" / "log"))


def test_a_chatty_engine_does_not_fill_the_disk(start: Any, tmp_path: Path) -> None:
    one = start(
        "echo first; yes 0123456789 | head -c 60000000; echo last; sleep 60", log_head=65536, log_tail=65536
    )
    log = tmp_path / "log"
    until(lambda: log.read_bytes()[-5:] == b"last\n", one)
    until(lambda: log.stat().st_blocks * 512 < 1_000_000, one)
    one.finish(5.0, 0.0)
    text = log.read_text()
    assert len(text) < 1_000_000
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes of the log's middle were left out here" in text


def test_the_supervisor_starts_quickly(start: Any) -> None:
    """The bar is 100 ms; the best of three, on whatever machine this is."""
    times = []
    for _ in range(3):
        began = time.monotonic()
        one = start("sleep 60")
        times.append(time.monotonic() - began)
        one.finish(1.0, 0.0)
    assert min(times) < 0.3


def test_the_supervisor_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import pytest_gpuserve.serving.supervise;"
        "new = {n.split('.')[0] for n in set(sys.modules) - before};"
        "print(*sorted(n for n in new if n not in sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(launch.PACKAGE_ROOT),
    )
    assert done.stdout.split() == ["pytest_gpuserve"]


def test_a_forked_child_of_the_driver_does_not_keep_the_launch_alive(tmp_path: Path) -> None:
    """It has a copy of the channel, so that the channel never closes: the driver's death itself must be
    noticed.
    """
    code = f"""
import os, sys, time, uuid
from pytest_gpuserve.serving.keeper import Spec
from pytest_gpuserve.serving.launch import Supervised
one = Supervised(Spec(argv=["sleep", "60"], env={{}}, log={str(tmp_path / "log")!r}, nonce=uuid.uuid4().hex,
                      driver=os.getpid(), grace=1.0))
one.wait_started()
child = os.fork()
if child:
    print(one.started["pid"], child, flush=True)
time.sleep(60)
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(launch.PACKAGE_ROOT)},
    )
    assert driver.stdout is not None
    engine, child = (int(word) for word in driver.stdout.readline().split())
    driver.kill()
    driver.wait()
    driver.stdout.close()
    end = time.monotonic() + PATIENCE_S
    while (process := processes.read(engine)) is not None and not process.gone:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(child, 9)
