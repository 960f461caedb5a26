"""Why a server failed: reads a growing log once, line by line, and tells the root error.

    classifier = Classifier(engine="sglang")
    for line in log:
        classifier.feed(line)
    failure = classifier.finish(exit_status)

Memory is bounded, whatever the log's size. Most lines are dismissed by looking for a few plain texts; only
the rest has its prefixes taken off and is held against tracebacks, phases and rules.
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
from .literals import any_of, literals
from .phases import PhaseTracker, recognise, table
from .prefix import MAX_LINE, Line, strip
from .rules import Rule, RuleSet, own_files, rule_set
from .sieve import DULL, Sieve
from .tracebacks import HEADER, Follower, Link, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from ..model import Phase, PhaseRule

MOST_CASES = 64
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
        rules_given: RuleSet | None = None,
    ) -> None:
        self.lines = 0
        self._given = tuple(phases)
        self._rules = rules_given or rule_set((*rules, *own_files(engine)))
        self._deciding = tuple(rule for rule in self._rules.lines if rule.decides)
        self._follower = Follower()
        self._cases: list[Case] = []
        self._clues: list[Clue] = []
        self._clues_seen: set[tuple[int, str | None]] = set()
        self._known_flood: list[str] = []
        self._usage = False
        self._fatal_line = False
        self._later: Phase | None = None
        self._tail: deque[tuple[int, Line]] = deque(maxlen=_TAIL)
        self._framing: Link | None = None
        self._tracker = PhaseTracker(self._given)
        self._adopt(engine)
        self._recognising = engine is None
        self._plain = not self._recognising
        """Whether a line without a stem can be dismissed."""

    def _adopt(self, engine: str | None) -> None:
        """Take the tables of an engine; phases that were given stay."""
        self.engine = engine
        self._table = table(engine)
        tracker = PhaseTracker(self._given or self._table.lines)
        tracker.phase, tracker.seen = self._tracker.phase, self._tracker.seen
        self._tracker = tracker
        self._fatal = [(literals(pattern), re.compile(pattern)) for pattern in self._table.fatal]
        self._sieve = Sieve(self._rules, self._table, tracker.rules)
        self._set_bulk()

    def _set_bulk(self) -> None:
        tracker = self._tracker
        self._sieve.set_bulk(tracker.started and tracker.phase != "ready" and not self._cases)

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
        if self._plain:
            sieve = self._sieve
            if sieve.bulk:
                for dull in DULL:
                    if dull in line:
                        return
            elif " NCCL INFO " in line and "COMPLETE" not in line:
                return
            for stem in sieve.errors:
                if stem in line:
                    break
            else:
                for stem in sieve.phases:
                    if stem in line:
                        self._parts(line, self._read_phase)
                        return
                return
            for known in self._known_flood:
                if known in line:
                    return
        elif self._framing is not None and line.startswith("  "):
            self._framing.indented(line[:MAX_LINE])
            return
        self._parts(line, self._read)
        self._plain = not (self._follower.busy or self._usage or self._recognising)
        self._framing = self._follower.framing

    def feed_block(self, text: str) -> str:
        """Take many lines at once; gives back the last one if its end has not come yet."""
        lines = text.split("\n")
        rest = lines.pop()
        feed = self.feed
        for line in lines:
            feed(line)
        return rest[:MAX_LINE]

    @staticmethod
    def _parts(line: str, read: Callable[[str], None]) -> None:
        """A progress bar draws over itself."""
        if "\r" in line:
            for part in line.rstrip("\r\n").split("\r"):
                read(part)
        else:
            read(line)

    def _read_phase(self, raw: str) -> None:
        """A line that can only tell a phase."""
        line = strip(raw)
        phase = self._tracker.feed(line.text[:200], line.rank)
        if phase is not None:
            self._note_progress(phase)
        if not self._tracker.started:
            self._tail.append((self.lines, line))

    def _read(self, raw: str) -> None:
        line = strip(raw)
        text = line.text
        if self._recognising:
            self._recognise(raw)
        ends_usage = self._usage and self._ends_usage(line)
        if self._usage:
            return
        if text.startswith(_BULKY):
            self._tracker.feed(text[:200], line.rank)
            return
        followed = self._follower.feed(line, self.lines)
        if (report := self._follower.fresh) is not None:
            self._new_case(report)
        if followed and (not line.stamped or HEADER in text):
            self._look_for_clues(line, self._deciding, dying=False)
            return
        phase = self._tracker.feed(text, line.rank)
        if phase is not None:
            self._note_progress(phase)
        if text.startswith("usage: "):
            self._usage = True
        elif line.level not in _ORDERLY:
            self._look_for_clues(line, self._rules.usages if ends_usage else self._rules.lines)
        if not self._tracker.started and text.strip():
            self._tail.append((self.lines, line))

    def _ends_usage(self, line: Line) -> bool:
        """A usage page holds every word there is; it ends with the error, or with a record of a logger."""
        self._usage = not (": error: " in line.text or line.stamped or line.text.startswith("Traceback"))
        return not self._usage

    def _recognise(self, raw: str) -> None:
        engine = recognise([raw[:MAX_LINE]])
        self._recognising = engine is None and self.lines < HEAD_LINES
        if engine is not None:
            self._adopt(engine)

    def _new_case(self, report: Report) -> None:
        fatal = self._fatal_line or any(pattern.search(report.header) for _, pattern in self._fatal)
        if len(self._cases) >= MOST_CASES:
            if not fatal or self._cases[-1].fatal:
                return
            self._cases.pop()
        phase = self._tracker.of_rank(report.rank)
        self._cases.append(Case(report, fatal, phase, self._tracker.started))
        self._set_bulk()

    def _note_progress(self, phase: Phase) -> None:
        """A server that serves has survived what it wrote before, unless the engine said it died of it."""
        if self._tracker.started and (self._cases or not self._sieve.bulk):
            if phase in ("ready", "serving"):
                self._cases = [case for case in self._cases if case.fatal or case.report.native]
            self._set_bulk()

    def _look_for_clues(self, line: Line, rules: Sequence[Rule], *, dying: bool = True) -> None:
        text = line.text
        if self._cases and self._later is None:
            told = (rule.phase for rule in self._table.hindsight if _compiled(rule.pattern).search(text))
            self._later = next(told, None)
        for needles, pattern in self._fatal if dying else ():
            if any_of(needles, text) and pattern.search(text):
                self._die()
        for rule in rules:
            if not any_of(rule.needles, text) or (found := rule.find(text)) is None:
                continue
            group = found.group(int(rule.related)) if rule.related else None
            key = (id(rule), group)
            if key in self._clues_seen or len(self._clues) >= MOST_CLUES:
                return
            self._clues_seen.add(key)
            phase = self._tracker.of_rank(line.rank)
            self._clues.append(Clue(rule, self.lines, text, line.rank, phase, group))
            self._fatal_line = self._fatal_line or rule.fatal
            if rule.flood and rule.needles:
                self._known_flood += [needle for needle in rule.needles if needle in text]
            return

    def _die(self) -> None:
        """The engine says that it goes down: what was written last is what it died of."""
        self._fatal_line = True
        if not any(case.fatal for case in self._cases):
            for case in self._cases[-8:]:
                case.fatal = True

    # --- the end ---

    def finish(self, exit_status: int | None = None, *, timed_out: bool = False) -> Failure | None:
        """The root failure of a server that ended, or None when nothing failed.

        `exit_status` is as subprocess gives it (negative for a signal) or as a shell does (128 + signal);
        None when it is not known. `timed_out`: whoever watched it ended it because it stood still.
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
        where = "" if self._tracker.started else f" in phase {phase}"  # its end is told by whoever watched it
        return self._told(name, f"nothing more came{where}" if phase else "nothing came")

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


def read_log(path: Path, classifier: Classifier | None = None) -> Classifier:
    """A classifier that has read a whole log; `finish` tells the failure.

    Without one that is given, the engine is recognised from the first lines. Raises OSError.
    """
    with path.open("rb") as stream:
        head = stream.read(BLOCK).decode(errors="replace")
        classifier = classifier or Classifier(engine=recognise(head.split("\n")[:HEAD_LINES]))
        rest = classifier.feed_block(head)
        while block := stream.read(BLOCK):
            rest = classifier.feed_block(rest + block.decode(errors="replace"))
        if rest:
            classifier.feed(rest)
    return classifier


def classify_file(path: Path, *, engine: str | None = None, exit_status: int | None = None) -> Failure | None:
    """The root failure that a log tells, or None. Without `engine` it is recognised from the first lines."""
    return read_log(path, Classifier(engine=engine) if engine else None).finish(exit_status)


def classify_text(text: str, *, engine: str | None = None, exit_status: int | None = None) -> Failure | None:
    """The same for a log at hand."""
    lines = text.split("\n")
    classifier = Classifier(engine=engine or recognise(lines[:HEAD_LINES]))
    for line in lines[:-1] if lines[-1] == "" else lines:
        classifier.feed(line)
    return classifier.finish(exit_status)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
