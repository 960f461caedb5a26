"""Locks that follow a descriptor, and the word about their holder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuserve.serving import lock_file


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


def test_one_holder(path: str) -> None:
    descriptor = lock_file.try_lock(path)
    assert descriptor is not None
    assert lock_file.try_lock(path) is None
    lock_file.release(descriptor)
    again = lock_file.try_lock(path)
    assert again is not None
    os.close(again)


def test_a_handed_descriptor_keeps_the_lock(path: str) -> None:
    descriptor = lock_file.try_lock(path)
    assert descriptor is not None
    code = f"import sys; sys.stdin.read(); import os; os.close({descriptor})"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=(descriptor,))
    os.close(descriptor)
    assert lock_file.try_lock(path) is None
    child.communicate()
    again = lock_file.try_lock(path)
    assert again is not None
    os.close(again)


def test_release_unlocks_every_copy(path: str) -> None:
    descriptor = lock_file.try_lock(path)
    assert descriptor is not None
    copy = os.dup(descriptor)
    lock_file.release(descriptor)
    again = lock_file.try_lock(path)
    assert again is not None
    os.close(again)
    os.close(copy)


def test_a_deleted_file_locks_nobody_out(path: str) -> None:
    held = lock_file.try_lock(path)
    assert held is not None
    Path(path).unlink()
    other = lock_file.try_lock(path)
    assert other is not None
    assert lock_file.try_lock(path) is None
    os.close(held)
    os.close(other)


def test_the_record_is_gone_after_a_release_and_stays_after_a_death(path: str) -> None:
    descriptor = lock_file.try_lock(path)
    assert descriptor is not None
    lock_file.write_record(descriptor, pid=1, what="a long text that is replaced")
    lock_file.write_record(descriptor, pid=2)
    record = lock_file.read_record(path)
    assert record["pid"] == 2
    assert "what" not in record
    os.close(descriptor)  # as the kernel does for the dead
    assert lock_file.read_record(path)["pid"] == 2
    again = lock_file.try_lock(path)
    assert again is not None
    assert lock_file.read_record(again)["pid"] == 2
    lock_file.release(again)
    assert lock_file.read_record(path) == {}


@pytest.mark.parametrize("text", ["", "not json", "[1, 2]"])
def test_a_record_that_cannot_be_read_is_empty(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)
    assert lock_file.read_record(path) == {}
    assert lock_file.read_record(path + "-missing") == {}


def test_every_user_may_lock_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        folder = tmp_path / "a" / "leases"
        lock_file.make_folder(str(folder))
        lock_file.make_folder(str(folder))
        descriptor = lock_file.try_lock(str(folder / "lock"))
    finally:
        os.umask(old)
    assert descriptor is not None
    os.close(descriptor)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "lock").stat().st_mode) == 0o666


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        lock_file.try_lock(str(tmp_path / "lock"))
    assert (tmp_path / "victim").read_text() == "precious"
