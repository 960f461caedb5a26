"""Which lines of a log deserve a look. Nearly all of them do not, and are told by a few plain texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .literals import cover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import PhaseRule
    from .phases import PhaseTable
    from .rules import RuleSet

ERROR_STEMS = (
    *("rror", "xception", "Traceback", 'File "', "ERR", "atal", "ssert", "terminate", "what()", "[-h"),
    *("atchdog", "crash", "SIG", "sigquit", "of memory", "oom", "GPU ", "WARN"),
)
"""A line without any of these, and without what the rules need besides, tells of no failure."""

PHASE_STEMS = (" batch", "Load", "Init", "begin", "Application", "Uvicorn", "Started server", "KV ", '"POST')

DULL = (" batch, #", '" 200 OK', " NCCL INFO ")
"""What nearly all lines of a serving server hold, and no line that tells a failure."""


class Sieve:
    """The texts to look for: `errors` always, `phases` as far as they matter."""

    def __init__(self, rules: RuleSet, table: PhaseTable, phases: Sequence[PhaseRule]) -> None:
        telling = [rule.pattern or "" for rule in rules.lines]
        telling += [rule.pattern for rule in table.hindsight]
        self.errors = cover([*telling, *table.fatal], ERROR_STEMS)
        stopping = [rule.pattern for rule in phases if rule.phase == "shutdown"]
        starting = [rule.pattern for rule in phases] + [rule.pattern or "" for rule in rules.ends]
        known = len(self.errors)
        self._stopping = cover(stopping, self.errors)[known:]
        self._starting = cover(starting, (*self.errors, *PHASE_STEMS))[known:]
        self.bulk = False
        """The server serves and nothing is open: phases matter no more, until it stops."""
        self.phases = self._starting

    def set_bulk(self, bulk: bool) -> None:
        self.bulk = bulk
        self.phases = self._stopping if bulk else self._starting
