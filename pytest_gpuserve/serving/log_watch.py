"""Reads a server's log while it grows: which phase it is in and for how long, whether it is ready, why it
fails.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ..record import PhaseTime
from . import log_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..model import Phase
    from ..record import Failure

FIRST_PHASE: Phase = "import"
LONGEST_LINE = 1 << 20
"""A line that never ends is cut here, so that memory is bounded."""


class LineClassifier(Protocol):
    """What is needed of `failures.classify.Classifier`."""

    @property
    def phase(self) -> Phase | None: ...
    @property
    def root(self) -> Failure | None: ...
    @property
    def hopeless(self) -> bool: ...
    def feed(self, line: str) -> None: ...
    def finish(self, exit_status: int | None, *, timed_out: bool = False) -> Failure | None: ...


class LogWatch:
    """Feeds a growing log to a classifier. `poll` reads what is new; nothing happens in between.

    `ready` is the regular expression of the line with which a server says that it is ready; empty: any log
    is. `clock` counts seconds, from whatever start.
    """

    def __init__(
        self,
        path: Path,
        classifier: LineClassifier,
        ready: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.classifier = classifier
        self.offset = 0
        """Bytes read so far; offsets stay true when the log's middle is punched out."""
        self.said_ready = not ready
        self.hopeless_since: float | None = None
        """When the line was read after which the start could not succeed."""
        self._ready = re.compile(ready) if ready else None
        self._clock = clock
        self._descriptor = -1
        self._rest = b""
        self._told: Phase | None = None
        self._phase: Phase = FIRST_PHASE
        self._working: Phase = FIRST_PHASE
        self._phase_began = self._grew = clock()
        self._phases: list[PhaseTime] = []

    # --- reading ---

    def poll(self) -> int:
        """Read what was written since the last time; returns the bytes. A log that does not exist yet has
        none.
        """
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return 0
        read = 0
        for start, data in log_file.pieces(self._descriptor, self.offset):
            block = data
            if start != self.offset:  # the middle is gone, and the line at its end is half a line
                self._flush()
                block = data.partition(b"\n")[2]
            self._feed(block)
            self.offset = start + len(data)
            read += len(data)
        if read:
            self._grew = self._clock()
        return read

    def _feed(self, block: bytes) -> None:
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > LONGEST_LINE:
            self._flush()

    def _flush(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._line(rest)

    def _line(self, data: bytes) -> None:
        # A progress bar rewrites its line with \r; only the last state is worth a look.
        line = data.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
        self.classifier.feed(line)
        phase = self.classifier.phase
        if phase is not None and phase != self._told:
            self._told = phase
            self.enter(phase)
        if not self.said_ready and self._ready is not None and self._ready.search(line):
            self.said_ready = True
        if self.hopeless_since is None and self.classifier.hopeless:
            self.hopeless_since = self._clock()

    def finish(self, exit_status: int | None, *, timed_out: bool = False) -> Failure | None:
        """Read the rest of the log, an unfinished line included, and say why the server failed, if it did.

        `timed_out`: it is ended because nothing more came.
        """
        self.poll()
        self._flush()
        found = self.classifier.finish(exit_status, timed_out=timed_out)
        if found is None or found.phase not in ("ready", "shutdown"):
            return found
        if found.phase == "ready" and self._working != "serving":
            return found
        return replace(found, phase=self._working)  # an engine whose log has no line for a request

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # --- time ---

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def working(self) -> Phase:
        """The phase that it was in before it began to end. A server that nobody asked to stop fails in this
        one: `shutdown` is then only what it did about the failure.
        """
        return self._working

    @property
    def silence(self) -> float:
        """Seconds since the log last grew."""
        return self._clock() - self._grew

    def enter(self, phase: Phase) -> None:
        """A phase that no line tells of, such as `serving`."""
        if phase != self._phase:
            now = self._clock()
            self._phases.append(PhaseTime(self._phase, now - self._phase_began))
            self._phase, self._phase_began = phase, now
            if phase != "shutdown":
                self._working = phase

    def phases(self) -> list[PhaseTime]:
        """Phases so far in order, the present one last."""
        return [*self._phases, PhaseTime(self._phase, self._clock() - self._phase_began)]

    def overdue(self, limits: Mapping[Phase, float]) -> tuple[Phase, float] | None:
        """The present phase and its limit in seconds when it has exceeded it; a phase without a limit has
        none.

        A phase that occurs again, such as loading the weights of a draft model, has its limit anew.
        """
        limit = limits.get(self._phase)
        if limit is not None and self._clock() - self._phase_began > limit:
            return self._phase, limit
        return None
