"""One run: its host, engines, baselines and pool. Plans each case, measures it, has it judged and leaves its record.

Knows nothing of pytest: `plugin` and `suite_tests` turn plans into marks and errors into outcomes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from .errors import CaseError, Crashed, EngineMissing, GpuserveError, InputError
from .record import Record, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .engines.base import Engine, Site
    from .engines.simulated.simulation import Simulation
    from .failures.known import Registry
    from .gate.baseline import Baselines
    from .gate.verdict import Judgement
    from .host.site import SiteFile
    from .load.api import Target
    from .model import Case, Config, DeadEnd, EngineBuild, Host
    from .record import Failure, Launch
    from .report.store import RunFolder
    from .serving.lease import Leases
    from .serving.pool import ConfigRun, Order, Pool, Startable


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line and the ini file ask of a run."""

    rootdir: Path
    baselines: Path
    known: tuple[Path, ...] = ()
    """Folders of the user's own dead ends."""
    simulation: Simulation | None = None
    update_baselines: bool = False
    run_dangerous: bool = False
    engine_python: dict[str, str] = field(default_factory=dict)
    """Interpreter by engine name, from the command line."""
    attach: str | None = None
    """URL of a running server that the cases of one config are measured on."""
    launches: int | None = None
    """Launches per config, instead of what the suite says."""
    improved_fails: bool = False
    inconclusive_fails: bool = False
    today: date = field(default_factory=date.today)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is known of a case before anything is started."""

    skip: str = ""
    """What the host or the engine lacks; empty: it runs."""
    problem: str = ""
    """Why it cannot even be planned, such as an interpreter without the engine: the case fails with it."""
    dead_end: DeadEnd | None = None
    review_due: str = ""
    """The warning of a dead end past its review date."""

    @property
    def early(self) -> bool:
        """Decided before weights are loaded, so it is worth running first."""
        from .model import BEFORE_WEIGHTS

        end = self.dead_end
        if end is None or not end.run:
            return False
        return end.kind == "missing" or (bool(end.phases) and end.phases <= BEFORE_WEIGHTS)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a case ended. `error` is None when nothing is to be raised."""

    record: Record
    error: CaseError | None = None
    note: str = ""
    """What a dead end has to say beyond its error: how it changed, or what to do now that it works."""


class Session:
    """See the module. One a process; under xdist one a worker."""

    def __init__(self, options: Options, folder: RunFolder, say: Callable[[str], None]) -> None:
        self.options = options
        self.folder = folder
        self._say = say
        self._plans: dict[tuple[str, str], Plan] = {}
        self._builds: dict[str, EngineBuild | EngineMissing] = {}
        self._pool: Pool | None = None
        self._attached: str | None = None
        """Id of the config that a running server stands for."""

    # --- what the run is about ---

    @cached_property
    def host(self) -> Host:
        """The simulated host, or this machine; probed when first asked for."""
        if self.options.simulation is not None:
            return self.options.simulation.host()
        from .host.probe import probe

        return probe()

    @property
    def probed(self) -> bool:
        """Whether anything has made us look at the host."""
        return "host" in self.__dict__

    @cached_property
    def registry(self) -> Registry:
        from .failures.known import Registry

        return Registry.load(self.options.known)

    @cached_property
    def site_file(self) -> SiteFile:
        from .engines.registry import names
        from .host.site import load_site

        return load_site(self.options.rootdir, engines=names())

    def engine(self, config: Config) -> Engine:
        if self.options.simulation is not None:
            return self.options.simulation.engine(config.engine)
        from .engines.registry import find

        return find(config.engine)

    def site(self, config: Config) -> Site:
        """Where the config's engine lives: command line before suite before `gpuserve.local.yaml`."""
        if self.options.simulation is not None:
            return self.options.simulation.site(config)
        from .engines.base import Site

        local = self.site_file.engine(config.engine)
        return Site(
            python=self.options.engine_python.get(config.engine)
            or config.python
            or local.python
            or sys.executable,
            build=local.build,
            env=local.env,
            models=self.site_file.models,
            options=local.options,
            url=self.options.attach,
        )

    def attached(self, config: Config) -> Target | None:
        """The running server that the config is measured on, or None where one is started.

        Raises InputError when nobody says where it runs, and when one server is to stand for two configs.
        """
        from .engines.base import Attaches
        from .engines.openai import target_of

        engine, site = self.engine(config), self.site(config)
        if site.url is not None:
            first = self._attached = self._attached or config.id
            if first != config.id:
                raise InputError(
                    f"--gpuserve-attach: {first} and {config.id} are selected, and one server cannot be both; "
                    f"choose with -k or a test's id"
                )
        if isinstance(engine, Attaches):
            return engine.target(config, site)
        if site.url is None:
            return None
        key = config.args.get("api-key")
        headers = {"Authorization": f"Bearer {key}"} if isinstance(key, str) else {}
        return msgspec.structs.replace(target_of(site.url), headers=headers)

    def build(self, config: Config) -> EngineBuild:
        """The installed engine. Raises EngineMissing."""
        from .serving import attached

        site, running = self.site(config), self.attached(config)
        where = running.url if running else site.python
        key = f"{config.engine} {where} {sorted(site.env.items())}"
        if key not in self._builds:
            engine = self.engine(config)
            try:
                self._builds[key] = attached.build(engine, running) if running else engine.build(site)
            except EngineMissing as error:
                self._builds[key] = error
        found = self._builds[key]
        if isinstance(found, EngineMissing):
            raise found
        return found

    # --- before a start ---

    def plan(self, case: Case) -> Plan:
        """What is known of a case before anything is started: a lack of the host, a documented dead end."""
        key = (case.suite, case.id)
        if key not in self._plans:
            self._plans[key] = self._plan(case)
        return self._plans[key]

    def _plan(self, case: Case) -> Plan:
        from .failures import dead_end as texts
        from .host.unmet import unmet

        config = case.config
        lacks = unmet(config.requires, self.host, None)
        if lacks:
            return Plan(skip="; ".join(lacks))
        try:
            build = self.build(config)
        except EngineMissing as error:
            simulation = self.options.simulation
            return (
                Plan(skip=simulation.unknown(case) or str(error)) if simulation else Plan(problem=str(error))
            )
        lacks = unmet(config.requires, self.host, build)
        if not lacks and self.options.simulation is not None:
            unknown = self.options.simulation.unknown(case)
            lacks = [unknown] if unknown else []
        if lacks:
            return Plan(skip="; ".join(lacks))
        dead_end = config.dead_end or self.registry.resolve(config, build, self.host)
        if dead_end and dead_end.kind in STARTING and self.attached(config):
            dead_end = None  # nothing is started, and whatever it is about, it runs
        due = texts.review_due(dead_end, self.options.today) if dead_end else None
        return Plan(dead_end=dead_end, review_due=due or "")

    # --- a case ---

    def run(self, case: Case, selected: Sequence[Case], nodeid: str) -> Result:
        """Measure and judge one case; `selected` are the cases of its config in this run, itself among them."""
        started = datetime.now(UTC)
        plan = self.plan(case)
        if plan.problem:
            return self._finish(case, plan, nodeid, started, error=EngineProblem(plan.problem))
        measured = self._measure(case, selected, plan)
        launches = measured.launches.get(case.workload.name, [])
        error = measured.errors.get(case.workload.name)
        if error is not None:
            return self._finish(case, plan, nodeid, started, measured=measured, error=error)
        if not launches:
            error = Crashed("it was not measured: its server had ended under another workload")
            return self._finish(case, plan, nodeid, started, measured=measured, error=error)
        judgement = self._judge(case, launches, plan)
        return self._finish(case, plan, nodeid, started, measured=measured, judgement=judgement)

    def _measure(self, case: Case, selected: Sequence[Case], plan: Plan) -> ConfigRun:
        config = case.config
        return self.pool.measure(
            case.suite, self._order(case, selected, plan), self.engine(config), self.site(config)
        )

    def _order(self, case: Case, selected: Sequence[Case], plan: Plan) -> Order:
        """How many launches a config gets. Only what is gated can be undecided."""
        from .serving.pool import Order

        low, high = case.launches.min, case.launches.max
        if self.options.update_baselines:
            low = high = case.launches.baseline
        if self.options.launches is not None:
            low = high = self.options.launches
        if self.attached(config := case.config) is not None:
            low = high = 1  # another look at the same process is no other launch
        if plan.dead_end is not None and plan.dead_end.kind != "slower":
            low = high = 1  # one start shows whether it is still a dead end

        def undecided(run: ConfigRun) -> str:
            for one in selected:
                launches = run.launches.get(one.workload.name)
                if launches and one.workload.name not in run.errors:
                    judgement = self._judge(one, launches, self.plan(one))
                    if judgement.undecided:
                        return f"{one.id}: {judgement.text.splitlines()[0]}"
            return ""

        return Order(
            config=config,
            workloads=[one.workload for one in selected],
            launches_min=low,
            launches_max=high,
            undecided=undecided,
            dead_end=plan.dead_end,
        )

    def _judge(self, case: Case, launches: list[Launch], plan: Plan) -> Judgement:
        from .gate.verdict import judge

        baselines = self.baselines
        partner_launches: list[Launch] | None = None
        partner_baseline = None
        if case.config.compare_to:
            partner = msgspec.structs.replace(
                case, config=msgspec.structs.replace(case.config, id=case.config.compare_to)
            )
            measured = self._pool.measured(case.suite, partner.config.id) if self._pool else None
            if measured and case.workload.name not in measured.errors:
                partner_launches = measured.launches.get(case.workload.name)
            partner_baseline = baselines.find(self.host, partner)
        return judge(
            case,
            launches,
            host=self.host,
            engine=self.build(case.config),
            baseline=baselines.find(self.host, case),
            partner_launches=partner_launches,
            partner_baseline=partner_baseline,
            dead_end=plan.dead_end,
            updating=self.options.update_baselines,
            improved_fails=self.options.improved_fails,
            inconclusive_fails=self.options.inconclusive_fails,
            speculative=self.engine(case.config).speculative(case.config),
            run=str(self.folder.path),
        )

    def _finish(
        self,
        case: Case,
        plan: Plan,
        nodeid: str,
        started: datetime,
        *,
        measured: ConfigRun | None = None,
        error: CaseError | None = None,
        judgement: Judgement | None = None,
    ) -> Result:
        """Hold what happened against what is documented, and write the record."""
        from .failures import dead_end as texts
        from .gate.verdict import to_error

        if judgement is not None:
            error = to_error(judgement)
        verdict = error.verdict if error else judgement.verdict if judgement else Verdict.ERROR
        text = str(error) if error else judgement.text if judgement else ""
        outcome = "failed" if error else "passed"
        warnings = list(judgement.warnings) if judgement else []
        note = ""
        end = plan.dead_end
        if end is not None:
            if error is None or (end.kind != "slower" and error.verdict in WORKS):
                error, outcome, verdict = None, "failed", Verdict.DEAD_END_OPEN
                note = text = texts.open_(end, case=case, nodeid=nodeid, build=self.build(case.config))
            else:
                fit = texts.judge_failure(end, error)
                if fit.fits:
                    outcome, verdict = "xfailed", Verdict.DEAD_END
                    text = f"{fit.why}" if fit.why else text
                else:
                    verdict = Verdict.DEAD_END_CHANGED
                    note = texts.changed(end, error, fit)
                    text = f"{text}\n{note}"
        if plan.review_due:
            warnings.append(plan.review_due)
        record = self._record(
            case, plan, nodeid, started, measured, verdict=verdict, outcome=outcome, text=text
        )
        failure: Failure | None = error.failure if error else None
        record = msgspec.structs.replace(
            record,
            failure=failure,
            comparisons=list(judgement.comparisons if judgement else error.comparisons if error else ()),
            warnings=[*warnings, *record.warnings],
        )
        self.folder.write(record)
        return Result(record=record, error=error, note=note)

    def note(self, case: Case, nodeid: str, *, verdict: Verdict, outcome: str, reason: str) -> Record:
        """The record of a case that is not run: what the host lacks, or a dead end that is never started."""
        record = self._record(
            case,
            self.plan(case),
            nodeid,
            datetime.now(UTC),
            None,
            verdict=verdict,
            outcome=outcome,
            text=reason,
        )
        record = msgspec.structs.replace(record, reason=record.reason or reason)
        self.folder.write(record)
        return record

    def _record(
        self,
        case: Case,
        plan: Plan,
        nodeid: str,
        started: datetime,
        measured: ConfigRun | None,
        *,
        verdict: Verdict,
        outcome: str,
        text: str,
    ) -> Record:
        config, end = case.config, plan.dead_end
        try:
            build = None if plan.skip else self.build(config)
        except EngineMissing:
            build = None
        launches = measured.launches.get(case.workload.name, []) if measured else []
        return Record(
            suite=case.suite,
            case=case.id,
            config=config.id,
            workload=case.workload.name,
            nodeid=nodeid,
            place=config.place,
            host=self.host,
            engine=build,
            simulated=self.host.simulated,
            verdict=verdict,
            outcome=outcome,
            text=text,
            reason=end.reason if end else "",
            started=started.isoformat(timespec="seconds"),
            duration_s=(datetime.now(UTC) - started).total_seconds(),
            launches=list(launches),
            stopped_because=measured.stopped_because if measured else "",
            dead_end_entry=end.entry if end else None,
            dead_end_kind=end.kind if end else None,
            way_out=end.way_out if end else None,
            compare_to=config.compare_to,
            hypothesis=config.gate.hypothesis,
            review_due=bool(plan.review_due),
            model=config.model.id + (f"@{config.model.revision}" if config.model.revision else ""),
            workload_spec=msgspec.to_builtins(case.workload),
            args=dict(config.args),
            warnings=[w for launch in launches for w in launch.warnings],
        )

    # --- parts ---

    @cached_property
    def baselines(self) -> Baselines:
        from .gate.baseline import Baselines

        return Baselines(self.options.baselines)

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            from .serving.pool import Pool

            self._pool = Pool(self._server, folder=self.options.rootdir, say=self._say)
        return self._pool

    @cached_property
    def _leases(self) -> Leases:
        """GPUs of this host, shared with whoever else runs here; slots where there are none."""
        from .serving.lease import Leases

        if self.host.simulated:
            return Leases(self.folder.path / "leases", slots=self.host.count)
        return Leases(self.site_file.leases, slots=None if self.host.count else 1)

    def _server(self, suite: str, config: Config, index: int) -> Startable:
        from .serving.attached import AttachedServer
        from .serving.server import Server

        log = self.folder.logs / f"{suite}--{config.id}-{index + 1}.log"
        if running := self.attached(config):
            return AttachedServer(self.engine(config), config, running, log=log)
        return Server(
            self.engine(config),
            config,
            self.site(config),
            log=log,
            leases=self._leases,
            what=config.id,
            count=None if self.host.count else 1,  # without GPUs one server at a time has the machine
            say=self._say,
        )

    def take_stop_error(self, case: Case) -> CaseError | None:
        """The failure to stop the case's server, once."""
        measured = self._pool.measured(case.suite, case.config.id) if self._pool else None
        if measured is None or measured.stop_error is None:
            return None
        error, measured.stop_error = measured.stop_error, None
        return error

    def accept(self, records: Sequence[Record]) -> list[str]:
        """Store what a run recorded as baselines; only the process that the user started may. Lines to show."""
        recorded = [record for record in records if record.verdict is Verdict.RECORDED]
        return self.baselines.accept(recorded) if recorded else []

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


class EngineProblem(CaseError):
    """The engine that a case needs is not there; the case fails, since nothing says that it may be missing."""

    verdict = Verdict.START_FAILED


STARTING = frozenset({"start", "missing", "inert"})
"""Kinds of dead ends that show in a start or its log."""
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
"""Verdicts on numbers: a dead end that was said not to start, serve or be taken works when it gets as far as these."""

__all__ = ["EngineProblem", "GpuserveError", "Options", "Plan", "Result", "Session"]
