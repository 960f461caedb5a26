"""Why a server failed: reads a growing log once, line by line, and tells the root error.

    classifier = Classifier(engine="sglang")
    for line in log:
        classifier.feed(line)
    failure = classifier.finish(exit_status)

Memory is bounded, whatever the log's size. Most lines are dismissed by looking for a few plain texts; only the
rest has its prefixes taken off and is held against tracebacks, phases and rules.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from ..record import Failure
from .classes import classes
from .judge import MOST_CHARACTERS, Case, Clue, root
from .literals import literals
from .phases import PhaseTracker, recognise, table
from .prefix import MAX_LINE, Line, strip
from .rules import RuleSet, own_files, rule_set
from .tracebacks import Follower

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from ..model import Phase, PhaseRule

SUSPICIOUS = (
    "rror",
    "xception",
    "Traceback",
    'File "',
    "ERR",
    "atal",
    "ailed",
    "ssert",
    "terminate",
    "what()",
    "usage:",
)
"""A line without any of these, and without a rule's own text, tells of no failure."""

MOST_CLUES = 256
HEAD_LINES = 400
BLOCK = 1 << 20
_TAIL = 12
_INTERRUPTED = frozenset({signal.SIGTERM, signal.SIGINT})
_ORDERLY = frozenset({"info", "debug", "warning"})
_BULKY = ("server_args=", "Namespace(", "self.cur_batch", "non-default args:")
"""Lines full of words that mean nothing here."""


class Classifier:
    """Fed with a server's log, one line after the other.

    `phases` and `rules` are what an engine brings; an engine's name alone takes this package's own tables for
    it, and without either the engine is recognised from the first lines that tell.
    """

    def __init__(
        self,
        phases: Sequence[PhaseRule] = (),
        rules: Sequence[Traversable] = (),
        *,
        engine: str | None = None,
        rule_set_: RuleSet | None = None,
    ) -> None:
        self.engine = engine
        self.lines = 0
        self._table = table(engine)
        self._tracker = PhaseTracker(phases or self._table.lines)
        self._rules = rule_set_ or rule_set((*rules, *own_files(engine)))
        self._recognising = engine is None and not phases
        self._follower = Follower()
        self._cases: list[Case] = []
        self._clues: list[Clue] = []
        self._clues_seen: set[tuple[int, str | None]] = set()
        self._known_flood: list[str] = []
        self._usage = False
        self._fatal_line = False
        self._later: Phase | None = None
        self._tail: deque[tuple[int, Line]] = deque(maxlen=_TAIL)
        self._collect_needles()

    # --- what it knows so far ---

    @property
    def phase(self) -> Phase | None:
        """The phase the server is in, as far as its log tells."""
        return self._tracker.phase

    @property
    def phases_seen(self) -> tuple[Phase, ...]:
        """All phases so far, in the order of their first lines."""
        return tuple(self._tracker.seen)

    @property
    def root(self) -> Failure | None:
        """The best root error so far, before the exit is known."""
        return root(self._cases, self._clues, self._rules, self._table, later=self._later)

    @property
    def hopeless(self) -> bool:
        """Whether a start has shown an error that it does not survive."""
        if self._tracker.started:
            return False
        return self._fatal_line or any(case.fatal and case.report.finished for case in self._cases)

    # --- reading ---

    def feed(self, line: str) -> None:
        """Take the next line of the log, with or without its line end."""
        self.lines += 1
        if not self._follower.busy and not self._usage and not self._recognising:
            for needle in self._needles:
                if needle in line:
                    break
            else:
                return
            for known in self._known_flood:
                if known in line:
                    return
        if "\r" in line:  # a progress bar draws over itself
            for part in line.rstrip("\r\n").split("\r"):
                self._read(part)
        else:
            self._read(line)

    def feed_block(self, text: str) -> str:
        """Take many lines at once; gives back the last one if its end has not come yet."""
        lines = text.split("\n")
        rest = lines.pop()
        if self._tracker.started and not self._follower.busy and not self._usage:
            for needle in self._needles:
                if needle in text:
                    break
            else:
                self.lines += len(lines)
                return rest[:MAX_LINE]
        feed = self.feed
        for line in lines:
            feed(line)
        return rest[:MAX_LINE]

    def _read(self, raw: str) -> None:
        line = strip(raw)
        text = line.text
        if self._recognising:
            self._recognise(raw)
        if self._usage and not self._leaves_usage(line):
            return
        if text.startswith(_BULKY):
            self._tracker.feed(text[:200], line.rank)
            return
        before = len(self._follower.reports)
        followed = self._follower.feed(line, self.lines)
        if len(self._follower.reports) > before:
            self._new_case()
        if followed and not line.stamped:
            return
        phase = self._tracker.feed(text, line.rank)
        if phase is not None:
            self._note_progress(phase)
        elif self._cases and self._later is None:
            self._later = next(
                (rule.phase for rule in self._table.hindsight if _compiled(rule.pattern).search(text)), None
            )
        if text.startswith("usage: "):
            self._usage = True
        elif line.level not in _ORDERLY:
            self._look_for_clues(line)
        if not self._tracker.started and text.strip():
            self._tail.append((self.lines, line))

    def _leaves_usage(self, line: Line) -> bool:
        """A usage page holds every word there is; it ends with the error, or with a record of a logger."""
        if ": error: " in line.text or line.stamped or line.text.startswith("Traceback"):
            self._usage = False
            return True
        return False

    def _recognise(self, raw: str) -> None:
        engine = recognise([raw[:MAX_LINE]])
        self._recognising = engine is None and self.lines < HEAD_LINES
        if engine is None:
            return
        self.engine = engine
        self._table = table(engine)
        tracker = PhaseTracker(self._table.lines)
        tracker.phase, tracker.seen = self._tracker.phase, self._tracker.seen
        self._tracker = tracker
        self._collect_needles()

    def _new_case(self) -> None:
        report = self._follower.reports[-1]
        fatal = any(_compiled(pattern).search(report.header) for pattern in self._table.fatal)
        phase = self._tracker.of_rank(report.rank)
        self._cases.append(Case(report, fatal or self._fatal_line, phase, self._tracker.started))
        self._choose_needles()

    def _note_progress(self, phase: Phase) -> None:
        """A server that serves has survived what it wrote before, unless the engine said it died of it."""
        if phase not in ("ready", "serving") or not self._tracker.started:
            return
        for case in self._cases:
            case.survived = case.survived or not (case.fatal or case.report.native)
        self._choose_needles()

    def _look_for_clues(self, line: Line) -> None:
        text = line.text
        for pattern in self._table.fatal:
            if _compiled(pattern).search(text):
                self._die(text)
        for index, rule in enumerate(self._rules.lines):
            found = rule.find(text)
            if found is None:
                continue
            group = found.group(int(rule.related)) if rule.related else None
            if (index, group) in self._clues_seen or len(self._clues) >= MOST_CLUES:
                return
            self._clues_seen.add((index, group))
            phase = self._tracker.of_rank(line.rank)
            self._clues.append(Clue(rule, self.lines, text, line.rank, phase, group))
            self._fatal_line = self._fatal_line or rule.fatal
            if rule.flood and rule.needles:
                self._known_flood += [needle for needle in rule.needles if needle in text]
            return

    def _die(self, text: str) -> None:
        """The engine says that it goes down: what was written last is what it died of."""
        self._fatal_line = True
        for case in self._cases[-8:]:
            if not case.survived:
                case.fatal = True

    def _choose_needles(self) -> None:
        """Once a server serves, phases matter only while it is open whether it survives an error."""
        open_case = any(not case.survived for case in self._cases)
        self._needles = self._all_needles if open_case or not self._tracker.started else self._few_needles

    def _collect_needles(self) -> None:
        """The texts that make a line worth a second look, the short ones that stand for others first."""
        patterns = [rule.pattern or "" for rule in (*self._rules.lines, *self._rules.ends)]
        patterns += self._table.fatal
        phases = self._tracker.rules
        self._few_needles = _needles(
            SUSPICIOUS, [*patterns, *(rule.pattern for rule in phases if rule.phase == "shutdown")]
        )
        patterns += [rule.pattern for rule in (*phases, *self._table.hindsight)]
        self._all_needles = _needles(SUSPICIOUS, patterns)
        self._choose_needles()

    # --- the end ---

    def finish(self, exit_status: int | None = None, *, timed_out: bool = False) -> Failure | None:
        """The root failure of a server that ended, or None when nothing failed.

        `exit_status` is as subprocess gives it (negative for a signal) or as a shell does (128 + signal); None
        when it is not known. `timed_out`: whoever watched it ended it because it stood still.
        """
        self._follower.end()
        found = self.root
        if found is None or (found.failure_class == "secondary" and timed_out):
            found = self._stuck(exit_status, timed_out) or found
        if found is None:
            found = self._silent_death(exit_status)
        return found and msgspec.structs.replace(found, exit_status=exit_status)

    def _stuck(self, exit_status: int | None, timed_out: bool) -> Failure | None:
        phase = self._tracker.phase
        if not (timed_out or exit_status is None) or phase == "shutdown":
            return None
        if not self._tracker.started:
            for rule in self._rules.ends:
                for number, line in islice(reversed(self._tail), 4):
                    if rule.phase == phase and rule.find(line.text):
                        return self._told(
                            rule.cls, line.text.strip(), line=number, rank=line.rank, advice=rule.advice
                        )
        if not timed_out:
            return None
        name = (
            "hang_serving"
            if self._tracker.started
            else "comm_hang"
            if phase == "comm_init"
            else "hang_startup"
        )
        return self._told(name, f"nothing more came in phase {phase}" if phase else "nothing came")

    def _silent_death(self, exit_status: int | None) -> Failure | None:
        if not exit_status or self._tracker.phase == "shutdown":
            return None
        number = -exit_status if exit_status < 0 else exit_status - 128 if exit_status > 128 else 0
        if number in _INTERRUPTED:
            return None
        how = f"exit status {exit_status}"
        if number in signal.Signals.__members__.values():
            how = f"ended by {signal.Signals(number).name}"
        advice = (
            "Look at `dmesg -T` and memory.events for the OOM killer." if number == signal.SIGKILL else None
        )
        return self._told("unknown", f"{how}, and the log does not say why", advice=advice)

    def _told(
        self,
        name: str,
        message: str,
        *,
        line: int | None = None,
        rank: int | None = None,
        advice: str | None = None,
    ) -> Failure:
        return Failure(
            failure_class=name,
            phase=self._tracker.phase,
            message=message,
            rank=rank,
            line=line,
            excerpt="\n".join(line.text[:MOST_CHARACTERS] for _, line in self._tail),
            environment=classes()[name].environment,
            advice=advice or classes()[name].try_,
        )


def classify_file(path: Path, *, engine: str | None = None, exit_status: int | None = None) -> Failure | None:
    """The root failure that a log tells, or None. Without `engine` it is recognised from the first lines."""
    with path.open("rb") as stream:
        head = stream.read(BLOCK)
        engine = engine or recognise(head.decode(errors="replace").split("\n")[:HEAD_LINES])
        classifier = Classifier(engine=engine)
        rest = classifier.feed_block(head.decode(errors="replace"))
        while block := stream.read(BLOCK):
            rest = classifier.feed_block(rest + block.decode(errors="replace"))
        if rest:
            classifier.feed(rest)
    return classifier.finish(exit_status)


def classify_text(text: str, *, engine: str | None = None, exit_status: int | None = None) -> Failure | None:
    """The same for a log at hand."""
    lines = text.split("\n")
    classifier = Classifier(engine=engine or recognise(lines[:HEAD_LINES]))
    for line in lines[:-1] if lines[-1] == "" else lines:
        classifier.feed(line)
    return classifier.finish(exit_status)


def _needles(first: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    wanted = list(first)
    for pattern in patterns:
        for needle in literals(pattern) or ("",):  # a pattern without any makes every line worth a look
            if not any(known in needle for known in wanted):
                wanted.append(needle)
    return tuple(wanted)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
