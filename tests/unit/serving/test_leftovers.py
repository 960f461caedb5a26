"""Files of a launch go, everybody else's stay."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import time
import uuid
from pathlib import Path

from pytest_gpuserve.serving import leftovers, processes, sweep


def test_what_is_open_or_mapped_is_seen(tmp_path: Path) -> None:
    (tmp_path / "mapped").write_bytes(b"x" * 4096)
    (tmp_path / "open").write_bytes(b"x")
    (tmp_path / "neither").write_bytes(b"x")
    with (tmp_path / "mapped").open("r+b") as file:
        kept = mmap.mmap(file.fileno(), 4096)
    with (tmp_path / "open").open("rb"):
        assert leftovers.in_use([os.getpid()], str(tmp_path)) == {"mapped", "open"}
        (tmp_path / "open").unlink()
        assert leftovers.in_use([os.getpid()], str(tmp_path)) == {"mapped"}
    kept.close()
    assert leftovers.in_use([os.getpid(), 2**22 + 1], str(tmp_path)) == set()


def test_a_semaphore_is_seen_under_the_name_that_it_has(tmp_path: Path) -> None:
    """glibc makes it under another name, maps it and links it, so that its mapping tells of a deleted file."""
    (tmp_path / "made").write_bytes(b"x" * 4096)
    with (tmp_path / "made").open("r+b") as file:
        kept = mmap.mmap(file.fileno(), 4096)
    (tmp_path / "sem.mp-1").hardlink_to(tmp_path / "made")
    (tmp_path / "made").unlink()
    assert leftovers.in_use([os.getpid()], str(tmp_path)) == {"sem.mp-1"}
    kept.close()
    lock = multiprocessing.get_context("spawn").Lock()
    assert f"sem.{lock._semlock.name.lstrip('/')}" in leftovers.in_use([os.getpid()])  # type: ignore[attr-defined]


def test_only_what_was_seen_is_ours_and_unused_is_removed(tmp_path: Path) -> None:
    for name in ("seen", "unseen", "in-use"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with (tmp_path / "in-use").open("rb"):
        removed = leftovers.remove_shared_memory(
            ["seen", "in-use", "link", "gone"],
            since=time.time() - 60,
            processes=processes.table(),
            folder=str(tmp_path),
        )
    assert removed == [f"{tmp_path}/seen"]
    assert {p.name for p in tmp_path.iterdir()} == {"unseen", "in-use", "link", "target"}


def test_who_is_about_to_die_is_waited_for() -> None:
    """A process that has been killed loses its environment before it closes its files."""
    nonce = uuid.uuid4().hex
    path = Path("/dev/shm", f"gpuserve-test-{nonce}")
    me = processes.read(os.getpid())
    assert me is not None
    script = f"exec 3>{path}; echo up; sleep 0.5"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as dying:
        try:
            assert dying.stdout is not None
            dying.stdout.readline()
            assert sweep.clear(nonce, me.started, [path.name]) == ([], [str(path)])
        finally:
            path.unlink(missing_ok=True)


def test_a_file_older_than_the_launch_stays(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x")
    removed = leftovers.remove_shared_memory(
        ["old"], since=time.time() + 60, processes={}, folder=str(tmp_path)
    )
    assert removed == []
    assert (tmp_path / "old").exists()


def test_the_temporary_folder_goes_with_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "launch"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_bytes(b"x")
    assert leftovers.remove_folder(str(folder)) == [f"{folder}/file", f"{folder}/sub"]
    assert not folder.exists()
    assert leftovers.remove_folder(str(folder)) == []
