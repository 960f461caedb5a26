"""A run: each case is planned, measured, judged and ended. One a process; under pytest-xdist one a worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import CaseError, Crashed, GpuserveError, RequestError, StartFailed
from ..model import Launches
from ..record import Failure, Verdict
from .ending import Happened, Result, end, record
from .here import Here
from .plan import Plan, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..check.preflight import Surroundings
    from ..gate.verdict import Judgement
    from ..model import Case, Config, Suite
    from ..record import Launch, Record
    from ..report.store import RunFolder
    from ..serving.lease import Leases
    from ..serving.pool import ConfigRun, Order, Pool, Startable
    from .options import Options


class Session:
    """Everything that the cases of a run share."""

    def __init__(
        self,
        options: Options,
        folder: RunFolder,
        say: Callable[[str], None],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """`say` hears each step, `tell` what must not be overheard: whom a server waits for."""
        self.options = options
        self.here = Here(options)
        self.folder = folder
        self._say = say
        self._tell = tell or say
        self.suites: dict[str, Suite] = {}
        """Those that cases come from, by name; whoever collects puts them here."""
        self._plans: dict[tuple[str, str], Plan] = {}
        self._surroundings: Surroundings | None = None
        self._pool: Pool | None = None
        self._leases: Leases | None = None

    def plan(self, case: Case) -> Plan:
        """What is known of a case before anything is started; remembered. Raises RequestError."""
        key = (case.suite, case.id)
        if key not in self._plans:
            try:
                self._plans[key] = planned(self.here, case)
            except RequestError:
                raise
            except Exception as error:  # whatever it is, the other cases of the run can do without it
                self._plans[key] = Plan(problem=error)
        return self._plans[key]

    def run(self, case: Case, selected: Sequence[Case], nodeid: str) -> Result:
        """Measure and judge one case; `selected` are the cases of its config in this run, itself among them."""
        happened = Happened(case=case, plan=self.plan(case), nodeid=nodeid, started=datetime.now(UTC))
        try:
            result = end(self.here, self._happen(happened, selected))
        except (GpuserveError, OSError) as error:
            result = end(self.here, replace(happened, error=self._stopped_by(error, selected)))
        if lost := self._write(result.record):
            told = f"{result.record.verdict}, but {lost}\n{result.record.text}"
            return replace(result, error=CaseError(told.strip()))
        return result

    def _write(self, record: Record) -> str:
        """Store a record; what kept it from being stored, which must not end a run whose other cases can go on."""
        try:
            self.folder.write(record)
        except OSError as error:
            lost = f"its record cannot be written: {error}"
            self._say(f"{record.case}: {lost}")
            return lost
        return ""

    def _stopped_by(self, error: GpuserveError | OSError, selected: Sequence[Case]) -> CaseError:
        """What kept a config from being measured, for all of its cases: none of them tries again."""
        told = str(error) if isinstance(error, GpuserveError) else f"{type(error).__name__}: {error}"
        ended = error if isinstance(error, CaseError) else CaseError(told)
        for one in selected:
            run = self._pool.measured(one.suite, one.config.id) if self._pool else None
            if run is not None and not run.launches.get(one.workload.name):
                run.errors.setdefault(one.workload.name, ended)
        return ended

    def not_run(self, case: Case, nodeid: str, why: str, *, xfailed: bool) -> Result:
        """The end of a case that is not run: what the host lacks, a dead end that is never started, or `why`."""
        plan = self.plan(case)
        never = xfailed and plan.dead_end is not None and not plan.dead_end.run
        return self._untried(
            case,
            nodeid,
            Verdict.DEAD_END if never else Verdict.SKIPPED,
            outcome="xfailed" if xfailed else "skipped",
            text="never started" if never else why,
        )

    def _untried(self, case: Case, nodeid: str, verdict: Verdict, *, outcome: str, text: str) -> Result:
        happened = Happened(case=case, plan=self.plan(case), nodeid=nodeid, started=datetime.now(UTC))
        made = record(self.here, happened, verdict=verdict, outcome=outcome, text=text)
        if verdict is Verdict.SKIPPED:
            made = msgspec.structs.replace(made, reason=text)
        self._write(made)
        return Result(record=made)

    def _happen(self, happened: Happened, selected: Sequence[Case]) -> Happened:
        case, plan = happened.case, happened.plan
        if plan.problem:
            raise plan.problem
        if refused := self._refused(case, plan):
            return replace(happened, error=refused)
        measured = self._measure(case, selected, plan)
        happened = replace(happened, measured=measured)
        if error := measured.errors.get(case.workload.name):
            return replace(happened, error=error)
        launches = measured.launches.get(case.workload.name)
        if not launches:
            unmeasured = Crashed("it was not measured: its server had ended under another workload")
            return replace(happened, error=unmeasured)
        return replace(happened, judgement=self._judge(case, launches, plan))

    def _refused(self, case: Case, plan: Plan) -> StartFailed | None:
        """What is known to hinder the start, so that nobody waits minutes to be told a typing error."""
        here = self.here
        if not self.options.check or here.host.simulated or here.attached(case.config) is not None:
            return None
        from ..check.preflight import check_case

        self._surroundings = self._surroundings or here.surroundings()
        findings = check_case(case, self._surroundings, plan.dead_end)
        errors = [str(one) for one in findings if one.severity == "error"]
        if not errors:
            return None
        told = "\n".join([*errors, "Nothing was started; --gpuserve-no-check starts it all the same."])
        return StartFailed(
            told, failure=Failure(failure_class="config_invalid", phase="args", message=errors[0])
        )

    def _measure(self, case: Case, selected: Sequence[Case], plan: Plan) -> ConfigRun:
        config, here = case.config, self.here
        order = self._order(case, selected, plan)
        return self.pool.measure(case.suite, order, here.engine(config), here.site(config))

    def _launches(self, case: Case, plan: Plan) -> Launches:
        """How often the case's server may be started, all told."""
        wanted = case.launches
        if self.here.attached(case.config) is not None:
            return Launches(min=1, max=1)  # another look at the same process is no other launch
        if plan.dead_end is not None and plan.dead_end.kind != "slower":
            return Launches(min=1, max=1)  # one start shows whether it is still a dead end
        number = self.options.launches or (wanted.baseline if self.options.update_baselines else None)
        return wanted if number is None else Launches(min=number, max=number, baseline=wanted.baseline)

    def _order(self, case: Case, selected: Sequence[Case], plan: Plan) -> Order:
        """What the pool is to measure of a config. Only what is gated can be undecided."""
        from ..serving.pool import Order

        launches = self._launches(case, plan)

        def undecided(run: ConfigRun) -> str:
            for one in selected:
                launches = run.launches.get(one.workload.name)
                if launches and one.workload.name not in run.errors:
                    judgement = self._judge(one, launches, self.plan(one))
                    if judgement.undecided:
                        return f"{one.id}: {judgement.text.splitlines()[0]}"
            return ""

        return Order(
            config=case.config,
            workloads=[one.workload for one in selected],
            folder=Path(case.config.place.file).absolute().parent,
            launches_min=launches.min,
            launches_max=launches.max,
            undecided=undecided,
            dead_end=plan.dead_end,
        )

    def _judge(self, case: Case, launches: list[Launch], plan: Plan) -> Judgement:
        from ..gate.verdict import judge

        here, suite = self.here, self.suites.get(case.suite)
        partner_launches: list[Launch] | None = None
        partner_baseline = None
        if case.config.compare_to:
            partner = msgspec.structs.replace(
                case, config=msgspec.structs.replace(case.config, id=case.config.compare_to)
            )
            measured = self._pool.measured(case.suite, partner.config.id) if self._pool else None
            if measured and case.workload.name not in measured.errors:
                partner_launches = measured.launches.get(case.workload.name)
            partner_baseline = here.baselines.find(here.host, partner)
        return judge(
            msgspec.structs.replace(case, launches=self._launches(case, plan)),
            launches,
            host=here.host,
            engine=here.build(case.config),
            baseline=here.baselines.find(here.host, case),
            partner_launches=partner_launches,
            partner_baseline=partner_baseline,
            dead_end=plan.dead_end,
            updating=self.options.update_baselines,
            improved_fails=self.options.improved_fails,
            inconclusive_fails=self.options.inconclusive_fails,
            speculative=here.engine(case.config).speculative(case.config),
            orphans=here.baselines.orphans(here.host.profile, suite) if suite else (),
            run=str(self.folder.path),
        )

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            from ..serving.pool import Pool

            self._pool = Pool(self._server, say=self._say)
        return self._pool

    def _server(self, suite: str, config: Config, index: int) -> Startable:
        from ..serving.attached import AttachedServer
        from ..serving.server import Server

        here = self.here
        log = self.folder.logs / f"{suite}--{config.id}-{index + 1}.log"
        if running := here.attached(config):
            return AttachedServer(here.engine(config), config, running, log=log)
        if self._leases is None:
            self._leases = here.leases(self.folder.path / "leases")
        return Server(
            here.engine(config),
            config,
            here.site(config),
            log=log,
            leases=self._leases,
            what=config.id,
            count=None if here.host.count else 1,  # without GPUs one server at a time has the machine
            say=self._say,
            waiting=self._tell,
            lease_timeout_s=self.options.wait_s,
        )

    def take_stop_error(self, case: Case) -> CaseError | None:
        """The failure to stop the case's server, once."""
        measured = self._pool.measured(case.suite, case.config.id) if self._pool else None
        if measured is None or measured.stop_error is None:
            return None
        error, measured.stop_error = measured.stop_error, None
        return error

    def broken(self, case: Case, nodeid: str, text: str) -> Result:
        """The end of a case by an error that is none of a case's: ours, the machine's, another plugin's."""
        return self._untried(case, nodeid, Verdict.ERROR, outcome="failed", text=text)

    def came_to(self, result: Result, outcome: str) -> Result:
        """The same end, seen with what the test came to: marks of somebody else's have a say, and `--runxfail`."""
        told = result.record
        if outcome == told.outcome:
            return result
        why = f"the test {outcome}, where the case alone would have {told.outcome}"
        made = msgspec.structs.replace(told, outcome=outcome, warnings=[*told.warnings, why])
        self._write(made)
        return replace(result, record=made)

    def stop_failed(self, result: Result, error: CaseError) -> Result:
        """The same end, seen with what was left after it: whatever came out before, that is what counts now."""
        made = msgspec.structs.replace(
            result.record,
            verdict=error.verdict,
            outcome="failed",
            text=f"{error}\nBefore that: {result.record.verdict}. {result.record.text}".strip(),
        )
        self._write(made)
        return replace(result, record=made)

    def accept(self, records: Sequence[Record]) -> list[str]:
        """Store what a run recorded as baselines; only the process that the user started may. Lines to show."""
        recorded = [record for record in records if record.verdict is Verdict.RECORDED]
        if not recorded:
            return []
        from ..gate.accept import accept
        from ..yaml_source import shown

        changes = accept(self.here.baselines.folder, recorded)
        files = dict.fromkeys(shown(change.path) for change in changes)
        return [line for change in changes for line in change.lines] + [f"wrote {', '.join(files)}"]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
