"""What is known of a case before anything is started: a lack of the host, a documented dead end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BaselineError, CaseError, EngineMissing, NotComparable
from ..record import Verdict

if TYPE_CHECKING:
    from ..model import Case, DeadEnd
    from .here import Here
    from .options import Options

STARTING = frozenset({"start", "missing", "inert"})
"""Kinds of dead ends that show in a start or its log."""


class EngineProblem(CaseError):
    """The engine that a case needs is not there; the case fails, since nothing says that it may be missing."""

    verdict = Verdict.START_FAILED


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is known of a case before anything is started."""

    skip: str = ""
    """What the host or the engine lacks; empty: it runs."""
    problem: Exception | None = None
    """Why it is not worth a start, such as an interpreter without the engine: the case fails with it."""
    dead_end: DeadEnd | None = None
    review_due: str = ""
    """The warning of a dead end past its review date."""

    @property
    def early(self) -> bool:
        """Decided before weights are loaded, so it is worth running first."""
        from ..model import BEFORE_WEIGHTS

        end = self.dead_end
        if end is None or not end.run:
            return False
        return end.kind == "missing" or (bool(end.phases) and end.phases <= BEFORE_WEIGHTS)

    def never(self, options: Options) -> bool:
        """Documented as harmful to the host, so that it is not started unless somebody insists."""
        return self.dead_end is not None and not self.dead_end.run and not options.run_dangerous


def planned(here: Here, case: Case) -> Plan:
    """Look at the host, then at the engine, then at the registry; the first lack decides."""
    from ..failures import dead_end as texts
    from ..host.unmet import unmet

    config = case.config
    lacks = unmet(config.requires, here.host, None)
    if lacks:
        return Plan(skip="; ".join(lacks))
    try:
        build = here.build(config)
    except EngineMissing as error:
        if (simulation := here.options.simulation) is not None:
            return Plan(skip=simulation.unknown(case) or str(error))
        return Plan(problem=EngineProblem(str(error)))
    lacks = unmet(config.requires, here.host, build)
    if not lacks and here.options.simulation is not None:
        unknown = here.options.simulation.unknown(case)
        lacks = [unknown] if unknown else []
    if lacks:
        return Plan(skip="; ".join(lacks))
    dead_end = config.dead_end or here.registry.resolve(config, build, here.host)
    if dead_end and dead_end.kind in STARTING and here.attached(config):
        dead_end = None  # nothing is started, and whatever it is about, it runs
    if dead_end is None or dead_end.kind == "slower":  # others are decided by no figures
        try:
            here.baselines.find(here.host, case)
        except BaselineError as error:
            return Plan(problem=NotComparable(str(error)))
    due = texts.review_due(dead_end, here.options.today) if dead_end else None
    return Plan(dead_end=dead_end, review_due=due or "")
