"""What is told of a server that has failed: what happened, the root error, and where to read on; never a
secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..errors import CaseError
from ..record import Failure

if TYPE_CHECKING:
    from pathlib import Path

    from .launch import Supervised
    from .log_watch import LogWatch
    from .redact import Redactor

E = TypeVar("E", bound=CaseError)


class Teller:
    """Makes the errors of one launch. `who` names its case or config, `engine` the engine."""

    def __init__(self, who: str, engine: str, log: Path, redactor: Redactor) -> None:
        self._who = who
        self._engine = engine
        self._log = log
        self._redactor = redactor

    def error(self, kind: type[E], what: str, failure: Failure, note: str = "") -> E:
        clean = msgspec.structs.replace(
            failure,
            message=self._redactor.text(failure.message),
            excerpt=self._redactor.text(failure.excerpt),
            gpus_idle_before=True,  # a lease is given only after an idle check
        )
        lines = [f"{self._who}: {self._engine} {self._redactor.text(what)}"]
        if clean.message and clean.message not in lines[0]:
            name = f"{clean.exception}: " if clean.exception else ""
            where = f" (line {clean.line})" if clean.line is not None else ""
            lines.append(f"root error{where}: {name}{clean.message}")
        if clean.excerpt:
            lines += [f"  | {line}" for line in clean.excerpt.splitlines()]
        lines += [text for text in (clean.advice, note, f"log: {self._log}") if text]
        return kind("\n".join(lines), failure=clean)


def root_error(supervised: Supervised, watch: LogWatch, otherwise: str) -> Failure:
    """The root error of the log; where it has none, `otherwise` in the phase it got to."""
    if supervised.start_error:  # no disk, no memory, no such program: nothing of the engine has run
        return Failure(failure_class="environment", message=otherwise, environment=True)
    return watch.finish(supervised.exited) or Failure(
        failure_class="unknown", phase=watch.working, message=otherwise, exit_status=supervised.exited
    )


def how_it_ended(supervised: Supervised, phase: str) -> str:
    """The end of a launch that nobody had asked to end."""
    if supervised.start_error:
        return f"could not be started: {supervised.start_error}"
    if supervised.exited is not None:
        status = supervised.exited
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return f"{how} in phase {phase}"
    if supervised.closed:
        return f"no longer listens on its port, in phase {phase}"
    if supervised.missing and supervised.report is None and not supervised.lost:
        return f"lost process {supervised.missing[0]} in phase {phase}, and says that it cannot go on"
    if supervised.report is not None:
        return f"was ended by its supervisor in phase {phase}: {supervised.report['reason']}"
    return f"was ended in phase {phase}: its supervisor and the guard of it were killed"
