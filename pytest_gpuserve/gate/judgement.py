"""What the gate says of a case, and how that comes out of everything that was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from .. import errors
from ..record import Comparison, Verdict
from . import tell

if TYPE_CHECKING:
    from ..model import Case
    from .compare import Held

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
"""Of several findings the first one here is the verdict; the table in `verdict` says what each means."""

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
"""What a verdict that fails is raised as."""

PASSES = frozenset({Verdict.MEASURED, Verdict.RECORDED, Verdict.IMPROVED, Verdict.INCONCLUSIVE, Verdict.OK})
"""Every other verdict fails; improved and inconclusive do when the user says so."""


class Judgement(Struct, frozen=True, kw_only=True):
    """What the gate says of a case."""

    verdict: Verdict
    text: str
    """What happened and what to do, one or a few lines; the first one is a summary."""
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


@dataclass
class Docket:
    """What has been found of a case so far, in the order in which it was looked at."""

    case: Case
    launches: int
    run: str
    """Run folder, for commands."""
    findings: list[tuple[Verdict, str]] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Worth knowing, decides nothing."""
    warnings: list[str] = field(default_factory=list)
    wants_more: bool = False

    def find(self, verdict: Verdict, text: str) -> None:
        self.findings.append((verdict, text))

    def confirm(self, text: str) -> None:
        """What decides nothing else looks worse: worth another launch, and no failure yet."""
        self.wants_more = True
        self.find(Verdict.INCONCLUSIVE, text)

    def compared(self, held: Held) -> None:
        self.comparisons.append(held.comparison)

    @property
    def most(self) -> int:
        """Launches that the suite allows."""
        return max(self.case.launches.max, self.case.launches.min)

    def close(self, *, fail_on: frozenset[Verdict] = frozenset()) -> Judgement:
        """The judgement; `fail_on` are verdicts that pass unless the user says otherwise."""
        ranked = sorted(self.findings, key=lambda finding: PRECEDENCE.index(finding[0]))
        verdict = ranked[0][0]
        fails = verdict not in PASSES or verdict in fail_on
        wants_more = self.wants_more and verdict in {Verdict.INCONCLUSIVE, Verdict.RECORDED}
        told = [text for _, text in ranked]
        if verdict is Verdict.INCONCLUSIVE:
            told[0] += tell.inconclusive(self.launches, self.most)
        if verdict in {Verdict.INCONCLUSIVE, Verdict.IMPROVED} and not fails:
            self.warnings.insert(0, told[0])
        return Judgement(
            verdict=verdict,
            text="\n".join(told + self.notes),
            comparisons=tuple(self.comparisons),
            undecided=wants_more,
            warnings=tuple(self.warnings),
            fails=fails,
            stopped_because="" if wants_more else tell.stopped(verdict, self.launches),
        )
