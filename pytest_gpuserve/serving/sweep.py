"""What to do about a launch whose guard and supervisor were both killed: end whatever still carries its
nonce.

Two callers: the driver, when it finds its supervisor dead, and whoever gets the lease next, when the record
in the lock file was not wiped by an orderly release.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from typing import TYPE_CHECKING, Any

from . import leftovers, lock_file, processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PATIENCE_S = 10.0
DYING_S = 2.0
NONCE = re.compile("[0-9a-f]{32}")
"""Anybody may write into a lock file, so what is read from one is not trusted with a path."""


def sweep(record: Mapping[str, Any]) -> list[str]:
    """End the processes of the launch that a lock file tells of. Returns those still alive, described.

    Only processes of this user that began with the launch's nonce in their environment are signalled.
    """
    nonce = record.get("nonce")
    if (
        not isinstance(nonce, str)
        or not NONCE.fullmatch(nonce)
        or record.get("user") != os.getuid()
        or record.get("namespace") != lock_file.pid_namespace()
    ):
        return []
    since = record.get("ticks")
    left, _ = clear(nonce, since if isinstance(since, int) else 0)
    return left


def temporary_folder(nonce: str) -> str:
    """The private TMPDIR of a launch; short, because unix sockets in it must have paths under 108 bytes."""
    return os.path.join(tempfile.gettempdir(), f"gs-{nonce[:16]}")  # noqa: PTH118


def clear(nonce: str, since: int, seen: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Kill every process of this user that carries the nonce and began at or after `since` (clock ticks),
    until none is left; then delete the files that were theirs, `seen` names of shared memory among them.
    Returns (those that will not die, files deleted).
    """
    end = time.monotonic() + PATIENCE_S
    names = set(seen)
    while True:
        now = [p for p in processes.table().values() if not p.gone and p.pid != os.getpid()]
        found = processes.carriers(nonce, now, since=since)
        names |= leftovers.in_use(p.pid for p in found)
        if not found or time.monotonic() >= end:
            break
        for process in found:
            processes.send(process, signal.SIGKILL)
        time.sleep(0.05)
    if found:
        return [processes.describe(p.pid) for p in found], []
    return [], _tidy(names, since) + leftovers.remove_folder(temporary_folder(nonce))


def _tidy(names: set[str], since: int) -> list[str]:
    """Delete shared memory of the dead. A dying process shows no environment, and may still have files open."""
    began, end = processes.wall_clock(since), time.monotonic() + DYING_S
    removed: list[str] = []
    while True:
        removed += leftovers.remove_shared_memory(names, since=began, processes=processes.table())
        if not leftovers.ours(names, since=began) or time.monotonic() >= end:
            return removed
        time.sleep(0.05)
