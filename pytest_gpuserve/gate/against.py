"""A case held against its baseline and against its partner, with the error that each comparison may spend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..record import Verdict
from . import match, tell
from .compare import Held, hold
from .rounds import usable_only
from .scatter import disturbed
from .stats import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Case, EngineBuild, Host
    from ..record import Launch
    from .baseline import Baseline
    from .judgement import Docket
    from .quantity import Launches

FURTHER = 0.1
"""Share of the false alarms of a case that its further metrics and its partner may raise, when it has any.

The rest is the primary metric's, so that all together stay within `Plan.false_alarm`, however they correlate.
"""

FURTHER_SPEND = (6.0, 2.0, 1.0, 1.0)
"""Theirs is spent early: it is the primary metric that decides when the launches end."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked about a case: its figures, and all that they can be held against."""

    case: Case
    host: Host
    engine: EngineBuild | None
    launches: Sequence[Launch]
    metrics: dict[str, Launches]
    """The figures by metric, the primary one first."""
    baseline: Baseline | None
    partner: Partner | None

    @property
    def primary(self) -> str:
        return next(iter(self.metrics))

    @property
    def tolerance(self) -> float:
        """The baseline's own, which belongs to the noise of this host, before the suite's."""
        stored = self.baseline.tolerance if self.baseline else None
        return self.case.config.gate.tolerance if stored is None else stored

    @cached_property
    def further(self) -> int:
        """Comparisons beside that of the primary metric that can fail the case."""
        return len(self.metrics) - 1 + (self.partner is not None)

    @cached_property
    def plan(self) -> Plan:
        """For the comparison that decides the case."""
        launches = self.case.launches
        plan = Plan(first=launches.min, last=max(launches.min, launches.max))
        return replace(plan, false_alarm=plan.false_alarm * (1 - FURTHER)) if self.further else plan

    @cached_property
    def further_plan(self) -> Plan:
        """For each of the others."""
        share = Plan().false_alarm * FURTHER / max(1, self.further)
        return replace(self.plan, false_alarm=share, spend_alarm=FURTHER_SPEND)

    @cached_property
    def dead_end_plan(self) -> Plan:
        """For a comparison that is expected to be worse, and needs no launch to confirm it."""
        return replace(self.plan, false_alarm=Plan().false_alarm, confirm=False)

    def hold(
        self,
        metric: str,
        reference: Launches,
        against: str,
        plan: Plan,
        *,
        others: Sequence[Launches] = (),
        point: bool = False,
    ) -> Held:
        return hold(
            metric,
            self.metrics[metric],
            reference,
            against=against,
            tolerance=self.tolerance,
            plan=plan,
            others=others,
            point=point,
        )


# --- the baseline -----------------------------------------------------------------------------------


def hold_baseline(question: Question, docket: Docket, orphans: Sequence[Baseline]) -> None:
    """Find what the baseline says of the case."""
    case, baseline = question.case, question.baseline
    if baseline is None:
        docket.find(Verdict.NO_BASELINE, tell.no_baseline(case, question.host, orphans))
        return
    different = match.differences(case, question.host, baseline)
    if different:
        docket.find(Verdict.NOT_COMPARABLE, tell.not_comparable(case, question.host, baseline, different))
        return
    if baseline.measured is not None:
        _vanished_and_appeared(question, baseline, docket)
    elif question.primary not in baseline.launches:
        docket.find(Verdict.NO_BASELINE, tell.no_metric(case, question.host, baseline, question.primary))
    for metric in question.metrics:
        if metric in baseline.launches:
            _hold_metric(question, baseline, metric, docket)
    changed = match.changes(case, question.host, question.engine, question.launches, baseline)
    if changed:
        docket.notes.append("not as when the baseline was recorded: " + "; ".join(changed))


def _vanished_and_appeared(question: Question, baseline: Baseline, docket: Docket) -> None:
    for metric in question.case.config.gate.metrics:
        here, there = metric in question.metrics, metric in baseline.launches
        if there and not here:
            docket.find(Verdict.NOT_COMPARABLE, tell.vanished(question.case, question.host, baseline, metric))
        elif here and not there:
            docket.find(Verdict.NO_BASELINE, tell.appeared(question.case, question.host, baseline, metric))


def _hold_metric(question: Question, baseline: Baseline, metric: str, docket: Docket) -> None:
    primary = metric == question.primary
    held = question.hold(
        metric,
        baseline.launches[metric],
        baseline.label,
        question.plan if primary else question.further_plan,
        point=baseline.count < 2,
    )
    docket.compared(held)
    line = held.comparison.text
    if held.decision == "worse":
        told = any(verdict is Verdict.REGRESSED for verdict, _ in docket.findings)
        text = line if told else tell.regressed(line, question.case, question.host, docket.run)
        docket.find(Verdict.REGRESSED, text)
    if not primary:
        if held.suspect:
            docket.confirm(line)
        return
    if not held.proven:
        docket.warnings.append(tell.unproven(baseline))
    elif disturbance := disturbed(question.metrics[metric], baseline.launches[metric]):
        docket.warnings.append(disturbance)
    if held.decision == "better":
        docket.find(
            Verdict.IMPROVED, tell.improved(line, question.case, question.host, docket.run, docket.launches)
        )
    elif held.decision == "undecided":
        docket.wants_more = not held.final
        docket.find(Verdict.INCONCLUSIVE, line)
    elif held.decision == "ok":
        docket.find(Verdict.OK, line)
        if held.speed > 1 + question.tolerance:
            docket.warnings.append(tell.maybe_improved(line))


# --- the partner ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partner:
    """The case that `compare_to` names: its launches in this run, else its baseline."""

    name: str
    launches: Sequence[Launch] = ()
    baseline: Baseline | None = None
    why_not: str = ""
    """Why its baseline cannot be compared with this case."""

    @classmethod
    def of(
        cls, case: Case, host: Host, launches: Sequence[Launch] | None, baseline: Baseline | None
    ) -> Partner | None:
        """None when the case names no partner. A partner may serve another model; all else must be the
        same.
        """
        name = case.config.compare_to
        if name is None:
            return None
        other = match.differences(case, host, baseline, model=False) if baseline else []
        return cls(name, launches or (), None if other else baseline, "; ".join(other))

    def reference(self, metric: str) -> tuple[Launches, bool] | None:
        """What to hold a metric against, and whether it is a mere point. Launches of the same run come first:
        whatever this day does to the machine, it does to both."""
        own = usable_only(self.launches, metric)
        if own:
            return own, False
        stored = self.baseline.launches.get(metric) if self.baseline else None
        return (stored, self.baseline.count == 0) if self.baseline and stored else None

    def scatter(self, metric: str) -> list[Launches]:
        """Stored launches that tell how its launches scatter when those of the run are compared."""
        stored = self.baseline.rounds.get(metric) if self.baseline else None
        return [stored] if stored and usable_only(self.launches, metric) else []


def hold_partner(question: Question, metric: str, plan: Plan, docket: Docket) -> Held | None:
    """Hold a metric against the partner; without one that can be compared that is the finding, and None."""
    partner = question.partner
    reference = partner.reference(metric) if partner else None
    if partner is None or reference is None:
        docket.find(Verdict.NO_PARTNER, tell.no_partner(question.case, partner.why_not if partner else ""))
        return None
    launches, point = reference
    others = partner.scatter(metric)
    own = question.baseline.rounds.get(metric) if question.baseline else None
    if own:
        others.append(own)
    held = question.hold(metric, launches, "partner", plan, others=others, point=point)
    docket.compared(held)
    return held
