"""A server from its lease to its proven end. One object a launch; the processes themselves belong to the
supervisor.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import CaseError, Crashed, LeaseTimeout, Stalled, StartFailed, StopFailed
from ..load.api import Target
from ..record import Failure, Launch, PhaseTime
from . import environment, stacks
from .keeper import Spec
from .launch import Supervised
from .lease import PortTaken
from .limits import Limits
from .log_watch import LogWatch
from .readiness import ask
from .story import E, Teller, how_it_ended, root_error
from .sweep import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..engines.base import Engine, Site
    from ..model import Config, Phase
    from .lease import Lease, Leases
    from .log_watch import LineClassifier

QUIET_S = 0.4
"""A log that has not grown for so long has said what it has to say."""
SETTLE_S = 2.5
"""After a hopeless line or the end, at most so long for the rest of the root error to be written."""
READY_PATIENCE_S = 120.0
"""From the ready line to an answer."""
FOREIGN_PATIENCE_S = 5.0
"""From the ready line to our own process having the port."""
LOOK_S = 0.5
"""Between two looks at the log once a process is missing."""
FAILED_GRACE_S = 5.0
"""A server that has failed has nothing to drain."""
GPU_MEMORY_PATIENCE_S = 60.0


class Server:
    """Start with `start`, then `wait_ready`; ask `failed` while measuring; end with `stop`, whatever happened
    before.

    `log` is the file that the server's output goes to; what belongs to it (stacks, the supervisor's own
    complaints) lies beside it. `port` None takes a free one. `count` None takes as many GPUs as the config
    needs. `say` hears each phase, `waiting` (None: the same) whom the lease waits for. `classifier` None makes
    one from the engine's phases and rules.
    """

    def __init__(
        self,
        engine: Engine,
        config: Config,
        site: Site,
        *,
        log: Path,
        leases: Leases,
        what: str = "",
        port: int | None = None,
        host: str = "127.0.0.1",
        count: int | None = None,
        lease_timeout_s: float | None = None,
        say: Callable[[str], None] = lambda text: None,
        waiting: Callable[[str], None] | None = None,
        classifier: LineClassifier | None = None,
    ) -> None:
        self.log = log.absolute()
        self.target = Target(host=host, port=port or 0)
        """Where it listens; the port is known once `start` has the lease."""
        self.gpus: tuple[int, ...] = ()
        self.report: dict[str, Any] = {}
        """What the supervisor found after the end."""
        self._engine = engine
        self._config = config
        self._site = site
        self._leases = leases
        self._what = what or config.id
        self._port = port
        self._count = config.gpus if count is None else count
        self._lease_timeout_s = lease_timeout_s
        self._say = say
        self._waiting = waiting or say
        self._limits = Limits(engine.timeouts, config.timeouts, site)
        self._grace = self._limits.shutdown
        self._classifier = classifier
        self._watch: LogWatch | None = None
        self._supervised: Supervised | None = None
        self._redactor = environment.redactor(engine, config, {**os.environ, **site.env})
        self._teller = Teller(self._what, engine.name, self.log, self._redactor)
        self._command: tuple[str, ...] = ()
        self._environment: dict[str, str] = {}
        self._started = ""
        self._began = 0.0
        self._ready_s: float | None = None
        self._phases: list[PhaseTime] = []
        self._warnings: list[str] = []
        self._ended = False
        self._dying = False
        self._next_look = 0.0
        self._root_when_ready: Failure | None = None

    # --- start ---

    def start(self) -> None:
        """Take the lease and start the process. Raises StartFailed."""
        environment.demand(self._config, os.environ)
        lease = self._acquire()
        try:
            spec = self._spec(lease)
            self._watch = LogWatch(self.log, self._classifier or self._new_classifier(), self._engine.ready)
            self._began = time.monotonic()
            self._started = datetime.now(UTC).isoformat(timespec="seconds")
            self._supervised = Supervised(spec)
            self._supervised.wait_started()
        finally:
            # Closed, not unlocked: if a supervisor has been started, it may hold the lease already.
            lease.hand_over()
        if self._supervised.started is not None:
            self._say(f"{self._what}: started, pid {self._supervised.started['pid']}, log {self.log}")

    def _acquire(self) -> Lease:
        try:
            return self._leases.acquire(
                self._count,
                what=self._what,
                port=self._port,
                host=self.target.host,
                timeout_s=self._lease_timeout_s,
                waiting=lambda text: self._waiting(f"{self._what}: {text}"),
            )
        except LeaseTimeout as error:
            taken = "port_conflict" if isinstance(error, PortTaken) else "gpu_busy"
            failure = Failure(failure_class=taken, message=str(error), environment=True)
            raise StartFailed(str(error), failure=failure) from None  # it is the same text

    def _spec(self, lease: Lease) -> Spec:
        key = self._config.args.get("api-key")
        self.gpus = lease.gpus if lease.memory else ()
        self.target = Target(
            host=self.target.host,
            port=lease.port,
            headers={"Authorization": f"Bearer {key}"} if isinstance(key, str) else {},
        )
        command = self._engine.command(self._config, self._site, self.target, self.gpus)
        nonce = uuid.uuid4().hex
        self._command = command.argv
        self._environment, temporary = environment.compose(
            os.environ, command.env, temporary=temporary_folder(nonce)
        )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return Spec(
            argv=list(command.argv),
            env=self._environment,
            cwd=command.cwd,
            log=str(self.log),
            nonce=nonce,
            driver=os.getpid(),
            grace=self._grace,
            locks=list(lease.descriptors),
            what=self._what,
            port=lease.port,
            memory={str(index): mib for index, mib in lease.memory.items()},
            temporary=temporary,
        )

    def _new_classifier(self) -> LineClassifier:
        from ..failures.classify import Classifier

        rules = self._engine.rules()
        return Classifier(
            self._engine.phases, (rules,) if rules is not None else (), engine=self._engine.name
        )

    # --- until it is ready ---

    def wait_ready(self) -> None:
        """Return when our own process serves. Raises StartFailed with the phase and the root error.

        Ready is: its log says so, a socket of one of its processes listens on the port, and `ready_path`
        answers 200.
        """
        supervised, watch = self._running()
        phase, said_ready = watch.phase, None
        while True:
            supervised.hear(self._limits.pause)
            watch.poll()
            if watch.phase != phase:
                phase = watch.phase
                self._say(f"{self._what}: {phase}")
            self._fail_if_hopeless(supervised, watch)
            if watch.said_ready:
                said_ready = said_ready or time.monotonic()
                # Without a ready line nobody has promised anything yet.
                if self._serves(time.monotonic() - said_ready if self._engine.ready else 0.0):
                    break
        self._ready_s = time.monotonic() - self._began
        self._root_when_ready = watch.classifier.root
        watch.enter("serving")
        supervised.serving()
        self._say(f"{self._what}: ready in {self._limits.reported(self._ready_s):.0f} s")

    def _fail_if_hopeless(self, supervised: Supervised, watch: LogWatch) -> None:
        if supervised.disk_full is not None and not supervised.over:
            raise self._disk_full(supervised.disk_full, StartFailed)
        if supervised.over or watch.hopeless_since is not None:
            self._settle(supervised, watch)
            ended = how_it_ended(supervised, watch.working) if supervised.over else ""
            raise self._start_failed(ended or "cannot become ready after what its log says, and was stopped")
        if late := watch.overdue(self._limits.phases):
            what = f"exceeded the time limit of phase {late[0]}, {late[1]:.0f} s (timeouts: {late[0]})"
            raise self._hung(what, late[0])
        if watch.phase not in self._limits.phases and watch.silence > self._limits.silence:
            raise self._hung(f"has written nothing to its log for {watch.silence:.0f} s", watch.phase)

    def _serves(self, since_ready: float) -> bool:
        answer = ask(self.target, self._engine.ready_path, self._running()[0].members())
        if answer.state == "foreign" and since_ready > FOREIGN_PATIENCE_S:
            failure = Failure(
                failure_class="port_conflict", phase="http_bind", message=answer.why, environment=True
            )
            raise self._give_up(StartFailed, f"says that it is ready, but {answer.why}", failure)
        if answer.state != "ready" and since_ready > READY_PATIENCE_S:
            raise self._start_failed(f"says that it is ready, but {answer.why}")
        return answer.state == "ready"

    # --- while it serves ---

    def failed(self) -> bool:
        """Whether it has ended, or the disk is full. Cheap enough to be asked many times a second."""
        supervised = self._supervised
        if supervised is None:
            return self._ended
        supervised.hear()
        return supervised.over or supervised.disk_full is not None or self._is_dying(supervised)

    def _is_dying(self, supervised: Supervised) -> bool:
        """It has closed its port; or one of its processes has ended and the log has a root error since it was
        ready.

        A helper process may come and go, and a request may be refused with a traceback: only both together
        count.
        """
        watch = self._watch
        if supervised.closed or not supervised.missing or watch is None:
            return supervised.closed
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            watch.poll()
            self._dying = self._dying or watch.classifier.root not in (None, self._root_when_ready)
        return self._dying

    def owns(self, pid: int) -> bool | None:
        """Whether a process is one of this server's; None when there is no process of that number."""
        return self._supervised.owns(pid) if self._supervised is not None else None

    def check(self) -> None:
        """Raise Crashed when it has ended."""
        if self.failed():
            raise self.crash()

    def crash(self) -> CaseError:
        """What to raise once `failed` is true: Crashed, with the root error from the log."""
        supervised, watch = self._running()
        if not supervised.over and supervised.disk_full is not None:
            return self._disk_full(supervised.disk_full, Crashed)
        self._settle(supervised, watch)
        what = how_it_ended(supervised, watch.working)
        return self._give_up(Crashed, what, root_error(supervised, watch, what))

    def stall(self) -> CaseError:
        """What to raise when it gives no token for too long: Stalled, with the stacks of its processes."""
        supervised, watch = self._running()
        self._dump(supervised)
        what = "lives and gives no token"
        failure = watch.finish(None, timed_out=True) or Failure(
            failure_class="hang_serving", phase="serving", message=what
        )
        return self._give_up(Stalled, what, failure, note=f"stacks: {self._stacks}")

    # --- stop ---

    def stop(self) -> None:
        """End it, wherever it is, and give the lease back. Does nothing the second time.

        Raises StopFailed naming what is left: a process, a listener on the port, GPU memory.
        """
        supervised, self._supervised = self._supervised, None
        if supervised is None:
            return
        self._ended = True
        try:
            self.report = supervised.finish(self._grace, GPU_MEMORY_PATIENCE_S if self.gpus else 0.0)
        finally:
            self._close_watch()
            self._warnings += supervised.notes
            self._clean_log()
        left = [f"process {survivor}" for survivor in self.report["survivors"]]
        left += [text for text in (self.report["port"], self.report["memory"]) if text]
        if left:
            text = self._redactor.text("; ".join(left))
            raise StopFailed(f"{self._what}: the server was stopped and left: {text}")

    def _clean_log(self) -> None:
        """Engines print their arguments, and an API key is one."""
        try:
            self._redactor.file(self.log)
        except OSError as error:
            self._warnings.append(f"the log could not be cleaned of secrets: {error}")

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.poll()
            self._phases = self._watch.phases()
            self._watch.close()
            self._watch = None

    # --- what it has shown ---

    def launch_facts(self) -> Launch:
        """This launch for the record, without rounds; secrets are removed by value."""
        return Launch(
            started=self._started,
            ready_s=None if self._ready_s is None else self._limits.reported(self._ready_s),
            phases=[
                PhaseTime(p.phase, self._limits.reported(p.seconds, p.phase))
                for p in (self._watch.phases() if self._watch else self._phases)
            ],
            command=self._redactor.words(self._command, self._engine.secret_args),
            env=self._redactor.data(environment.telling(self._environment, self._config, self._site)),
            log=f"{self.log.parent.name}/{self.log.name}",
            warnings=list(self._warnings),
        )

    def redact(self, data: Any) -> Any:
        """Any plain data, such as what the server says of itself, without the secrets of this launch."""
        return self._redactor.data(data)

    # --- errors ---

    def _running(self) -> tuple[Supervised, LogWatch]:
        if self._supervised is None or self._watch is None:
            raise RuntimeError("the server is not running")
        return self._supervised, self._watch

    @staticmethod
    def _settle(supervised: Supervised, watch: LogWatch) -> None:
        """Read until the log is quiet, so that the whole of the root error is known."""
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            supervised.hear(0.1)
            watch.poll()
            if watch.silence >= QUIET_S:
                return

    def _start_failed(self, what: str) -> StartFailed:
        return self._give_up(StartFailed, what, root_error(*self._running(), what))

    def _hung(self, what: str, phase: Phase) -> StartFailed:
        supervised, watch = self._running()
        self._dump(supervised)
        failure = watch.finish(None, timed_out=True) or Failure(
            failure_class="hang_startup", phase=phase, message=what
        )
        return self._give_up(StartFailed, what, failure, note=f"stacks: {self._stacks}")

    def _disk_full(self, free: int, kind: type[E]) -> E:
        what = f"was stopped: the disk of its log is full, {free >> 20} MiB are free at {self.log.parent}"
        return self._give_up(kind, what, Failure(failure_class="environment", message=what, environment=True))

    def _give_up(self, kind: type[E], what: str, failure: Failure, note: str = "") -> E:
        """What to raise; from here on the server gets little time to end, and begins to."""
        self._grace = min(self._grace, FAILED_GRACE_S)
        self._running()[0].ask_stop(self._grace)
        return self._teller.error(kind, what, failure, note)

    @property
    def _stacks(self) -> Path:
        return self.log.with_name(self.log.name + ".stacks.txt")

    def _dump(self, supervised: Supervised) -> None:
        """Write down what its processes are doing; a full disk is no reason to say nothing else."""
        text = stacks.dump(supervised.members(), beside=self._site.python)
        with contextlib.suppress(OSError):
            self._stacks.write_text(text)
