"""GPUs and a port as one unit, taken by one launch at a time on the whole host: all of it or nothing.

One lock file a GPU and a port, in a folder that all users share. Who waits has a ticket; tickets are served
in order, and what an earlier one needs is left alone, so many small requests cannot starve a large one.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError, LeaseTimeout
from . import lock_file, processes, sockets
from .gpus import Gpu, gpus, used_mib, users, visible
from .sweep import sweep
from .tickets import Queue, Ticket, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DEFAULT_FOLDER = "/tmp/gpuserve-leases"
FOLDER_VARIABLE = "GPUSERVE_LEASES"
PORTS = range(20011, 30000, 13)
"""Below the range from which Linux draws ports for outgoing connections, and apart, since engines derive more
ports from theirs.
"""
IDLE_MIB = 512.0
"""A GPU that holds more than this is in use by somebody who leases nothing."""
SILENT_S = 0.2
"""A shorter wait is not worth a line."""
SAY_AGAIN_S = 60.0
MUTEX_PATIENCE_S = 30.0


class PortTaken(LeaseTimeout):
    """The port that must be used is listened on by a process that holds no lease."""


class Unit(NamedTuple):
    """Something to lock: a GPU, a slot that stands for one, or a port."""

    name: str
    """Of its lock file."""
    label: str
    """For people."""
    gpu: int | None = None
    """NVML index of a real GPU."""


class Request(NamedTuple):
    units: tuple[Unit, ...]
    size: int
    what: str
    port: int | None
    host: str

    def __str__(self) -> str:
        kind = "slot" if all(unit.gpu is None for unit in self.units) else "GPU"
        parts = [f"{self.size} {kind}{'s' if self.size != 1 else ''}"] if self.size else []
        if self.port is not None or not parts:
            parts.append("a port" if self.port is None else f"port {self.port}")
        return " and ".join(parts)


class Obstacles:
    """What is in the way of a request, said once for all that it is true of."""

    def __init__(self) -> None:
        self._labels: dict[str, list[str]] = {}

    def add(self, label: str, reason: str) -> None:
        self._labels.setdefault(reason, []).append(label)

    def text(self) -> str:
        return "; ".join(f"{', '.join(_runs(labels))} {reason}" for reason, labels in self._labels.items())


def _runs(labels: Sequence[str]) -> Iterator[str]:
    """`GPU 0`, `GPU 1`, `GPU 2` as `GPUs 0-2`; two in a row, and what has no number, as they are."""
    for _, found in groupby(enumerate(labels), lambda at: _place(*at)):
        run = [label for _, label in found]
        kind, _, first = run[0].rpartition(" ")
        if len(run) > 2:
            yield f"{kind}s {first}-{run[-1].rpartition(' ')[2]}"
        else:
            yield from run


def _place(index: int, label: str) -> tuple[str, int]:
    """The same for labels whose numbers follow each other."""
    kind, _, number = label.rpartition(" ")
    return (kind, int(number) - index) if number.isdecimal() else (label, -1)


class Lease:
    """What was taken. Ends with `release`, or with `hand_over`, after which the supervisor holds it."""

    def __init__(
        self, units: Sequence[Unit], port: int, descriptors: Sequence[int], numbers: Sequence[int]
    ) -> None:
        self.gpus = tuple(numbers)
        """GPUs to use, by NVML index; slots where there are no GPUs."""
        self.port = port
        self.memory = {u.gpu: used_mib(u.gpu) or 0.0 for u in units if u.gpu is not None}
        """MiB in use before the launch."""
        self._descriptors = list(descriptors)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Open lock files, for the supervisor to inherit."""
        return tuple(self._descriptors)

    def hand_over(self) -> None:
        """Close our copies once the supervisor has its own. Closing keeps the lock, unlocking would not."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def release(self) -> None:
        """Give everything back; does nothing after `hand_over`."""
        while self._descriptors:
            lock_file.release(self._descriptors.pop())


class Leases:
    """What may be taken of a host, and the folder of its locks.

    `slots` puts so many slots in the place of GPUs: for hosts without any, and for the simulated host, where
    `slots_folder` keeps those of one run apart from everybody else's; ports are always the host's.
    `environment` is where an outer CUDA_VISIBLE_DEVICES and GPUSERVE_LEASES are read.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        slots: int | None = None,
        slots_folder: str | Path | None = None,
        environment: Mapping[str, str] = os.environ,
        idle_mib: float = IDLE_MIB,
        devices: Callable[[], Sequence[Gpu]] = gpus,
    ) -> None:
        self._ports = Path(folder or environment.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)
        self.folder = Path(slots_folder or self._ports)
        self._slots = slots
        self._environment = environment
        self._idle_mib = idle_mib
        self._devices = devices

    def units(self) -> tuple[Unit, ...]:
        """What a lease can be taken of, in the order of preference. Raises InputError for MIG devices."""
        if self._slots is not None:
            return tuple(Unit(f"slot-{i}.lock", f"slot {i}", None) for i in range(self._slots))
        allowed = visible(self._devices(), self._environment.get("CUDA_VISIBLE_DEVICES"))
        return tuple(Unit(f"{gpu.uuid}.lock", f"GPU {gpu.number}", gpu.number) for gpu in allowed)

    def acquire(
        self,
        count: int,
        *,
        what: str = "",
        port: int | None = None,
        host: str = "127.0.0.1",
        timeout_s: float | None = None,
        waiting: Callable[[str], None] = lambda text: None,
    ) -> Lease:
        """Take `count` GPUs and a port, waiting for them if need be; `waiting` is told for whom, now and
        then.

        Raises LeaseTimeout when they do not come free in time or never can, PortTaken when `port` is asked
        for and somebody who leases nothing listens there, InputError when the lock folder cannot be used.
        """
        units = self.units()
        if count > len(units):
            raise LeaseTimeout(f"{count} GPUs are needed, {self._may_use(units)}")
        request = Request(units, count, what, port, host)
        try:
            lock_file.make_folder(str(self._ports))
            lock_file.make_folder(str(self.folder))
            queue = Queue(self.folder / "queue")
            with self._mutex():
                ticket = queue.draw(count, [u.name for u in units])
            try:
                return self._wait(request, queue, ticket, timeout_s, waiting)
            finally:
                ticket.tear()
        except OSError as error:
            raise InputError(
                f"the lock folder {self.folder} cannot be used: {error}; name another one as `leases:` in "
                f"gpuserve.local.yaml or in {FOLDER_VARIABLE}"
            ) from error

    def _may_use(self, units: Sequence[Unit]) -> str:
        setting = self._environment.get("CUDA_VISIBLE_DEVICES")
        if self._slots is None and setting is not None:
            return f"{len(units)} may be used (CUDA_VISIBLE_DEVICES={setting})"
        return f"there are {len(units)}"

    def _wait(
        self,
        request: Request,
        queue: Queue,
        ticket: Ticket,
        timeout_s: float | None,
        waiting: Callable[[str], None],
    ) -> Lease:
        began = time.monotonic()
        said, say_at = "", began
        while True:
            with self._mutex():
                found = self._take(request, queue.before(ticket))
            if isinstance(found, Lease):
                return found
            now = time.monotonic()
            text = f"waiting for {request}, {found.text()}"
            if timeout_s is not None and now - began >= timeout_s:
                raise LeaseTimeout(f"gave up after {timeout_s:g} s of {text}")
            if now - began > SILENT_S and (text != said or now >= say_at):
                said, say_at = text, now + SAY_AGAIN_S
                waiting(text)
            # A tenth of the time waited so far: soon enough for short waits, no burden in long ones.
            time.sleep(min(max((now - began) / 10, 0.002), 0.5) * random.uniform(0.5, 1.0))

    @contextmanager
    def _mutex(self) -> Iterator[None]:
        path = str(self.folder / "mutex")
        end = time.monotonic() + MUTEX_PATIENCE_S
        while (descriptor := lock_file.try_lock(path)) is None:
            if time.monotonic() >= end:
                raise LeaseTimeout(
                    f"{path} has been held for {MUTEX_PATIENCE_S:g} s; is a process stopped there?"
                )
            time.sleep(random.uniform(0.001, 0.004))
        try:
            yield
        finally:
            os.close(descriptor)

    # --- under the mutex ---

    def _take(self, request: Request, earlier: Sequence[Waiting]) -> Lease | Obstacles:
        """One attempt: what was asked for, or what is in the way."""
        obstacles = Obstacles()
        held: dict[Unit, int] = {}
        try:
            for unit in request.units:
                descriptor = self._lock(unit, obstacles)
                if descriptor is not None:
                    held[unit] = descriptor
            kept = reserved(earlier, held)
            chosen = choose(request.units, [u for u in held if u not in kept], request.size)
            if chosen is None:
                for unit in kept:
                    obstacles.add(unit.label, "kept for who asked earlier")
                return obstacles
            obstacles = Obstacles()
            port = self._port(request, obstacles)
            if port is None:
                return obstacles
            held[Unit(f"port-{port[0]}.lock", f"port {port[0]}")] = port[1]
            descriptors = [held[unit] for unit in chosen] + [port[1]]
            for descriptor in descriptors:
                lock_file.write_record(
                    descriptor, pid=os.getpid(), what=request.what, since=lock_file.now(), user=os.getuid()
                )
            held = {unit: one for unit, one in held.items() if one not in descriptors}
        finally:
            for descriptor in held.values():
                os.close(descriptor)
        numbers = [request.units.index(u) if u.gpu is None else u.gpu for u in chosen]
        return Lease(chosen, port[0], descriptors, numbers)

    def _lock(self, unit: Unit, obstacles: Obstacles) -> int | None:
        descriptor = self._lock_file(self.folder / unit.name, unit.label, obstacles)
        busy = self._busy(unit) if descriptor is not None else ""
        if busy and descriptor is not None:
            os.close(descriptor)
            obstacles.add(unit.label, busy)
            return None
        return descriptor

    def _lock_file(self, path: Path, label: str, obstacles: Obstacles) -> int | None:
        descriptor = lock_file.try_lock(str(path))
        if descriptor is None:
            obstacles.add(label, f"held by {holder(str(path))}")
            return None
        left = sweep(lock_file.read_record(descriptor))
        if left:
            os.close(descriptor)
            obstacles.add(label, "still used by what a killed run left: " + ", ".join(left))
            return None
        return descriptor

    def _busy(self, unit: Unit) -> str:
        """What somebody who leases nothing does on a GPU; empty when it is idle."""
        used = used_mib(unit.gpu) if unit.gpu is not None else None
        if unit.gpu is None or used is None or used <= self._idle_mib:
            return ""
        who = ", ".join(processes.describe(pid) for pid in users(unit.gpu))
        return f"holding {used:.0f} MiB without a lease" + (f", by {who}" if who else "")

    def _port(self, request: Request, obstacles: Obstacles) -> tuple[int, int] | None:
        """A port and its lock."""
        if request.port is not None:
            path = self._ports / f"port-{request.port}.lock"
            descriptor = self._lock_file(path, f"port {request.port}", obstacles)
            if descriptor is None:
                return None
            taken = port_taken(request.host, request.port)
            if taken:
                os.close(descriptor)
                raise PortTaken(taken)
            return request.port, descriptor
        for number in random.sample(PORTS, len(PORTS)):
            descriptor = lock_file.try_lock(str(self._ports / f"port-{number}.lock"))
            if descriptor is None:
                continue
            if sockets.bind_error(request.host, number) is None:
                return number, descriptor
            os.close(descriptor)
        obstacles.add("every port", f"of {PORTS} taken")
        return None


def reserved(earlier: Sequence[Waiting], free: Iterable[Unit]) -> list[Unit]:
    """Of the free units those that earlier requests are about to take, or gather."""
    there = {unit.name: unit for unit in free}
    kept: list[Unit] = []
    for one in earlier:
        names = [name for name in one.units if name in there][: one.count]
        kept += [there.pop(name) for name in names]
    return kept


def choose(units: Sequence[Unit], free: Sequence[Unit], count: int) -> list[Unit] | None:
    """`count` of the free units: a block that begins at a multiple of its size where there is one, since GPUs
    that are near each other are numbered so; else the first ones.
    """
    if len(free) < count:
        return None
    there = set(free)
    for start in range(0, len(units) - count + 1, max(count, 1)):
        block = units[start : start + count]
        if there.issuperset(block):
            return list(block)
    return list(free[:count])


def holder(path: str) -> str:
    """Who holds a lock file, in words."""
    record = lock_file.read_record(path)
    if not record:
        return "a process that has just taken it"
    what = f" ({record['what']})" if record.get("what") else ""
    return f"pid {record.get('pid')}{what} since {record.get('since')}"


def port_taken(host: str, port: int) -> str:
    """Why a port cannot be listened on, naming who does where that can be seen; empty when it can."""
    error = sockets.bind_error(host, port)
    if error is None:
        return ""
    owners = sockets.holders(sockets.listeners(port), processes.table())
    who = ", ".join(f"pid {processes.describe(pid)}" for pid in sorted(owners))
    return f"port {port} on {host} is taken" + (f" by {who}" if who else f": {error.strerror or error}")
