"""Start configs cheaply, to see whether what is documented of their starts still holds. Nothing is measured.

A dead end of kind start, missing or inert shows in a start or its log, and hardly any needs the model's real
weights for it. Those that serve, answer nonsense or are slow do, and are told as not checked.
"""

from __future__ import annotations

import difflib
import fnmatch
import time
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..engines.base import Rehearses
from ..errors import CaseError, InputError, StopFailed
from ..failures import dead_end as texts
from ..model import PHASES, DeadEndKind
from ..record import Failure
from .plan import STARTING, EngineProblem, Plan, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ..check.finding import Topic
    from ..check.preflight import Surroundings
    from ..engines.base import Rehearsal
    from ..model import Case, Config, DeadEnd, Suite
    from ..serving.lease import Leases
    from .here import Here

Outcome = Literal["confirmed", "changed", "open", "starts", "failed", "skipped", "not checked"]
"""confirmed, changed, open: a dead end that is as documented, fails otherwise, works. starts, failed: a config
without one. skipped: this host or engine lacks something. not checked: a cheap start would not show it."""
BAD: frozenset[Outcome] = frozenset({"changed", "open", "failed"})
WRITTEN: frozenset[Topic] = frozenset({"suite", "flag", "variable"})
"""What is found wrong about these is the suite's fault; about others it is this host that lacks something."""
BY_THE_READY_LINE = frozenset(PHASES[: PHASES.index("serving")])


class Start(Struct, frozen=True, kw_only=True):
    """What became of one config."""

    suite: str
    config: str
    place: str
    outcome: Outcome
    text: str
    kind: DeadEndKind | None = None
    """Of the dead end that it is here."""
    entry: str | None = None
    """Of the registry, where the dead end comes from it."""
    failure: Failure | None = None
    changes: tuple[str, ...] = ()
    """How it was made cheap; empty when nothing was started."""
    seconds: float | None = None
    """From the start to its end, without the stop; the simulated host is that much faster than another."""
    log: str | None = None
    left: str = ""
    """What stopping it left behind."""

    @property
    def bad(self) -> bool:
        return self.outcome in BAD or bool(self.left)


def chosen(suites: Iterable[Suite], patterns: Sequence[str]) -> list[tuple[Suite, Config]]:
    """The configs whose id, or `suite::id`, fits one of the patterns; all without any.

    Raises InputError, with the near word, for a pattern that none fits.
    """
    there = [(suite, config) for suite in suites for config in suite.configs]
    names = [(config.id, f"{suite.name}::{config.id}") for suite, config in there]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for pair in names for name in pair):
            near = difflib.get_close_matches(pattern, [name for pair in names for name in pair], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"--config {pattern!r}: no suite named has such a config{hint}")
    return [
        one
        for one, pair in zip(there, names, strict=True)
        if not patterns or any(fnmatch.fnmatchcase(name, p) for name in pair for p in patterns)
    ]


class Rehearsals:
    """Starts configs one after the other; logs are written to `folder`, which the first start makes."""

    def __init__(self, here: Here, folder: Callable[[], Path], say: Callable[[str], None]) -> None:
        self._here = here
        self._folder = folder
        self._say = say
        self._leases: Leases | None = None
        self._surroundings: Surroundings | None = None

    def all(self, configs: Sequence[tuple[Suite, Config]], *, named: bool) -> list[Start]:
        """Each config that may be a dead end, and where they were `named` by somebody the ordinary ones too."""
        found = []
        for suite, config in configs:
            may_be = config.dead_end is not None or bool(self._here.registry.possible(config))
            if named or may_be:
                found.append(self.one(suite, config, named=named))
        return found

    def one(self, suite: Suite, config: Config, *, named: bool) -> Start:
        """Plan a config, start it if that shows something, and hold the end against what is documented."""
        plan = self._plan(suite, config)
        end = plan.dead_end
        start = Start(
            suite=suite.name,
            config=config.id,
            place=str(config.place),
            outcome="skipped",
            text=plan.skip or (str(plan.problem) if isinstance(plan.problem, EngineProblem) else ""),
            kind=end.kind if end else None,
            entry=end.entry if end else None,
        )
        if start.text:
            return start
        if why := _pointless(end, named):
            return replace(start, outcome="not checked", text=why)
        engine, version = self._here.engine(config), self._here.build(config).version
        if not isinstance(engine, Rehearses) or self._here.attached(config) is not None:
            text = f"nothing says how engine {config.engine} starts without reading weights"
            return replace(start, outcome="not checked", text=text)
        rehearsal = engine.rehearsal(
            config, self._here.site(config), version, whole=end is not None and _about_memory(end)
        )
        case = replace(_cases(suite, config)[0], config=rehearsal.config)
        if (refused := self._refused(start, case, end)) is not None:
            return refused
        return self._try(start, suite, rehearsal, end)

    def _plan(self, suite: Suite, config: Config) -> Plan:
        """Of the first of its cases that can run here: no load is asked for, so it matters little which."""
        plans = [planned(self._here, case) for case in _cases(suite, config)]
        return next((plan for plan in plans if not plan.skip), plans[0])

    def _refused(self, start: Start, case: Case, end: DeadEnd | None) -> Start | None:
        """What is known to hinder the start besides what is documented: this host lacks it, or it is written wrong."""
        if self._here.host.simulated:
            return None
        from ..check.preflight import check_case

        self._surroundings = self._surroundings or self._here.surroundings()
        errors = [one for one in check_case(case, self._surroundings, end) if one.severity == "error"]
        if not errors:
            return None
        wrong = any(one.topic in WRITTEN for one in errors)
        text = "; ".join(str(one) for one in errors)
        return replace(start, outcome="failed" if wrong else "skipped", text=f"not started: {text}")

    def _try(self, start: Start, suite: Suite, rehearsal: Rehearsal, end: DeadEnd | None) -> Start:
        from ..serving.pool import check_active
        from ..serving.server import Server

        config, here = rehearsal.config, self._here
        site, folder = here.site(config), self._folder()
        if self._leases is None:
            self._leases = here.leases(folder / "leases")
        server = Server(
            here.engine(config),
            config,
            site,
            log=folder / f"{suite.name}--{config.id}.log",
            leases=self._leases,
            what=config.id,
            count=None if here.host.count else 1,
            say=self._say,
        )
        error: CaseError | None = None
        left, began = "", time.monotonic()
        try:
            server.start()
            server.wait_ready()
            check_active(config, end, server.log)
        except InputError as problem:  # what the engine cannot even be asked
            return replace(start, text=str(problem))
        except CaseError as problem:
            error = problem
        finally:
            seconds = time.monotonic() - began
            try:
                server.stop()
            except StopFailed as problem:
                left = str(problem)
        return replace(
            _judged(start, rehearsal, end, error),
            changes=rehearsal.changes,
            failure=error.failure if error else None,
            seconds=round(seconds, 1),
            log=str(server.log),
            left=left,
        )


def _cases(suite: Suite, config: Config) -> list[Case]:
    return [case for case in suite.cases() if case.config.id == config.id]


def _pointless(end: DeadEnd | None, named: bool) -> str:
    """Why a start would show nothing of what is documented; empty where it would."""
    if end is None:
        return "" if named else "no dead end on this host and with this engine"
    if not end.run:
        return f"it is never started: {end.reason}"
    if end.kind not in STARTING:
        return f"a dead end of kind {end.kind} shows under load and with the real weights"
    if end.phases and not end.phases & BY_THE_READY_LINE:
        return f"it shows in phase {' or '.join(sorted(end.phases))}, after the start"
    return ""


def _about_memory(end: DeadEnd) -> bool:
    """Whether it fails for want of memory, which fewer layers leave free."""
    from ..failures.classes import classes

    known = classes()
    return any(
        known[name].group == "memory" for match in end.match for name in match.failure_class if name in known
    )


def _judged(start: Start, rehearsal: Rehearsal, end: DeadEnd | None, error: CaseError | None) -> Start:
    if error is not None and error.failure is not None and error.failure.environment:
        return replace(start, outcome="failed", text=f"it says nothing of the config: {error}")
    if end is None:
        return replace(
            start, outcome="failed" if error else "starts", text=str(error) if error else "it starts"
        )
    if error is None:
        took = "it starts"
        if end.kind == "inert":
            proof = rehearsal.config.active_if is not None
            took = (
                "its path is taken" if proof else "it starts, and its log does not say that the path is off"
            )
        text = (
            f"{took}. It was documented at {end.place} as: {end.reason}. Before you end it there, see the "
            f"real weights serve: pytest '{start.place.rpartition(':')[0]}' -k {start.config}"
        )
        return replace(start, outcome="open", text=text)
    fit = texts.judge_failure(end, error)
    if fit.fits:
        return replace(start, outcome="confirmed", text=fit.why)
    return replace(start, outcome="changed", text=texts.changed(end, error, fit))
