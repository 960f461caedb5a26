"""One thread that waits for sockets and for moments, with deadlines that do not drift."""

from __future__ import annotations

import heapq
import itertools
import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[], object]


class Loop:
    """select() waits with microseconds; epoll's milliseconds are longer than a token takes here."""

    def __init__(self) -> None:
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._running = True

    def at(self, moment: float, callback: Callback) -> None:
        """Call at a moment of `time.monotonic()`, or as soon after it as can be."""
        heapq.heappush(self._timers, (moment, next(self._order), callback))

    def read(self, fd: int, callback: Callback | None) -> None:
        """Call whenever `fd` can be read; None ends that."""
        _register(self._readers, fd, callback)

    def write(self, fd: int, callback: Callback | None) -> None:
        _register(self._writers, fd, callback)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            wait = max(self._timers[0][0] - time.monotonic(), 0.0) if self._timers else None
            readable, writable, _ = select.select(self._readers, self._writers, (), wait)
            for fd in readable:
                _call(self._readers, fd)
            for fd in writable:
                _call(self._writers, fd)
            now = time.monotonic()
            while self._running and self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()


def _register(table: dict[int, Callback], fd: int, callback: Callback | None) -> None:
    if callback is None:
        table.pop(fd, None)
    else:
        table[fd] = callback


def _call(table: dict[int, Callback], fd: int) -> None:
    callback = table.get(fd)  # an earlier callback of this turn may have ended it
    if callback is not None:
        callback()
