"""How a launch is ended: the parent alone first, then the rest, then by force; and proof that nothing is
left.

Runs inside the supervisor, or inside the guard when the supervisor was killed. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from . import processes, sockets

if TYPE_CHECKING:
    from collections.abc import Callable

    from .processes import Process

REST_GRACE_S = 2.0
"""What the parent left behind gets to end by itself."""
KILL_PATIENCE_S = 10.0
"""A killed process that is still there after this hangs in the kernel."""
DRIVERLESS_GRACE_S = 5.0
"""Nobody waits for a drain when pytest is gone."""
PORT_PATIENCE_S = 1.0
SCAN_S = 0.1
"""Between two looks at the process table."""


class Household:
    """All processes of a launch, as seen by `keeper`, the process that adopts its orphans."""

    def __init__(self, *, keeper: int, parent: int | None, nonce: str, since: int) -> None:
        self.parent = parent
        self._keeper = keeper
        self._nonce = nonce
        self._since = since
        self._spared = {keeper, os.getpid()}

    def members(self) -> list[Process]:
        """Living descendants, the engine's session, and carriers of the nonce. Nothing else, ever."""
        now = processes.table()
        found = {p.pid: p for p in processes.descendants([self._keeper], now)}
        if self.parent is not None:
            found |= {p.pid: p for p in now.values() if p.session == self.parent and p.started >= self._since}
        strangers = [p for p in now.values() if p.pid not in found and not p.gone]
        found |= {p.pid: p for p in processes.carriers(self._nonce, strangers, since=self._since)}
        return [p for p in found.values() if not p.gone and p.pid not in self._spared]


class Ending:
    """One orderly stop. `wait(seconds)` reaps children and returns early when one exited; `hurry()` is the
    time by the monotonic clock from which no grace is given any more (infinity while nobody hurries).
    """

    def __init__(
        self,
        household: Household,
        *,
        grace: float,
        wait: Callable[[float], None],
        hurry: Callable[[], float],
        parent_lives: Callable[[], bool],
        look: Callable[[], None],
    ) -> None:
        self._household = household
        self._grace = grace
        self._wait = wait
        self._hurry = hurry
        self._parent_lives = parent_lives
        self._look = look

    def run(self) -> list[Process]:
        """Returns the processes that could not be ended: none, unless the kernel holds one."""
        self._look()
        self._ask_parent()
        if self._ask_rest():
            return []
        self._look()
        return self._kill()

    def _ask_parent(self) -> None:
        """A signal to SGLang's whole group would make its parent take the schedulers' exit for a crash."""
        parent = self._household.parent
        if parent is None or not self._parent_lives():
            return
        try:
            os.kill(parent, signal.SIGTERM)  # our own child, not yet reaped: the number is its
        except ProcessLookupError:
            return
        end = time.monotonic() + self._grace
        while self._parent_lives() and time.monotonic() < min(end, self._hurry()):
            self._wait(min(0.25, max(0.0, min(end, self._hurry()) - time.monotonic())))

    def _ask_rest(self) -> bool:
        """TERM to the group and to everything adopted, each once. True when all are gone."""
        end = time.monotonic() + min(self._grace, REST_GRACE_S)
        asked: set[tuple[int, int]] = set()
        while members := self._household.members():
            for member in members:
                if (member.pid, member.started) not in asked:
                    asked.add((member.pid, member.started))
                    processes.send(member, signal.SIGTERM)
            if time.monotonic() >= min(end, self._hurry()):
                return False
            self._wait(SCAN_S)
        return True

    def _kill(self) -> list[Process]:
        end = time.monotonic() + KILL_PATIENCE_S
        while members := self._household.members():
            for member in members:
                processes.send(member, signal.SIGKILL)
            if time.monotonic() >= end:
                return members
            self._wait(SCAN_S)
        return []


def grace_end(asked: float, grace: float, driver_gone: float | None) -> float:
    """When a grace that began at `asked` ends, with the time at which the driver went, if it has."""
    if driver_gone is None:
        return asked + grace
    return min(asked + grace, max(asked, driver_gone) + min(grace, DRIVERLESS_GRACE_S))


def port_left(port: int | None, wait: Callable[[float], None]) -> str:
    """Who still listens on the launch's port, in words; empty when nobody does."""
    if port is None:
        return ""
    end = time.monotonic() + PORT_PATIENCE_S
    while inodes := sockets.listeners(port):
        if time.monotonic() >= end:
            owners = sockets.holders(inodes, processes.table())
            who = ", ".join(processes.describe(pid) for pid in sorted(owners)) or "an unknown process"
            return f"port {port} is still listened on by {who}"
        wait(SCAN_S)
    return ""
