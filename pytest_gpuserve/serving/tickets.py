"""The order of those who wait for a lease. Everything here happens under the mutex of the lock folder.

A ticket is a locked file whose name sorts by the time of the request; who died has none, for the kernel
unlocked it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import lock_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass
class Ticket:
    """A place in the queue. `units` are the lock files that would do, `count` says how many are needed."""

    path: Path
    descriptor: int
    count: int
    units: tuple[str, ...]

    def tear(self) -> None:
        """Leave the queue; needs no mutex."""
        if self.descriptor >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True)
class Waiting:
    """Somebody else's ticket."""

    count: int
    units: tuple[str, ...]


class Queue:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        lock_file.make_folder(str(folder))

    def draw(self, count: int, units: Sequence[str]) -> Ticket:
        path = self._folder / f"{time.time_ns():020d}-{os.getpid()}"
        descriptor = lock_file.try_lock(str(path))
        assert descriptor is not None, "a ticket's name is its own"
        ticket = Ticket(path, descriptor, count, tuple(units))
        try:
            os.pwrite(descriptor, json.dumps({"count": count, "units": list(units)}).encode(), 0)
        except OSError:  # a full disk: nobody must queue behind what was never asked
            ticket.tear()
            raise
        return ticket

    def before(self, ticket: Ticket) -> list[Waiting]:
        """Living tickets that were drawn earlier, in order; those of the dead are removed."""
        found = []
        for path in sorted(self._folder.iterdir()):
            if path.name >= ticket.path.name:
                break
            waiting = self._living(path)
            if waiting is not None:
                found.append(waiting)
        return found

    @staticmethod
    def _living(path: Path) -> Waiting | None:
        try:
            descriptor = lock_file.try_lock(str(path))
        except OSError:
            return None
        if descriptor is None:
            record = lock_file.read_record(str(path))
            count, units = record.get("count"), record.get("units")
            if not isinstance(count, int) or not isinstance(units, list):
                return None  # being written, or not one of ours
            return Waiting(count, tuple(map(str, units)))
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            pass  # another user's, and the folder is sticky: it stays, and counts for nothing
        finally:
            os.close(descriptor)
        return None
