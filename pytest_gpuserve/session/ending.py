"""How a case ends: what happened, held against what is documented, becomes its record and what is to be raised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ..record import Record, Verdict

if TYPE_CHECKING:
    from ..errors import CaseError
    from ..gate.verdict import Judgement
    from ..model import Case
    from ..serving.pool import ConfigRun
    from .here import Here
    from .plan import Plan

WORKS = frozenset(
    {
        Verdict.NO_BASELINE,
        Verdict.SLOWER,
        Verdict.REGRESSED,
        Verdict.NO_PARTNER,
        Verdict.NOT_COMPARABLE,
        Verdict.IMPROVED,
        Verdict.INCONCLUSIVE,
    }
)
"""Verdicts on numbers: a dead end that was said not to start, serve or be taken works when it gets as far as
these."""
UNCOMPARED = frozenset({Verdict.NO_PARTNER, Verdict.NOT_COMPARABLE, Verdict.INVALID})
"""Verdicts that leave open whether a case is slower: nothing is known to have changed."""


@dataclass(frozen=True, kw_only=True)
class Happened:
    """What is known of a case when it is over. `error` and `judgement` exclude each other."""

    case: Case
    plan: Plan
    nodeid: str
    started: datetime
    measured: ConfigRun | None = None
    error: CaseError | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a case ended. `error` is None when nothing is to be raised."""

    record: Record
    error: CaseError | None = None
    note: str = ""
    """What a dead end has to say beyond its error: how it changed, or what to do now that it works."""


@dataclass(frozen=True, kw_only=True)
class _Ending:
    verdict: Verdict
    outcome: str
    text: str
    error: CaseError | None = None
    note: str = ""


def end(here: Here, happened: Happened) -> Result:
    """Turn what happened into a case's result."""
    from ..gate.verdict import to_error

    judgement = happened.judgement
    error = to_error(judgement) if judgement else happened.error
    ending = _Ending(
        verdict=error.verdict if error else judgement.verdict if judgement else Verdict.ERROR,
        outcome="failed" if error else "passed",
        text=str(error) if error else judgement.text if judgement else "",
        error=error,
    )
    if happened.plan.dead_end is not None and ending.verdict is not Verdict.ERROR:
        ending = _documented(here, happened, ending)
    made = record(here, happened, verdict=ending.verdict, outcome=ending.outcome, text=ending.text)
    told = judgement or error
    warnings = [*(judgement.warnings if judgement else ()), happened.plan.review_due, *made.warnings]
    made = msgspec.structs.replace(
        made,
        failure=ending.error.failure if ending.error else None,
        comparisons=list(told.comparisons) if told else [],
        warnings=[warning for warning in warnings if warning],
    )
    return Result(record=made, error=ending.error, note=ending.note)


def _documented(here: Here, happened: Happened, ending: _Ending) -> _Ending:
    """The same end, seen with what is documented: open, as documented, or changed."""
    from ..failures import dead_end as texts

    dead_end, error = happened.plan.dead_end, ending.error
    assert dead_end is not None
    if error is None or (dead_end.kind != "slower" and error.verdict in WORKS):
        build = here.build(happened.case.config)
        note = texts.open_(dead_end, case=happened.case, nodeid=happened.nodeid, build=build)
        return _Ending(verdict=Verdict.DEAD_END_OPEN, outcome="failed", text=note, note=note)
    if dead_end.kind == "slower" and error.verdict in UNCOMPARED:
        return ending
    fit = texts.judge_failure(dead_end, error)
    if fit.fits:
        return replace(ending, verdict=Verdict.DEAD_END, outcome="xfailed", text=fit.why or ending.text)
    note = texts.changed(dead_end, error, fit)
    return replace(ending, verdict=Verdict.DEAD_END_CHANGED, text=f"{ending.text}\n{note}", note=note)


def record(here: Here, happened: Happened, *, verdict: Verdict, outcome: str, text: str) -> Record:
    """The record of a case, without what only a judgement or an error can add."""
    case, plan, measured = happened.case, happened.plan, happened.measured
    config, dead_end = case.config, plan.dead_end
    try:
        build = None if plan.skip else here.build(config)
    except Exception:  # nobody can say which, and why is told elsewhere
        build = None
    launches = measured.launches.get(case.workload.name, []) if measured else []
    return Record(
        suite=case.suite,
        case=case.id,
        config=config.id,
        workload=case.workload.name,
        nodeid=happened.nodeid,
        place=config.place,
        host=here.host,
        engine=build,
        simulated=here.host.simulated,
        verdict=verdict,
        outcome=outcome,
        text=text,
        reason=dead_end.reason if dead_end else plan.skip,
        started=happened.started.isoformat(timespec="milliseconds"),
        duration_s=(datetime.now(UTC) - happened.started).total_seconds(),
        launches=list(launches),
        stopped_because=measured.stopped_because if measured else "",
        dead_end_entry=dead_end.entry if dead_end else None,
        dead_end_kind=dead_end.kind if dead_end else None,
        way_out=dead_end.way_out if dead_end else None,
        compare_to=config.compare_to,
        hypothesis=config.gate.hypothesis,
        gated=list(config.gate.metrics),
        review_due=bool(plan.review_due),
        model=config.model.id + (f"@{config.model.revision}" if config.model.revision else ""),
        workload_spec=msgspec.to_builtins(case.workload),
        args=dict(config.args),
        warnings=[warning for launch in launches for warning in launch.warnings],
    )
