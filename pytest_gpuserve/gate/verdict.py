"""The verdict over a case: its launches so far, held against its baseline and its partner.

Everything that is found is told; the case gets the first verdict of this table that applies (`PRECEDENCE` is the
same order as data, for what can be found together).

=====================  ==============================================================================
invalid                a round must not be used; the primary metric, or one that the suite names, is missing
slower-than-partner    for a dead end of kind `slower`: as documented. When it is no longer slower the case is
                       `ok`, without a partner `no-partner`; nothing below is asked of such a case
measured               a hypothesis (`gate: none`): shown beside its partner, never judged
recorded               the run records baselines
not-comparable         baseline of another GPU, count, topology, model, workload or metric definition; or a
                       metric that it holds has vanished
no-baseline            none for this case on this host, or none for a metric that has appeared
regressed              slower than the baseline
no-partner             `compare_to` has neither a result in this run nor a comparable baseline
slower-than-partner    slower than its `compare_to`
improved               faster than the baseline by more than the tolerance
inconclusive           the launches cannot tell (yet)
ok                     no slowdown, and enough launches to say so
=====================  ==============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .. import errors
from ..record import Comparison, Verdict
from . import match, tell
from .compare import Held, hold
from .quantity import QUANTITIES, shown, typical
from .rounds import Figures, figures, usable_only
from .stats import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Case, DeadEnd, EngineBuild, Expect, Host
    from ..record import Launch
    from .baseline import Baseline
    from .quantity import Launches

PRECEDENCE: tuple[Verdict, ...] = (
    Verdict.INVALID,
    Verdict.MEASURED,
    Verdict.RECORDED,
    Verdict.NOT_COMPARABLE,
    Verdict.NO_BASELINE,
    Verdict.REGRESSED,
    Verdict.NO_PARTNER,
    Verdict.SLOWER,
    Verdict.IMPROVED,
    Verdict.INCONCLUSIVE,
    Verdict.OK,
)
"""Of several findings the first one here is the verdict of the case."""

ERRORS: dict[Verdict, type[errors.CaseError]] = {
    kind.verdict: kind
    for kind in (
        errors.Invalid,
        errors.NotComparable,
        errors.NoBaseline,
        errors.Regressed,
        errors.NoPartner,
        errors.SlowerThanPartner,
        errors.Improved,
        errors.Inconclusive,
    )
}
"""What a failing verdict is raised as."""

FURTHER = 0.2
"""Share of the false alarms that a case may raise for its further metrics and its partner; the rest is the primary's."""

FURTHER_WEIGHTS = (6.0, 2.0, 2.0, 1.0, 1.0)
"""How it is spent over the looks: early, because it is the primary metric that decides when the launches end."""


class Judgement(Struct, frozen=True, kw_only=True):
    """What the gate says of a case."""

    verdict: Verdict
    text: str
    """What happened and what to do, one or a few lines; the first is a summary."""
    comparisons: tuple[Comparison, ...] = ()
    undecided: bool = False
    """Another launch would help, and the suite allows it."""
    warnings: tuple[str, ...] = ()
    fails: bool = False
    stopped_because: str = ""
    """Why no further launch is wanted; empty while one is."""


def to_error(judgement: Judgement) -> errors.CaseError | None:
    """The exception that a judgement is raised as, or None when the case passes."""
    if not judgement.fails:
        return None
    return ERRORS[judgement.verdict](judgement.text, comparisons=judgement.comparisons)


def judge(
    case: Case,
    launches: Sequence[Launch],
    *,
    host: Host,
    engine: EngineBuild | None,
    baseline: Baseline | None,
    partner_launches: Sequence[Launch] | None = None,
    partner_baseline: Baseline | None = None,
    dead_end: DeadEnd | None = None,
    updating: bool = False,
    improved_fails: bool = False,
    inconclusive_fails: bool = False,
    speculative: bool | None = None,
    run: str = "RUN",
) -> Judgement:
    """Judge a case by its launches so far, in the order in which they were made; to be asked after each launch.

    `dead_end` is the documented failure that applies here, if any; only one of kind `slower` changes what is asked.
    `partner_launches` and `partner_baseline` belong to the case of `compare_to` under the same workload.
    `speculative`: whether an accept length is expected; None where the engine does not say.
    `run` is the run folder, for the commands in the text. Raises ValueError without launches.
    """
    if not launches:
        raise ValueError(f"{case.id}: nothing to judge, it has no launches")
    slower = dead_end if dead_end is not None and dead_end.kind == "slower" else None
    gated = _metrics(case, slower, baseline)
    found = figures(launches, gated)
    docket = _Docket(case=case, host=host, launches=launches, found=found, baseline=baseline, run=run)
    docket.check(speculative)
    if docket.findings:
        return docket.close(fails=True)
    if len(launches) < case.launches.min:
        return docket.wait()
    partner = _Partner.of(case, host, partner_launches or (), partner_baseline)
    if slower is not None:
        return docket.judge_slower(slower, partner, baseline)
    if case.config.gate.hypothesis:
        return docket.judge_hypothesis(partner)
    if updating:
        return docket.judge_recording(baseline)
    docket.hold_baseline(baseline, engine)
    docket.hold_partner(partner, baseline)
    return docket.close(
        fails=docket.verdict not in {Verdict.OK, Verdict.IMPROVED, Verdict.INCONCLUSIVE}
        or (docket.verdict is Verdict.IMPROVED and improved_fails)
        or (docket.verdict is Verdict.INCONCLUSIVE and inconclusive_fails)
    )


HYPOTHESIS_METRICS = ("output_throughput", "tpot_ms", "accept_length")
"""What is shown of a case that is not gated, beside its partner."""


def _metrics(case: Case, slower: DeadEnd | None, baseline: Baseline | None) -> tuple[str, ...]:
    """The metrics that matter here, the primary one first."""
    gated = case.config.gate.metrics or HYPOTHESIS_METRICS
    if slower is not None and slower.expect is not None:
        return (slower.expect.metric, *(m for m in gated if m != slower.expect.metric))
    return gated


@dataclass(frozen=True)
class _Partner:
    """The other case of a comparison: its launches in this run, else its baseline."""

    name: str | None
    launches: Sequence[Launch] = ()
    baseline: Baseline | None = None
    why_not: str = ""

    @classmethod
    def of(
        cls, case: Case, host: Host, launches: Sequence[Launch], baseline: Baseline | None
    ) -> _Partner | None:
        """None when the case names no partner."""
        name = case.config.compare_to
        if name is None:
            return None
        if baseline is None:
            return cls(name, launches)
        # A partner is another config, maybe of another model; everything else must be the same.
        other = match.differences(case, host, baseline, model=False)
        return cls(name, launches, None if other else baseline, "; ".join(other))

    def reference(self, metric: str) -> tuple[Launches, bool] | None:
        """The launches to hold a metric against and whether they are a mere point; None when there are none."""
        own = usable_only(self.launches, metric)
        if own:
            return own, False
        stored = self.baseline.launches.get(metric) if self.baseline else None
        if self.baseline is None or not stored:
            return None
        return stored, self.baseline.reported is not None

    def scatter(self, metric: str) -> list[Launches]:
        """Its stored launches, which tell how launches scatter even when those of the run are compared."""
        if not usable_only(self.launches, metric) or self.baseline is None or self.baseline.reported:
            return []
        stored = self.baseline.launches.get(metric)
        return [stored] if stored else []


@dataclass
class _Docket:
    """A case while it is judged: what was found, and what is to be said."""

    case: Case
    host: Host
    launches: Sequence[Launch]
    found: Figures
    baseline: Baseline | None
    run: str
    findings: list[tuple[Verdict, str]] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    undecided: bool = False

    # --- the rounds themselves ---

    def check(self, speculative: bool | None) -> None:
        """Find out whether the figures may be used at all."""
        gate = self.case.config.gate
        self.findings += [(Verdict.INVALID, problem) for problem in self.found.problems]
        primary = (gate.metrics or HYPOTHESIS_METRICS)[0]
        for metric in self.found.absent:
            if metric == primary:
                self.findings.append((Verdict.INVALID, f"no round yields {metric}, the primary metric"))
            elif gate.explicit and metric in gate.metrics:
                self.findings.append((Verdict.INVALID, f"no round yields {metric}, which the suite gates"))
            elif metric == "accept_length" and speculative:
                self.findings.append(
                    (Verdict.INVALID, "no accept length, although this config decodes speculatively")
                )
        lengths = [value for rounds in self.found.metrics.get("accept_length", []) for value in rounds]
        if lengths and all(value == 1.0 for value in lengths):
            self.warnings.append("accept length is exactly 1.00: no draft token was ever accepted")

    def wait(self) -> Judgement:
        """Fewer launches than the suite asks for at least."""
        self.findings.append((Verdict.INCONCLUSIVE, tell.too_few(len(self.launches), self.case.launches.min)))
        self.undecided = True
        return self.close(fails=False)

    # --- cases that no baseline decides ---

    def judge_slower(
        self, dead_end: DeadEnd, partner: _Partner | None, baseline: Baseline | None
    ) -> Judgement:
        metric = dead_end.expect.metric if dead_end.expect else self.case.config.gate.metrics[0]
        if dead_end.expect is not None:
            self.comparisons.append(_expected(metric, self.found.metrics[metric], dead_end.expect))
        held = self._hold_partner(metric, partner, baseline, self._plan())
        if held is None:
            return self.close(fails=True)
        self.undecided = not held.final and not self._exhausted()
        stays = held.decision == "worse" or (held.decision == "undecided" and held.speed < 1)
        if held.decision == "undecided":
            self.warnings.append(
                f"still slower than {self.case.config.compare_to} cannot be proven or excluded"
            )
        self.findings.append((Verdict.SLOWER if stays else Verdict.OK, held.comparison.text))
        return self.close(fails=stays)

    def judge_hypothesis(self, partner: _Partner | None) -> Judgement:
        shown = [tell.figure(metric, each) for metric, each in self.found.metrics.items()]
        self.findings.append((Verdict.MEASURED, "; ".join(shown)))
        for metric in self.found.metrics:
            if partner is not None and partner.reference(metric) is not None:
                held = self._hold_partner(metric, partner, None, self._further(1))
                assert held is not None
                self.comparisons[-1] = replace(held.comparison, decision="note")
                self.notes.append(held.comparison.text)
        if partner is not None and not self.notes:
            self.warnings.append(
                f"its partner {partner.name} has neither a result in this run nor a baseline"
            )
        return self.close(fails=False)

    def judge_recording(self, baseline: Baseline | None) -> Judgement:
        wanted = self.case.launches.baseline
        shown = [tell.figure(metric, each) for metric, each in self.found.metrics.items()]
        self.findings.append((Verdict.RECORDED, f"{tell.count(len(self.launches))}: {'; '.join(shown)}"))
        self.undecided = len(self.launches) < wanted
        for metric, stored in (baseline.launches if baseline else {}).items():
            if metric in self.found.metrics and baseline is not None:
                held = self._hold(metric, stored, baseline.label, self._plan(), point=True)
                self.comparisons.append(replace(held.comparison, decision="note"))
                self.notes.append(f"was: {held.comparison.text}")
        return self.close(fails=False)

    # --- the baseline ---

    def hold_baseline(self, baseline: Baseline | None, engine: EngineBuild | None) -> None:
        if baseline is None:
            self.findings.append((Verdict.NO_BASELINE, tell.no_baseline(self.case, self.host)))
            return
        different = match.differences(self.case, self.host, baseline)
        if different:
            self.findings.append(
                (Verdict.NOT_COMPARABLE, tell.not_comparable(self.case, baseline, different))
            )
            return
        gate = self.case.config.gate
        if baseline.measured is not None:
            self._vanished_and_appeared(baseline)
        held_metrics = [m for m in gate.metrics if m in self.found.metrics and m in baseline.launches]
        if not held_metrics:
            missing = gate.metrics[0]
            self.findings.append(
                (Verdict.NO_BASELINE, tell.no_metric(self.case, baseline, missing))
            )  # such as a reported figure for another metric
            return
        further = len(held_metrics) - 1 + (self.case.config.compare_to is not None)
        for metric in held_metrics:
            primary = metric == held_metrics[0]
            plan = self._plan(further) if primary else self._further(further)
            held = self._hold(
                metric, baseline.launches[metric], baseline.label, plan, point=baseline.count < 2
            )
            self.comparisons.append(held.comparison)
            self._find(held, primary, baseline)
        changed = match.changes(self.case, self.host, engine, self.launches, baseline)
        if changed:
            self.notes.append("not as in the baseline: " + "; ".join(changed))

    def _vanished_and_appeared(self, baseline: Baseline) -> None:
        for metric in self.case.config.gate.metrics:
            here, there = metric in self.found.metrics, metric in baseline.launches
            if there and not here:
                self.findings.append((Verdict.NOT_COMPARABLE, tell.vanished(self.case, baseline, metric)))
            elif here and not there:
                self.findings.append((Verdict.NO_BASELINE, tell.appeared(self.case, baseline, metric)))

    def _find(self, held: Held, primary: bool, baseline: Baseline) -> None:
        line = held.comparison.text
        if held.decision == "worse":
            self.findings.append((Verdict.REGRESSED, line))
        elif not primary:
            return
        elif held.decision == "better":
            self.findings.append((Verdict.IMPROVED, tell.improved(line, self.case, self.run)))
        elif held.decision == "undecided":
            self.undecided = not held.final and not self._exhausted()
            self.findings.append((Verdict.INCONCLUSIVE, line))
        else:
            self.findings.append((Verdict.OK, line))
        if primary and not held.proven:
            self.warnings.append(tell.unproven(baseline))

    # --- the partner ---

    def hold_partner(self, partner: _Partner | None, baseline: Baseline | None) -> None:
        if partner is None:
            return
        metric = self.case.config.gate.metrics[0]
        held = self._hold_partner(metric, partner, baseline, self._further(1 + len(self.found.metrics) - 1))
        if held is None:
            return
        if held.decision == "worse":
            self.findings.append((Verdict.SLOWER, tell.slower(held.comparison.text, self.case)))
        else:
            self.notes.append(held.comparison.text)

    def _hold_partner(
        self, metric: str, partner: _Partner | None, baseline: Baseline | None, plan: Plan
    ) -> Held | None:
        reference = partner.reference(metric) if partner else None
        if partner is None or reference is None:
            self.findings.append(
                (Verdict.NO_PARTNER, tell.no_partner(self.case, metric, partner.why_not if partner else ""))
            )
            return None
        launches, point = reference
        others = partner.scatter(metric)
        if baseline is not None and not baseline.reported and metric in baseline.launches:
            others.append(baseline.launches[metric])
        held = self._hold(metric, launches, "partner", plan, others=others, point=point)
        self.comparisons.append(held.comparison)
        return held

    # --- common to all ---

    def _hold(
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
            self.found.metrics[metric],
            reference,
            against=against,
            tolerance=self.tolerance,
            plan=plan,
            others=others,
            point=point,
        )

    @property
    def tolerance(self) -> float:
        """The baseline's own, which belongs to the noise of this host, before the suite's."""
        stored = self.baseline.tolerance if self.baseline else None
        return stored if stored is not None else self.case.config.gate.tolerance

    def _plan(self, further: int = 0) -> Plan:
        launches = self.case.launches
        plan = Plan(first=launches.min, last=max(launches.min, launches.max))
        return replace(plan, false_alarm=plan.false_alarm * (1 - FURTHER)) if further else plan

    def _further(self, further: int) -> Plan:
        plan = self._plan()
        return replace(plan, false_alarm=plan.false_alarm * FURTHER / further, weights=FURTHER_WEIGHTS)

    def _exhausted(self) -> bool:
        return len(self.launches) >= self.case.launches.max

    @property
    def verdict(self) -> Verdict:
        return min((verdict for verdict, _ in self.findings), key=PRECEDENCE.index)

    def close(self, *, fails: bool) -> Judgement:
        verdict = self.verdict
        # What decided comes first, then every other finding, then what is merely worth knowing.
        ranked = sorted(self.findings, key=lambda finding: PRECEDENCE.index(finding[0]))
        told = [line for _, line in ranked] + self.notes
        undecided = self.undecided and verdict in {
            Verdict.INCONCLUSIVE,
            Verdict.RECORDED,
            Verdict.SLOWER,
            Verdict.OK,
        }
        if verdict is Verdict.INCONCLUSIVE and not undecided:
            self.warnings.append(tell.inconclusive(self.case))
        if verdict is Verdict.IMPROVED:
            self.warnings.append(told[0])
        return Judgement(
            verdict=verdict,
            text="\n".join(told),
            comparisons=tuple(self.comparisons),
            undecided=undecided,
            warnings=tuple(self.warnings),
            fails=fails,
            stopped_because="" if undecided else tell.stopped(verdict, len(self.launches), self._exhausted()),
        )


def _expected(metric: str, launches: Launches, expect: Expect) -> Comparison:
    """The figure that documents a dead end of kind `slower`: `worse` means that it is slower than is known."""
    quantity = QUANTITIES[metric]
    value = typical(launches)
    ratio = value / expect.value
    speed = ratio**quantity.direction
    decision = "worse" if speed < 1 - expect.tolerance else "better" if speed > 1 + expect.tolerance else "ok"
    return Comparison(
        metric=metric,
        against="expect",
        reference=expect.value,
        value=value,
        ratio=ratio,
        decision=decision,
        text=f"{metric} {shown(metric, value)}, documented as {shown(metric, expect.value)} "
        f"within {tell.percent(expect.tolerance)}",
    )
