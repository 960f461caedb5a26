"""Files that a killed launch leaves behind: shared memory and temporary files, and only those that are its
own.

A file under /dev/shm does not tell who made it. It counts as ours when a process of the launch was seen to
have it open or mapped, it belongs to this user, and it is not older than the launch. Standard library only.
"""

# ruff: noqa: PTH108, PTH115, PTH123, PTH208
# pathlib would slow the supervisor's start.
from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .processes import Process

SHARED_MEMORY = "/dev/shm"
DELETED = " (deleted)"


def in_use(pids: Iterable[int], folder: str = SHARED_MEMORY) -> set[str]:
    """Names under `folder` that these processes have mapped or open. Unreadable processes have none."""
    prefix = folder.rstrip("/") + "/"
    found: set[str] = set()
    renamed: set[int] = set()
    for pid in pids:
        for path, inode in (*_mapped(pid), *_open(pid)):
            if not path.startswith(prefix):
                continue
            if not path.endswith(DELETED):
                found.add(path[len(prefix) :].split("/")[0])
            elif inode:
                renamed.add(inode)
    return found | _names(renamed, folder)


def _names(inodes: set[int], folder: str) -> set[str]:
    """A semaphore is made under another name, mapped, and then linked: its mapping shows a deleted file for ever."""
    if not inodes:
        return set()
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.inode() in inodes}
    except OSError:
        return set()


def _mapped(pid: int) -> list[tuple[str, int]]:
    """Path and inode of what a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            lines = [line.rstrip("\n").split(None, 5) for line in file if "/" in line]
    except OSError:
        return []
    return [(fields[5], int(fields[4])) for fields in lines if len(fields) == 6]


def _open(pid: int) -> list[tuple[str, int]]:
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.append((os.readlink(f"/proc/{pid}/fd/{name}"), 0))
            except OSError:
                continue
    except OSError:
        pass
    return found


def remove_shared_memory(
    names: Iterable[str], *, since: float, processes: Mapping[int, Process], folder: str = SHARED_MEMORY
) -> list[str]:
    """Delete those of the seen `names` that are still there, are ours and are used by nobody. Returns what
    was deleted.

    `since` is the start of the launch by the wall clock.
    """
    candidates = ours(names, since=since, folder=folder)
    if not candidates:
        return []
    used = in_use(processes, folder)
    removed = []
    for name in sorted(set(candidates) - used):
        try:
            os.unlink(f"{folder}/{name}")
        except OSError:
            continue
        removed.append(f"{folder}/{name}")
    return removed


def ours(names: Iterable[str], *, since: float, folder: str = SHARED_MEMORY) -> list[str]:
    """Those of the names that are still there and belong to this user and this launch."""
    return [name for name in names if _is_ours(f"{folder}/{name}", since)]


def _is_ours(path: str, since: float) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    # One second: file times come from the kernel's coarse clock.
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and found.st_ctime >= since - 1.0


def remove_folder(path: str) -> list[str]:
    """Delete the launch's own temporary folder. Returns the names of files that were left in it."""
    try:
        left = sorted(os.listdir(path))
    except OSError:
        return []
    shutil.rmtree(path, ignore_errors=True)
    return [f"{path}/{name}" for name in left]
