"""From tracebacks and telling lines to the one failure that is the root of them.

The earliest clear failure is the root; whatever followed from it on other ranks is noise. What says little
(`NCCL error: invalid usage`) is explained by a telling line, if there is one; a failure that no rule knows is
still the root when the engine says that it died of it.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ..model import Phase
from ..record import Failure
from .classes import classes
from .rules import Rule
from .tracebacks import Link, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .phases import PhaseTable
    from .rules import RuleSet

MOST_EXCERPT = 30
MOST_CHARACTERS = 300
"""Of a line in an excerpt: batch dumps hold users' prompts."""
MOST_MESSAGE = 2000

_STOPPED = frozenset({"KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit"})
_SECRET = re.compile(
    r"\bhf_[A-Za-z0-9]{30,}"
    r"|(?<![\w./-])sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"
    r"|(?<=Bearer )\S+"
    r"|(?<=Request ID: )[^)\s]+"
)
"""Tokens by their form: a word such as `hf_transformers` or a folder `sk-...` in a path is none."""


class Clue(Struct, frozen=True):
    """A line that tells something by itself."""

    rule: Rule
    line: int
    text: str
    rank: int | None
    phase: Phase | None
    group: str | None = None
    """What the rule's `related` group found."""


class Case(Struct):
    """A report, with what is known of the moment it was written."""

    report: Report
    fatal: bool
    phase: Phase | None
    started: bool


class Candidate(Struct, frozen=True):
    """A failure that may be the root."""

    strength: int
    """3 clear, 2 vague, 1 unknown, 0 only a consequence."""
    line: int
    fatal: bool
    rule: Rule | None
    link: Link | None
    case: Case | None
    clue: Clue | None
    phase: Phase | None


def root(
    cases: Iterable[Case],
    clues: Sequence[Clue],
    rules: RuleSet,
    table: PhaseTable,
    *,
    later: Phase | None = None,
) -> Failure | None:
    """The root failure, or None. `later` is a phase that showed only after the failure had been written."""
    found = [candidate for case in cases if (candidate := _of_case(case, rules, table)) is not None]
    found += [_of_clue(clue) for clue in clues if clue.rule.alone]
    if not found:
        return None
    chosen = _choose(found)
    explanation = _explanation(chosen, clues) if chosen.strength < 3 else None
    return _failure(_with_exception(chosen, found), explanation, table, later)


def _with_exception(chosen: Candidate, found: Sequence[Candidate]) -> Candidate:
    """A telling line and the exception that it surfaced as (a device-side assertion) are one failure."""
    if chosen.clue is None or chosen.rule is None:
        return chosen
    for one in sorted(found, key=lambda one: one.line):
        if one.link is not None and one.rule is not None and one.rule.cls == chosen.rule.cls:
            return msgspec.structs.replace(
                chosen, link=one.link, case=one.case, phase=one.phase or chosen.phase
            )
    return chosen


def _choose(found: Sequence[Candidate]) -> Candidate:
    """The earliest of the clear ones, unless the engine died earlier of something less clear."""
    best = max(candidate.strength for candidate in found)
    clear = min((one for one in found if one.strength == best), key=lambda one: one.line)
    if best == 0:
        return clear
    dead = [one for one in found if one.fatal and one.strength and one.line < clear.line]
    return min(dead, key=lambda one: one.line, default=clear)


def _of_case(case: Case, rules: RuleSet, table: PhaseTable) -> Candidate | None:
    report = case.report
    links = [link for link in report.links if link.finished]
    if not links or report.quiet:
        return None
    if all(_name(link) in _STOPPED for link in links[-1:]):
        return None
    phase = _frame_phase(report, table, case) or case.phase
    if phase == "shutdown" and not case.fatal and not report.native:
        return None

    def candidate(strength: int, link: Link, rule: Rule | None) -> Candidate:
        fatal = case.fatal or report.native
        return Candidate(strength, link.line, fatal, rule, link, case, None, phase)

    for vague in (False, True):
        for index, link in enumerate(links):
            rule = match(link, rules, phase, vague=vague)
            if rule is not None and rule.cls != "secondary":
                link, rule = _translated(links[index + 1 :], link, rule, rules, phase)
                return candidate(2 if vague else 3, link, rule)
    for link in links:
        if (rule := match(link, rules, phase, vague=False)) is not None:
            return candidate(0, link, rule)
    told = [link for link in links if link.text] or links
    return candidate(1, told[0], None)


def _translated(
    outer: Sequence[Link], link: Link, rule: Rule, rules: RuleSet, phase: Phase | None
) -> tuple[Link, Rule]:
    """What a library raises on purpose from the cause says it better, as long as it says the same.

    A bare `Exception` is only a wrapper.
    """
    for one in outer:
        if not one.direct or _name(one) == "Exception":
            break
        better = match(one, rules, phase, vague=False)
        if better is None or better.cls != rule.cls:
            break
        link, rule = one, better
    return link, rule


def match(link: Link, rules: RuleSet, phase: Phase | None, *, vague: bool) -> Rule | None:
    """The first rule that fits an exception. A consequence is told by the first line of the message alone."""
    first = link.message[0] if link.message else ""
    text = link.text
    frames = [frame.place for frame in link.frames]
    for rule in rules.exceptions:
        if rule.vague is vague:
            seen = first if rule.cls == "secondary" else text
            if rule.fits(link.exception, seen, frames, phase):
                return rule
    return None


def _of_clue(clue: Clue) -> Candidate:
    strength = 0 if clue.rule.cls == "secondary" else 2 if clue.rule.vague else 3
    return Candidate(strength, clue.line, clue.rule.fatal, clue.rule, None, None, clue, clue.phase)


def _explanation(chosen: Candidate, clues: Sequence[Clue]) -> Clue | None:
    """The line that tells what an unclear exception does not."""
    text = f"{chosen.link.exception}: {chosen.link.text}" if chosen.link else ""
    for clue in sorted(clues, key=lambda one: (not one.rule.decides, one.line)):
        rule = clue.rule
        if rule.alone and not rule.decides:
            continue
        if rule.explains_text(text) and (rule.related is None or _related(clue.group, text)):
            return clue
    return None


def _related(group: str | None, text: str) -> bool:
    """Whether a module (`deepseek_v2`) and a message (`DeepseekV3ForCausalLM`) speak of the same model."""
    stem = (group or "").replace("_", "").lower()[:5]
    return bool(stem) and stem in text.replace("_", "").lower()


def _frame_phase(report: Report, table: PhaseTable, case: Case) -> Phase | None:
    """The phase of the outermost frame that tells one, over the whole chain's last traceback first."""
    for link in reversed(report.links):
        for frame in link.frames:
            for rule in table.frames:
                if re.search(rule.pattern, frame.place):
                    return _serving_or_warmup(rule.phase, case)
    return None


def _serving_or_warmup(phase: Phase, case: Case) -> Phase:
    """The code that serves also runs for the warm-up request of a start."""
    return "warmup" if phase == "serving" and case.phase is not None and not case.started else phase


def _failure(chosen: Candidate, explanation: Clue | None, table: PhaseTable, later: Phase | None) -> Failure:
    link, case = chosen.link, chosen.case
    rule = explanation.rule if explanation else chosen.rule
    name = rule.cls if rule else "unknown"
    line = chosen.line
    if explanation is not None and (explanation.rule.decides or explanation.line < line):
        line = min(line, explanation.line)
    ranks = (chosen.clue.rank if chosen.clue else None, case.report.rank if case else None)
    rank = next((rank for rank in ranks if rank is not None), None)
    return Failure(
        failure_class=name,
        phase=_phase(chosen, rule, table, later),
        exception=link.exception if link else next(iter(rule.exception if rule else ()), None),
        message=redact(_message(chosen, explanation))[:MOST_MESSAGE],
        rank=rank,
        line=line,
        excerpt=excerpt(chosen, explanation),
        environment=classes()[name].environment,
        advice=(rule.advice if rule else None) or classes()[name].try_,
    )


def _phase(chosen: Candidate, rule: Rule | None, table: PhaseTable, later: Phase | None) -> Phase | None:
    if rule is not None and rule.sure_phase:
        return rule.sure_phase
    if chosen.phase is not None:
        return chosen.phase
    if later is not None:
        return later
    hint = (rule.phase if rule else None) or (chosen.rule.phase if chosen.rule else None)
    return table.first_forward if hint == "first_forward" else hint


def _message(chosen: Candidate, explanation: Clue | None) -> str:
    told = _told(chosen.link, chosen.rule) if chosen.link else ""
    if chosen.clue is not None:
        told = f"{chosen.clue.text.strip()}\n{told}".rstrip()
    if explanation is None:
        return told
    why = explanation.text.strip()
    return f"{why}\n{told}" if explanation.line < chosen.line else f"{told}\n{why}"


def _told(link: Link, rule: Rule | None) -> str:
    """The first line of a message, and the line that decided if that is another one.

    An empty message is told by the file and the source line that raised it.
    """
    lines = [line.strip() for line in link.text.split("\n") if line.strip()]
    if not lines:
        if not link.frames:
            return ""
        frame = link.frames[-1]
        return f"{PurePath(frame.file).name}: {frame.code}" if frame.code else PurePath(frame.file).name
    first = lines[0]
    found = rule.find(link.text) if rule is not None and rule.pattern else None
    if found is None or rule is None:
        return first
    deciding = next((line for line in lines if rule.find(line) is not None), first)
    return first if deciding == first else f"{first}\n{deciding}"


def excerpt(chosen: Candidate, explanation: Clue | None) -> str:
    """The lines to show: what explains it, the innermost frames, the exception and its message."""
    lines: list[str] = []
    if explanation is not None and explanation.line <= chosen.line:
        lines.append(explanation.text.strip())
    if chosen.clue is not None:
        lines.append(chosen.clue.text.strip())
    if chosen.link is not None and chosen.case is not None:
        link = chosen.link
        if chosen.case.report.header:
            lines.append(f"{chosen.case.report.header}:")
        for frame in link.frames[-6:]:
            lines.append(f"  {frame.place}")
            if frame.code:
                lines.append(f"    {frame.code}")
        head = link.exception or ""
        message = link.text.split("\n")
        first = f"{head}: {message[0]}" if head and message[0] else head or message[0]
        lines += [first, *message[1:]]
    if explanation is not None and explanation.line > chosen.line:
        lines.append(explanation.text.strip())
    if len(lines) > MOST_EXCERPT:
        lines = [*lines[: MOST_EXCERPT - 6], "...", *lines[-5:]]
    return redact("\n".join(line[:MOST_CHARACTERS] for line in lines))


def redact(text: str) -> str:
    """Tokens and request ids are nobody's business."""
    return _SECRET.sub("***", text)


def _name(link: Link) -> str:
    return (link.exception or "").rpartition(".")[2]
