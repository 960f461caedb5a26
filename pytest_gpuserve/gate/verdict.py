"""The verdict over a case: its launches so far, held against its baseline and its partner.

Everything that is found is told; the verdict is the first of this table that applies
(`judgement.PRECEDENCE` is the same as data).

=====================  ======================================================================================
invalid                a round must not be used; the primary metric, or one that the suite names, is missing
slower-than-partner    a dead end of kind `slower`, as documented. No longer slower: ok. Without a partner:
                       no-partner. Nothing below is asked of such a case: its partner decides
measured               a hypothesis (`gate: none`), shown beside its partner
recorded               the run records baselines
not-comparable         baseline of another GPU, count, topology, model, workload or metric definition, or a
                       metric that it holds has vanished
no-baseline            none for this case on this host, or none for a metric that has appeared
regressed              slower than the baseline
no-partner             `compare_to` has neither a result in this run nor a comparable baseline
slower-than-partner    slower than its `compare_to`
improved               faster than the baseline by more than the tolerance
inconclusive           the launches cannot tell, or not yet
ok                     no slowdown, and enough launches to say so
=====================  ======================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..record import Comparison, Verdict
from . import tell
from .against import Partner, Question, hold_baseline, hold_partner
from .judgement import PRECEDENCE, Docket, Judgement, to_error
from .quantity import QUANTITIES, shown, typical, values
from .rounds import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Case, DeadEnd, EngineBuild, Expect, Host
    from ..record import Launch
    from .baseline import Baseline
    from .quantity import Launches
    from .rounds import Figures

__all__ = ["PRECEDENCE", "Judgement", "judge", "to_error"]

SHOWN = ("output_throughput", "tpot_ms", "accept_length")
"""What is told of a case that is not gated."""


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
    orphans: Sequence[Baseline] = (),
    run: str = "RUN",
) -> Judgement:
    """Judge a case by its launches so far, in the order in which they were made; to be asked after each
    launch.

    `dead_end`: the documented failure that applies here, if any; only one of kind `slower` changes what is
    asked.
    `partner_launches`, `partner_baseline`: of the case of `compare_to` under the same workload.
    `speculative`: whether an accept length is expected; None where the engine does not say.
    `orphans`: entries of the baseline file that no case of the suite claims, in case one was renamed.
    `run`: the run folder, for the commands in the text. Raises ValueError without launches.
    """
    if not launches:
        raise ValueError(f"{case.id}: nothing to judge, it has no launches")
    slower = dead_end if dead_end is not None and dead_end.kind == "slower" else None
    asked = _asked(case, slower)
    found = figures(launches, asked)
    docket = Docket(case=case, launches=len(launches), run=run)
    _check(case, launches, asked, found, speculative, docket)
    if docket.findings:
        return docket.close()
    if len(launches) < case.launches.min:
        docket.wants_more = True
        docket.find(Verdict.INCONCLUSIVE, f"{tell.count(len(launches))} of at least {case.launches.min}")
        return docket.close()
    question = Question(
        case=case,
        host=host,
        engine=engine,
        launches=launches,
        metrics=found.metrics,
        baseline=baseline,
        partner=Partner.of(case, host, partner_launches, partner_baseline),
    )
    if slower is not None:
        return _judge_slower(question, slower, docket)
    if case.config.gate.hypothesis:
        return _judge_hypothesis(question, docket)
    if updating:
        return _judge_recording(question, docket)
    hold_baseline(question, docket, orphans)
    if question.partner is not None:
        _judge_partner(question, docket)
    fail_on = {Verdict.IMPROVED: improved_fails, Verdict.INCONCLUSIVE: inconclusive_fails}
    return docket.close(fail_on=frozenset(verdict for verdict, fails in fail_on.items() if fails))


def _asked(case: Case, slower: DeadEnd | None) -> tuple[str, ...]:
    """The metrics that matter here, the one that decides first."""
    gated = case.config.gate.metrics or SHOWN
    return tuple(dict.fromkeys((slower.expect.metric, *gated))) if slower and slower.expect else gated


def _check(
    case: Case,
    launches: Sequence[Launch],
    asked: tuple[str, ...],
    found: Figures,
    speculative: bool | None,
    docket: Docket,
) -> None:
    """Whether the figures may be used at all."""
    for problem in found.problems:
        docket.find(Verdict.INVALID, problem)
    for metric in found.absent:
        if metric == asked[0]:
            docket.find(Verdict.INVALID, f"no round yields {metric}, the metric that decides")
        elif case.config.gate.explicit and metric in case.config.gate.metrics:
            docket.find(Verdict.INVALID, f"no round yields {metric}, which the suite gates")
        elif metric == "accept_length" and speculative:
            docket.find(
                Verdict.INVALID, "no round yields accept_length, although the config decodes speculatively"
            )
    # Whether it is gated or not: a draft that is never accepted only costs.
    lengths = [value for rounds in values(launches, "accept_length") for value in rounds if value is not None]
    if lengths and all(value == 1 for value in lengths):
        docket.warnings.append("accept length is exactly 1.00: no draft token was ever accepted")


# --- cases that no baseline decides -----------------------------------------------------------------


def _judge_slower(question: Question, dead_end: DeadEnd, docket: Docket) -> Judgement:
    """Whether a case that is documented as slower than its partner still is. In doubt the document stands."""
    metric = question.primary
    if dead_end.expect is not None:
        docket.comparisons.append(_expected(dead_end.expect, question.metrics[metric]))
    held = hold_partner(question, metric, question.dead_end_plan, docket)
    if held is None:
        return docket.close()
    line = held.comparison.text
    if held.decision == "undecided" and not held.final:
        docket.wants_more = True
        docket.find(Verdict.INCONCLUSIVE, line)
        return docket.close()
    if held.decision == "undecided":
        docket.warnings.append(f"neither proven nor excluded: {line}")
    stays = held.decision == "worse" or (held.decision == "undecided" and held.speed < 1)
    docket.find(Verdict.SLOWER if stays else Verdict.OK, line)
    return docket.close()


def _expected(expect: Expect, launches: Launches) -> Comparison:
    """The case against the figure that documents it: `worse` is slower than was ever known."""
    value = typical(launches)
    ratio = value / expect.value
    speed = ratio ** QUANTITIES[expect.metric].direction
    decision = "ok" if abs(speed - 1) <= expect.tolerance else "worse" if speed < 1 else "better"
    text = (
        f"{expect.metric} {shown(expect.metric, value)}, documented as {shown(expect.metric, expect.value)} "
        f"within {tell.percent(expect.tolerance)}"
    )
    return Comparison(
        metric=expect.metric,
        against="expect",
        reference=expect.value,
        value=value,
        ratio=ratio,
        decision=decision,
        text=text,
    )


def _judge_hypothesis(question: Question, docket: Docket) -> Judgement:
    """Shown beside its partner, and never judged."""
    docket.find(Verdict.MEASURED, tell.figures(question.metrics))
    partner = question.partner
    for metric in question.metrics:
        if partner is not None and partner.reference(metric) is not None:
            hold_partner(question, metric, question.further_plan, docket)
            _note_latest(docket)
    if partner is not None and not docket.notes:
        docket.warnings.append(
            f"nothing to show beside it: {tell.no_partner(question.case, partner.why_not)}"
        )
    return docket.close()


def _judge_recording(question: Question, docket: Docket) -> Judgement:
    """Nothing is decided while a baseline is recorded; what it replaces is told."""
    docket.wants_more = docket.launches < question.case.launches.baseline
    docket.find(Verdict.RECORDED, f"{tell.figures(question.metrics)}; {tell.count(docket.launches)}")
    old = question.baseline
    for metric in question.metrics:
        if old is not None and metric in old.launches:
            docket.compared(
                question.hold(metric, old.launches[metric], old.label, question.further_plan, point=True)
            )
            _note_latest(docket)
    return docket.close()


def _note_latest(docket: Docket) -> None:
    """The latest comparison decides nothing, it is only shown."""
    latest = docket.comparisons[-1]
    docket.comparisons[-1] = replace(latest, decision="note")
    docket.notes.append(latest.text)


def _judge_partner(question: Question, docket: Docket) -> None:
    held = hold_partner(question, question.primary, question.further_plan, docket)
    if held is None:
        return
    if held.decision == "worse":
        docket.find(Verdict.SLOWER, tell.slower(held.comparison.text, question.case))
    elif held.suspect:
        docket.confirm(held.comparison.text)
    else:
        docket.notes.append(held.comparison.text)
