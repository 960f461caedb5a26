"""What is measured of a config, launch by launch: start, every selected workload with its rounds, stop; then again
while somebody is undecided. At most one server runs in a process, and none is left when a call returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..errors import CaseError, GpuserveError, Inert, InputError, Invalid, StartFailed, StopFailed
from . import log_file, probe
from .measure import Measurement, Running

if TYPE_CHECKING:
    from ..engines.base import Engine, Site
    from ..load.api import Api
    from ..model import Config, DeadEnd, Workload
    from ..record import Launch, ProbeAnswer


class Startable(Running, Protocol):
    """A server that has yet to be started; `serving.server.Server` is one."""

    def start(self) -> None: ...
    def wait_ready(self) -> None: ...
    def stop(self) -> None: ...
    def launch_facts(self) -> Launch: ...
    def redact(self, data: Any) -> Any: ...


ServerFactory = Callable[[str, "Config", int], Startable]
"""Makes the server of a suite's config for its n-th launch, n from 0; leases are taken by `start`."""


@dataclass
class ConfigRun:
    """What one config has shown so far in this run."""

    launches: dict[str, list[Launch]] = field(default_factory=dict)
    """By workload, each with that workload's rounds."""
    errors: dict[str, CaseError] = field(default_factory=dict)
    """By workload: how it ended badly. A start that failed is everybody's."""
    probe: ProbeAnswer | None = None
    """What the server of the last launch said to the suite's probe."""
    stop_error: StopFailed | None = None
    stopped_because: str = ""

    def open(self, workloads: Sequence[Workload]) -> list[Workload]:
        """The workloads that have not ended badly.

        One with a launch of which no round may be used is over as well: it is invalid whatever else is measured, and
        what spoils every round of one launch will most likely spoil those of the next.
        """
        return [w for w in workloads if w.name not in self.errors and not self._spoilt(w.name)]

    def _spoilt(self, name: str) -> bool:
        return any(
            launch.rounds and all(round_.invalid for round_ in launch.rounds)
            for launch in self.launches.get(name, ())
        )


@dataclass(frozen=True)
class Order:
    """What to measure of a config and when to stop."""

    config: Config
    workloads: Sequence[Workload]
    launches_min: int
    launches_max: int
    undecided: Callable[[ConfigRun], str]
    """Asked after each launch: why another is wanted, or an empty string."""
    dead_end: DeadEnd | None = None
    folder: Path = Path()
    """What a workload's `dataset` is relative to."""


class Pool:
    """Measures configs, one after the other, and remembers what came out, so that a failed start is not repeated."""

    def __init__(
        self,
        server: ServerFactory,
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._server = server
        self._say = say
        self._current: Startable | None = None
        self.runs: dict[tuple[str, str], ConfigRun] = {}
        """By suite and config id."""

    def measured(self, suite: str, config_id: str) -> ConfigRun | None:
        """What was measured of a config in this process, or None."""
        return self.runs.get((suite, config_id))

    def measure(self, suite: str, order: Order, engine: Engine, site: Site) -> ConfigRun:
        """Launch a config as often as its cases need; the second call for a config returns what the first found."""
        key = (suite, order.config.id)
        if key in self.runs:
            return self.runs[key]
        run = self.runs[key] = ConfigRun()
        index = 0
        while todo := self._next(run, order, index):
            server = self._current = self._server(suite, order.config, index)
            self._launch(suite, server, run, order, todo, engine, site, index)
            index += 1
        return run

    def _next(self, run: ConfigRun, order: Order, index: int) -> list[Workload]:
        """The workloads of launch `index`; none when enough has been seen, and `stopped_because` then says why."""
        todo = run.open(order.workloads)
        unmeasured = [w for w in todo if not run.launches.get(w.name)]
        if not todo:
            run.stopped_because = "nothing is left to measure"
            return []
        if index < order.launches_min or unmeasured:
            # A crash under one workload leaves the others unmeasured: they get a launch even beyond the maximum.
            return todo if index < order.launches_max else unmeasured
        why = order.undecided(run)
        if not why:
            run.stopped_because = "decided"
            return []
        if index >= order.launches_max:
            run.stopped_because = (
                f"undecided after the most launches that a run may take ({order.launches_max}): {why}"
            )
            return []
        self._say(f"{order.config.id}: launch {index + 1} of at most {order.launches_max}: {why}")
        return todo

    def close(self) -> None:
        """Stop what still runs: Ctrl-C in a start reaches no other clean-up."""
        server, self._current = self._current, None
        if server is not None:
            server.stop()

    def _launch(
        self,
        suite: str,
        server: Startable,
        run: ConfigRun,
        order: Order,
        todo: list[Workload],
        engine: Engine,
        site: Site,
        index: int,
    ) -> None:
        config = order.config
        name = config.id if index == 0 else f"{config.id} (launch {index + 1})"
        rounds_before = {w.name: len(run.launches.get(w.name, ())) for w in todo}
        try:
            try:
                server.start()
                server.wait_ready()
                check_active(config, order.dead_end, server.log)
                if config.probe is not None:
                    api = engine.api(config, todo[0], site)
                    self._probe(run, server, api, config, self.runs.get((suite, config.compare_to or "")))
            except (CaseError, InputError) as error:
                # What the engine cannot even be asked, such as a model folder that is not there, is a failed start.
                failed = error if isinstance(error, CaseError) else StartFailed(str(error))
                for workload in todo:
                    run.errors[workload.name] = failed
                return
            info = _said_of_itself(engine, server)
            for workload in todo:
                measurement = Measurement(
                    server,
                    engine,
                    config,
                    workload,
                    site,
                    folder=order.folder,
                    seed=workload.seed + 1000 * index,
                    say=lambda text, of=f"{name}, {workload.name}": self._say(f"{of}: {text}"),  # type: ignore[misc]
                )
                try:
                    rounds = measurement.rounds()
                except CaseError as error:
                    run.errors[workload.name] = error
                    if isinstance(error, Invalid):
                        continue  # the server lives
                    break  # this server is not to be trusted any more
                facts = msgspec.structs.replace(
                    server.launch_facts(), rounds=rounds, server_info=info, probe=run.probe
                )
                run.launches.setdefault(workload.name, []).append(facts)
        finally:
            self._current = None
            self._end(run, server, todo, rounds_before)

    @staticmethod
    def _probe(
        run: ConfigRun, server: Startable, api: Api, config: Config, partner: ConfigRun | None
    ) -> None:
        """Look at an answer before anything is measured. Raises Garbage."""
        assert config.probe is not None
        run.probe = probe.ask(server, api, config.probe)
        other = partner.probe if partner else None
        if other is not None and config.compare_to is not None:
            run.probe = probe.compare(run.probe, config.compare_to, other)
        probe.demand(config.probe, run.probe, other)

    def _end(
        self, run: ConfigRun, server: Startable, todo: Sequence[Workload], before: dict[str, int]
    ) -> None:
        """Stop the server; a case without rounds of this launch still gets the facts of it."""
        try:
            server.stop()
        except StopFailed as error:
            run.stop_error = run.stop_error or error
        for workload in todo:
            ended = run.errors.get(workload.name)
            if ended is not None and len(run.launches.get(workload.name, ())) == before[workload.name]:
                facts = msgspec.structs.replace(server.launch_facts(), failure=ended.failure, probe=run.probe)
                run.launches.setdefault(workload.name, []).append(facts)


def _said_of_itself(engine: Engine, server: Startable) -> dict[str, Any]:
    """What the server tells of its resolved arguments, without secrets; empty when it does not answer."""
    import requests

    try:
        found: dict[str, Any] = server.redact(engine.info(server.target))
    except (requests.RequestException, ValueError):
        return {}
    return found


def check_active(config: Config, dead_end: DeadEnd | None, log: Path) -> None:
    """Raise Inert when the log lacks the proof that the suite asks for, or holds the line that says the path is off."""
    wanted = re.compile(config.active_if.log) if config.active_if else None
    unwanted = (
        re.compile(dead_end.inert_log)
        if dead_end and dead_end.kind == "inert" and dead_end.inert_log
        else None
    )
    if wanted is None and unwanted is None:
        return
    try:
        lines = list(log_file.read_lines(log))
    except OSError as error:
        raise GpuserveError(f"the server's log cannot be read: {error}") from error
    if unwanted is not None:
        off = next((line for line in lines if unwanted.search(line)), None)
        if off is not None:
            raise Inert(f"the flag was accepted, the path stayed off; the log says: {off.strip()}")
    if wanted is not None and not any(wanted.search(line) for line in lines):
        raise Inert(
            f"the server is ready, but no line of its log fits active_if ({wanted.pattern!r}): "
            f"the path that this config is about was not taken; see {log}"
        )
