"""The start of a server: the lines of its version, in order and in time, until it serves or dies."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from .profile import Death, death_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .log import Log
    from .perturb import Change
    from .profile import Insert, Route, Step, Version


class Start:
    """Plays a route's start. Moments are absolute, so that a hiccup of the machine does not add up."""

    def __init__(
        self, version: Version, route: Route, change: Change, log: Log, *, profile: str, scale: float
    ) -> None:
        self._version = version
        self._route = route
        self._opens = change.action == "opens"
        self._otherwise = change.action == "otherwise"
        self._log = log
        self._profile = profile
        self._scale = scale
        self._due = time.monotonic()

    def play(self, *, speculative: bool) -> None:
        """Returns when the server would begin to listen; a start that dies does not return."""
        omitted = "plain" if speculative else "speculative"
        death = self._death()
        for step in self._version.start:
            if step.only == omitted or step.id in self._route.omits:
                continue
            if death is not None and death.before == step.id:
                self.wait(death.after)
                self.die(death)
            for insert in self._inserts():
                if insert.before == step.id:
                    self._line(insert.log, insert.ranks)
            self.wait(step.after)
            self._step(step)

    def wait(self, seconds: float) -> None:
        """Seconds of the simulated clock."""
        self._due += seconds * self._scale
        time.sleep(max(self._due - time.monotonic(), 0))

    def die(self, death: Death) -> NoReturn:
        """As ranks fail: each writes its text, the main process notices and kills everything, itself too."""
        text = death_text(self._profile, death.text)
        for rank in death.ranks or (0,):
            self._log.raw(text, rank)
        leave(self._log, self._version.quit if death.ranks else (), death.exit)

    def _death(self) -> Death | None:
        if self._otherwise:
            text = self._version.otherwise
            return Death(before="weights_end", text=text, exit=-9, ranks=(0,), after=3, source="perturbed")
        return None if self._opens else self._route.dies

    def _inserts(self) -> Iterable[Insert]:
        route = self._route
        if not self._opens:
            yield from route.inert
        if route.active is not None and (self._opens or not (route.dies or route.inert)):
            yield route.active

    def _step(self, step: Step) -> None:
        if step.raw:
            self._log.raw(step.log)
        elif step.uvicorn:
            self._log.uvicorn(step.log)
        else:
            self._line(step.log, step.ranks)

    def _line(self, text: str, ranks: str) -> None:
        if ranks == "none":
            self._log.main(text)
        else:
            self._log.ranks(text, None if ranks == "all" else (int(ranks),))


def leave(log: Log, lines: Sequence[str], status: int) -> NoReturn:
    """End this process as SGLang ends: with a last word, and often by killing itself."""
    for line in lines:
        log.main(line)
    if status < 0:
        os.kill(os.getpid(), -status)
        signal.pause()
    os._exit(status)
