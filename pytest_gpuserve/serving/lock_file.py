"""Lock files with a word about their holder. The lock is `flock`, which the kernel takes away from the dead.

`flock` belongs to an open file, not to a process: a descriptor that is handed to another process keeps the
lock, and unlocking any copy of it unlocks all. Standard library only.
"""

# ruff: noqa: PTH101, PTH103, PTH115, PTH116, PTH123
# pathlib would slow the supervisor's start.
from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime
from typing import Any

SHARED_FILE = 0o666
SHARED_FOLDER = 0o1777


def make_folder(path: str) -> None:
    """A folder in which every user of the host can lock, and none can delete another's files."""
    try:
        os.makedirs(path)
    except FileExistsError:
        return
    os.chmod(path, SHARED_FOLDER)  # the umask took bits away


def try_lock(path: str) -> int | None:
    """A descriptor that holds the lock, or None when somebody else has it. Raises OSError when the file is
    unusable.
    """
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        if _is_still(descriptor, path):
            return descriptor
        os.close(descriptor)  # somebody deleted it in between: a lock on it locks nobody out


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            # Not with O_CREAT: fs.protected_regular forbids that on another user's file in a sticky folder.
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, SHARED_FILE)
        except FileExistsError:
            continue
        os.fchmod(descriptor, SHARED_FILE)
        return descriptor


def _is_still(descriptor: int, path: str) -> bool:
    try:
        there, ours = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def write_record(descriptor: int, **record: Any) -> None:
    """Say who holds the lock, for those who wait for it and for those who find it after a crash."""
    text = json.dumps({**record, "namespace": pid_namespace()}).encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


def read_record(path_or_descriptor: str | int) -> dict[str, Any]:
    """The last record; empty after an orderly release, or when it cannot be read."""
    try:
        if isinstance(path_or_descriptor, int):
            data = os.pread(path_or_descriptor, 65536, 0)
        else:
            with open(path_or_descriptor, "rb") as file:
                data = file.read(65536)
        found = json.loads(data) if data else {}
    except (OSError, ValueError, RecursionError):  # anybody may write anything
        return {}
    return found if isinstance(found, dict) else {}


def release(descriptor: int) -> None:
    """Give the lock back, whoever else still has the descriptor, and leave no record."""
    try:
        os.ftruncate(descriptor, 0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def pid_namespace() -> str:
    """Containers may share a lock folder and not their process numbers; this tells whether a number means
    anything.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def now() -> str:
    """Local time of day with the date, for people."""
    return datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
