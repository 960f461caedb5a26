"""Signs that a server which still runs is about to end: a process it had when it became ready is gone, or it
has closed its port. SGLang waits more than a minute between the death of a child and its own. Standard
library only.
"""

# ruff: noqa: PTH115, PTH208
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import processes, sockets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Vitals:
    """What there was when a server became ready: `members` are its processes as (number, start, description).

    Looking costs a read a process and one link.
    """

    def __init__(self, members: Iterable[tuple[int, int, str]], port: int | None) -> None:
        self._members = {(pid, started): text for pid, started, text in members}
        self._port = port
        self._listener = _listener(port, [pid for pid, _ in self._members]) if port is not None else None

    def missing(self) -> list[str]:
        """Processes that have ended since the last look, described as they were."""
        gone = [key for key in self._members if not _lives(*key)]
        return [self._members.pop(key) for key in gone]

    def closed(self) -> bool:
        """Whether nobody listens on the port any more. Told once."""
        if self._port is None:
            return False
        if self._listener is not None:
            path, link = self._listener
            try:
                if os.readlink(path) == link:
                    return False
            except OSError:
                pass
        closed = not sockets.listeners(self._port)
        self._port = None  # it was told, or somebody else of the launch listens: then there is no more to say
        return closed


def _lives(pid: int, started: int) -> bool:
    now = processes.read(pid)
    return now is not None and not now.gone and now.started == started


def _listener(port: int, pids: Sequence[int]) -> tuple[str, str] | None:
    """A descriptor of one of the processes that is a listening socket of the port, and what its link says."""
    wanted = {f"socket:[{inode}]" for inode in sockets.listeners(port)}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            path = f"/proc/{pid}/fd/{name}"
            try:
                link = os.readlink(path)
            except OSError:
                continue
            if link in wanted:
                return path, link
    return None
