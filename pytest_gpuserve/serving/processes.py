"""Processes as /proc shows them, and signals that cannot reach the wrong one. Standard library only.

The supervisor imports this, so it must stay quick to import. Linux only, like everything about life and death
here.
"""

# ruff: noqa: PTH116, PTH123, PTH208
# pathlib would slow the supervisor's start.
from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NONCE_VARIABLE = "GPUSERVE_NONCE"
"""Every process of a launch inherits it; its value is unique to the launch."""
SECRET = re.compile(
    r"(?:api[-_]?|[-_.]|^-*)(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
"""A flag or variable on a command line whose value is nobody's business: anybody's may end in a record."""


class Process(NamedTuple):
    """One line of the process table. `started` is in clock ticks since boot: with the pid it names one
    process.
    """

    pid: int
    ppid: int
    group: int
    session: int
    state: str
    started: int

    @property
    def gone(self) -> bool:
        """A zombie holds nothing but its number."""
        return self.state in "ZX"


def read(pid: int) -> Process | None:
    """The process of this number, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (OSError, ValueError):
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()  # the name before it may hold blanks and brackets
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        ppid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0].decode(),
        started=int(fields[19]),
    )


def table() -> dict[int, Process]:
    """All processes by number."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Iterable[int], processes: Mapping[int, Process]) -> list[Process]:
    """Children, their children and so on of `roots`, without the roots themselves."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            found.append(child)
            queue.append(child.pid)
    return found


def carriers(nonce: str, processes: Iterable[Process], *, since: int) -> list[Process]:
    """Processes of this user, started at or after `since`, whose environment at their start held the launch's
    nonce.
    """
    wanted = f"{NONCE_VARIABLE}={nonce}".encode()
    user = os.getuid()
    return [p for p in processes if p.started >= since and _carries(p.pid, wanted, user)]


def _carries(pid: int, wanted: bytes, user: int) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != user:
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False


def send(process: Process, number: int) -> bool:
    """Signal exactly this process. False when it is gone, or its number belongs to another one by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3, or a sandbox that forbids it
        handle = -1
    try:
        now = read(process.pid)
        if now is None or now.started != process.started:
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except OSError:
        return False
    else:
        return True
    finally:
        if handle >= 0:
            os.close(handle)


def wall_clock(ticks: int) -> float:
    """When a process with this `started` began, in seconds since the epoch."""
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def describe(pid: int) -> str:
    """Number and command line without secrets, for people; the number alone where it cannot be read."""
    text = " ".join(_without_secrets(_words(pid)))
    return f"{pid} ({text[:120]})" if text else str(pid)


def program(pid: int) -> str:
    """The name of what it runs, as its command line has it and without folders; empty where it cannot be read."""
    words = _words(pid)
    return words[0].rpartition("/")[2] if words else ""


def _without_secrets(words: list[str]) -> Iterator[str]:
    hide = False
    for word in words:
        name, equals, _ = word.partition("=")
        secret = SECRET.search(name) is not None
        yield "***" if hide else f"{name}=***" if equals and secret else word
        hide = secret and not equals and word.startswith("-")


def _words(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read().rstrip(b"\0")
    except OSError:
        return []
    return [word.decode(errors="replace") for word in line.split(b"\0")] if line else []
