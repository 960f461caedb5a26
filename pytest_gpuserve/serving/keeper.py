"""What the supervisor does: starts the engine, watches over it, ends it, proves that it is gone, gives the
lease back.

Standard library only: it must start in a moment and depend on nothing that can break.
"""

# ruff: noqa: PTH102, PTH120
# pathlib would slow the supervisor's start.
from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from . import ending, leftovers, lock_file, log_file, processes
from .processes import NONCE_VARIABLE
from .vitals import Vitals

if TYPE_CHECKING:
    import socket

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
TICK_S = 0.5
DISK_S = 2.0
FIRST_SAMPLE_S = 0.5


class Spec(NamedTuple):
    """One launch, as the driver orders it; JSON on the wire."""

    argv: list[str]
    env: dict[str, str]
    log: str
    nonce: str
    driver: int
    """Process whose death ends the launch."""
    grace: float
    """Seconds between SIGTERM to the engine's parent and force."""
    cwd: str | None = None
    locks: list[int] = []  # noqa: RUF012  (never changed)
    """Descriptors of held lock files: GPUs or slots, and the port."""
    what: str = ""
    """Who it is, for those who wait for the lease."""
    port: int | None = None
    memory: dict[str, float] = {}  # noqa: RUF012
    """MiB in use before the launch, by GPU index."""
    temporary: str | None = None
    """Folder to make for the launch, and to delete after it."""
    log_head: int = 16 << 20
    log_tail: int = 16 << 20
    min_free: int = log_file.MIN_FREE


class Board:
    """What the supervisor knows and its guard must know if it dies: memory that both share."""

    HEADER = struct.Struct("=qq")
    SIZE = 1 << 16

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self.SIZE)
        self._end = self.HEADER.size

    def set_parent(self, pid: int, *, exited: bool) -> None:
        self._memory[: self.HEADER.size] = self.HEADER.pack(pid, exited)

    def parent(self) -> tuple[int | None, bool]:
        """The engine's parent process, and whether it has been seen to exit."""
        pid, exited = self.HEADER.unpack(self._memory[: self.HEADER.size])
        return pid or None, bool(exited)

    def add_names(self, names: set[str]) -> None:
        for name in sorted(names - self.names()):
            data = name.encode() + b"\n"
            if self._end + len(data) < self.SIZE:
                self._memory[self._end : self._end + len(data)] = data
                self._end += len(data)

    def names(self) -> set[str]:
        """Shared memory that processes of the launch were seen to use."""
        data = self._memory[self.HEADER.size :].split(b"\0", 1)[0]
        return {line.decode() for line in data.split(b"\n") if line}


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Keeper:
    """See the module. `guard` is the process that outlives this one and does the same if it must."""

    def __init__(self, spec: Spec, channel: socket.socket, board: Board, guard: int) -> None:
        self.spec = spec
        self._channel = channel
        self._board = board
        self._guard = guard
        me = processes.read(guard)
        self._since = me.started if me else 0
        self._status: int | None = None
        self._reason = ""
        self._driver_gone: float | None = None
        self._hurry_from = float("inf")
        self._grace = spec.grace
        self._temporary = spec.temporary
        self._asked: float | None = None
        self._log = -1
        self._capped: log_file.Capped | None = None
        self._buffer = b""
        self._next_disk = 0.0
        self._disk_full = False
        self._sample_after: float | None = FIRST_SAMPLE_S
        self._next_sample = time.monotonic() + FIRST_SAMPLE_S
        self._vitals: Vitals | None = None
        self._next_vitals = 0.0
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._wake, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(write, False)
        self._poll.register(self._wake, select.POLLIN)
        for number in (*END_SIGNALS, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._driver = self._watch_driver()

    def _watch_driver(self) -> int:
        """A handle that becomes readable when the driver dies: a forked child of it could keep the channel
        open.
        """
        try:
            handle = os.pidfd_open(self.spec.driver)
        except ProcessLookupError:
            self._lose_driver()
            return -1
        except OSError:
            return -1
        self._poll.register(handle, select.POLLIN)
        return handle

    # --- the two ways in ---

    def keep(self) -> None:
        """Start the engine, watch until it ends or is to end, and end it."""
        try:
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            self._tell(event="failed", error=f"{type(error).__name__}: {error}")
            self._reason = "it could not be started"
        while not self._reason:
            self._turn(TICK_S)
        self._end()

    def take_over(self, reason: str) -> None:
        """End a launch whose supervisor has died; its processes are our children now."""
        pid, exited = self._board.parent()
        if pid is not None and exited:
            self._status = 0
        self._reason = reason
        self._hurry_after(min(self._grace, ending.DRIVERLESS_GRACE_S))
        self._end()

    # --- start ---

    def _start(self) -> None:
        spec = self.spec
        if spec.temporary is not None:
            self._temporary = None  # until it is known to be ours
            os.mkdir(spec.temporary, 0o700)
            self._temporary = spec.temporary
        free = log_file.free_bytes(os.path.dirname(spec.log) or ".")
        if free < spec.min_free:
            raise OSError(f"no space left for the log: {free >> 20} MiB free where {spec.log} is to be")
        self._log = os.open(spec.log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._capped = log_file.Capped(self._log, head=spec.log_head, tail=spec.log_tail)
        guard = os.getpid()
        engine = subprocess.Popen(
            spec.argv,
            env={**spec.env, NONCE_VARIABLE: spec.nonce},
            cwd=spec.cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _die_with(guard),
        )
        engine.returncode = 0  # reaped by us
        self._board.set_parent(engine.pid, exited=False)
        for descriptor in spec.locks:
            lock_file.write_record(
                descriptor,
                pid=self._guard,
                supervisor=os.getpid(),
                engine=engine.pid,
                nonce=spec.nonce,
                ticks=self._since,
                what=spec.what,
                since=lock_file.now(),
                user=os.getuid(),
            )
        self._tell(event="started", pid=engine.pid, supervisor=os.getpid(), guard=self._guard)

    # --- watch ---

    def _turn(self, seconds: float) -> None:
        """Wait for something to happen, at most so long, and see to it."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000):
            if descriptor == self._channel.fileno():
                self._receive()
            elif descriptor == self._wake:
                os.read(self._wake, 4096)
            else:
                self._poll.unregister(descriptor)
                self._lose_driver()
        self._reap()
        self._mind_log()
        self._sample()
        self._look_at_vitals()

    def _signalled(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._reason = self._reason or f"it was told to end by {signal.Signals(number).name}"

    def _reap(self) -> None:
        parent, exited = self._board.parent()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == parent and not exited:
                self._status = os.waitstatus_to_exitcode(status)
                self._board.set_parent(pid, exited=True)
                self._reason = self._reason or "the engine ended"
                self._tell(event="exited", status=self._status)

    def _receive(self) -> None:
        try:
            data = self._channel.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(self._channel)
            self._lose_driver()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "stop":
                self._grace = order.get("grace", self._grace)
                self._reason = self._reason or "it was told to end"
                if order.get("hurry"):
                    self._hurry_after(0.0)
            case "serving":
                self._take_sample()
                self._sample_after = None  # no looking around while somebody measures
                self._vitals = Vitals(order["members"], self.spec.port)

    def _lose_driver(self) -> None:
        if self._driver_gone is None:
            self._driver_gone = time.monotonic()
            self._reason = self._reason or "pytest is gone"

    def _hurry_after(self, seconds: float) -> None:
        self._hurry_from = min(self._hurry_from, time.monotonic() + seconds)

    def _mind_log(self) -> None:
        if self._capped is None:
            return
        try:
            self._capped.trim()
            if time.monotonic() >= self._next_disk and not self._disk_full:
                self._next_disk = time.monotonic() + DISK_S
                free = log_file.free_bytes(os.path.dirname(self.spec.log) or ".")
                if free < self.spec.min_free:
                    self._disk_full = True
                    self._tell(event="disk", free=free)
        except OSError as error:
            self._capped = None
            self._tell(event="note", text=f"the log cannot be capped: {error}")

    def _look_at_vitals(self) -> None:
        if self._vitals is None or self._reason or time.monotonic() < self._next_vitals:
            return
        self._next_vitals = time.monotonic() + TICK_S
        for process in self._vitals.missing():
            self._tell(event="missing", process=process)
        if self._vitals.closed():
            self._tell(event="closed")

    def _sample(self) -> None:
        if self._sample_after is not None and time.monotonic() >= self._next_sample:
            self._take_sample()
            self._sample_after = min(60.0, self._sample_after * 2)
            self._next_sample = time.monotonic() + self._sample_after

    def _take_sample(self) -> None:
        names = leftovers.in_use(p.pid for p in self._household().members()) - self._board.names()
        if names:
            self._board.add_names(names)
            self._tell(event="uses", names=sorted(names))  # for the case that guard and supervisor are killed

    def _household(self) -> ending.Household:
        return ending.Household(
            keeper=os.getpid(),
            parent=self._board.parent()[0],
            nonce=self.spec.nonce,
            since=self._since,
        )

    # --- end ---

    def _end(self) -> None:
        spec = self.spec
        self._sample_after = None
        self._asked = time.monotonic()
        household = self._household()
        left = ending.Ending(
            household,
            grace=self._grace,
            wait=self._turn,
            hurry=self._hurry,
            parent_lives=lambda: self._status is None,
            look=self._take_sample,
        ).run()
        survivors = [processes.describe(p.pid) for p in left]
        port = ending.port_left(spec.port, self._turn)
        memory, memory_check = self._memory_left()
        report = {
            "reason": self._reason,
            "status": self._status,
            "survivors": survivors,
            "port": port,
            "memory": memory,
            "memory_check": memory_check,
            "removed": self._tidy(),
            "seconds": round(time.monotonic() - self._asked, 3),
        }
        if survivors:
            # The lease must not be given to anybody while they live, however long that is.
            self._tell(event="stopped", **report)
            while members := household.members():
                for member in members:  # those that a survivor has started since have not been told
                    processes.send(member, signal.SIGKILL)
                self._turn(1.0)
        for descriptor in spec.locks:
            lock_file.release(descriptor)
        if not survivors:
            self._tell(event="stopped", **report)

    def _hurry(self) -> float:
        assert self._asked is not None
        return min(self._hurry_from, ending.grace_end(self._asked, self._grace, self._driver_gone))

    def _memory_left(self) -> tuple[str, str]:
        if not self.spec.memory:
            return "", "no GPU"
        from . import gpus

        return gpus.memory_left({int(index): mib for index, mib in self.spec.memory.items()}, self._turn)

    def _tidy(self) -> list[str]:
        removed = leftovers.remove_shared_memory(
            self._board.names(), since=processes.wall_clock(self._since), processes=processes.table()
        )
        if self._temporary is not None:
            removed += leftovers.remove_folder(self._temporary)
        try:
            log_file.compact(self.spec.log)
        except OSError:
            pass  # it stays as it is; the records need the space more
        return removed

    def _tell(self, **event: Any) -> None:
        try:
            self._channel.sendall(json.dumps(event).encode() + b"\n")
        except OSError:
            pass  # nobody listens any more


def _die_with(parent: int) -> None:
    """In the engine, before it runs: if supervisor and guard are killed at once, it goes too."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
