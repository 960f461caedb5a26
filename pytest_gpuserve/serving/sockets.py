"""Who listens on a port: /proc/net/tcp and the descriptors of processes. Standard library only."""

# ruff: noqa: PTH115, PTH123, PTH208
# pathlib would slow the supervisor's start.
from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""


def listeners(port: int) -> set[int]:
    """Inodes of the TCP sockets that listen on the port, on whatever address of this machine."""
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}") as file:
                next(file, None)
                rows = [line.split() for line in file]
        except OSError:  # no IPv6
            continue
        for row in rows:
            if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port:
                found.add(int(row[9]))
    return found


def holders(inodes: set[int], pids: Iterable[int]) -> set[int]:
    """Those of the processes that have one of these sockets open. Processes that may not be looked into are
    left out.
    """
    wanted = {f"socket:[{inode}]" for inode in inodes}
    return {pid for pid in pids if wanted and _has_open(pid, wanted)}


def _has_open(pid: int, wanted: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") in wanted:
                return True
        except OSError:
            continue
    return False


def bind_error(host: str, port: int) -> OSError | None:
    """Why a server could not listen there now, or None. Sets SO_REUSEADDR as servers do, so TIME_WAIT is no
    obstacle.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return error
    return None
