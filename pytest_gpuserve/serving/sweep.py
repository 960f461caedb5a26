"""What to do about a launch whose guard and supervisor were both killed: end whatever still carries its
nonce.

Two callers: the driver, when it finds its supervisor dead, and whoever gets the lease next, when the record
in the lock file was not wiped by an orderly release.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from typing import TYPE_CHECKING, Any

from . import lock_file, processes

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S = 10.0
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
    left = end_carriers(nonce, since if isinstance(since, int) else 0)
    if not left:
        shutil.rmtree(temporary_folder(nonce), ignore_errors=True)
    return left


def temporary_folder(nonce: str) -> str:
    """The private TMPDIR of a launch; short, because unix sockets in it must have paths under 108 bytes."""
    return os.path.join(tempfile.gettempdir(), f"gs-{nonce[:16]}")  # noqa: PTH118


def end_carriers(nonce: str, since: int) -> list[str]:
    """Kill every process of this user that carries the nonce, until none is left; returns those that will not
    die.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        now = [p for p in processes.table().values() if not p.gone and p.pid != os.getpid()]
        found = processes.carriers(nonce, now, since=since)
        if not found or time.monotonic() >= end:
            return [processes.describe(p.pid) for p in found]
        for process in found:
            processes.send(process, signal.SIGKILL)
        time.sleep(0.05)
