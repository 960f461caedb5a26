"""The GPUs of a server during a round: whether something held their clocks down, or somebody else used them.

A thread asks NVML every half second, asleep in between; NVML's calls leave the interpreter to the client.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from . import gpus as devices
from . import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

PAUSE_S = 0.5
"""Between two looks; all looks together take a hundredth of a core, which a test holds to a twentieth."""
THERMAL_POLICY = 1
"""NVML_PERF_POLICY_THERMAL: the driver's own count of time lost to heat, which no pause can miss."""
LOST_SHARE = 0.01
"""Of the round, lost to heat by that count, from which the round is invalid."""
TWICE = 2
"""A process that is not in the process table may have ended between two looks; seen twice, it has not."""


class Reason(NamedTuple):
    """A bit of NVML's clock event reasons. Idle and application clocks are no reason against a round."""

    bit: int
    text: str
    invalid: bool


REASONS = (
    Reason(0x08, "hardware slowdown", True),
    Reason(0x20, "software thermal slowdown", True),
    Reason(0x40, "hardware thermal slowdown", True),
    Reason(0x80, "hardware power brake", True),
    Reason(0x04, "power limit", False),
)


@dataclass
class Seen:
    """What one GPU has shown."""

    samples: int = 0
    """Looks at which the reasons could be read."""
    held: dict[Reason, int] = field(default_factory=dict)
    """Looks at which a reason held."""
    lowest_mhz: int | None = None
    """Of the SM clock while a reason held."""
    lost_ns: int | None = None
    """To heat, over the round; None where the driver does not count it."""
    ours: bool = False
    """One of the server's processes was seen on it, so that the numbers are those of our process table."""
    mps: bool = False
    """It is used through an MPS server, which is nobody's."""
    others: dict[int, str] = field(default_factory=dict)
    strangers: dict[int, int] = field(default_factory=dict)
    """Numbers that are not in the process table, and how often they were seen."""


class GpuWatch:
    """Watch `gpus` while the block runs; nothing happens where there are none, or no driver.

    owns
        Whether a process is the server's; None when there is no process of that number.
    """

    def __init__(
        self,
        gpus: Sequence[int],
        owns: Callable[[int], bool | None],
        *,
        nvml: Any = None,
        pause: float = PAUSE_S,
    ) -> None:
        self._nvml: Any = (nvml or devices.library()) if gpus else None
        self._gpus = tuple(gpus) if self._nvml is not None else ()
        self._owns = owns
        self._pause = pause
        self._handles: dict[int, Any] = {}
        self._known: dict[int, bool | None] = {}
        self._servers: set[int] = set()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._seconds = 0.0
        self.seen: dict[int, Seen] = {}
        self.cpu_s = 0.0
        """What watching has cost, in seconds of one core."""

    def __enter__(self) -> GpuWatch:
        self._began = time.monotonic()
        if self._gpus:
            for index in self._gpus:
                self.seen[index] = Seen(lost_ns=self._lost(index))
            self._thread = threading.Thread(target=self._watch, name="gpu-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds = time.monotonic() - self._began
        if self._thread is None:
            return
        self._over.set()
        self._thread.join()
        for index, seen in self.seen.items():
            now = self._lost(index)
            seen.lost_ns = None if now is None or seen.lost_ns is None else now - seen.lost_ns

    def findings(self) -> tuple[list[str], list[str]]:
        """(reasons that the round is invalid, warnings), once the block is over."""
        invalid: list[str] = []
        warnings: list[str] = []
        for index, seen in self.seen.items():
            _clocks(f"GPU {index}", seen, self._seconds, invalid, warnings)
            _users(f"GPU {index}", seen, invalid, warnings)
        return invalid, warnings

    # --- the thread ---

    def _watch(self) -> None:
        began = time.thread_time()
        while True:
            for index, seen in self.seen.items():
                self._look(index, seen)
            self.cpu_s = time.thread_time() - began
            if self._over.is_set():
                return  # the last look is after the end, so that even a short round has two
            self._over.wait(self._pause)

    def _look(self, index: int, seen: Seen) -> None:
        nvml = self._nvml
        try:
            handle = self._handle(index)
            bits = self._reasons(handle)
            seen.samples += 1
            held = [reason for reason in REASONS if bits & reason.bit]
            for reason in held:
                seen.held[reason] = seen.held.get(reason, 0) + 1
            if held:
                clock = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
                seen.lowest_mhz = min(clock, seen.lowest_mhz or clock)
        except nvml.NVMLError:
            pass  # no sample more: `findings` says so when there was none
        for pid in devices.users(index, nvml):
            self._meet(pid, seen)

    def _meet(self, pid: int, seen: Seen) -> None:
        if pid in self._servers:
            seen.mps = True
            return
        known = self._known.get(pid)
        if known is None:  # whoever was not in the table may have been starting
            known = self._known[pid] = self._owns(pid)
            if not known and devices.is_mps_server(pid, self._nvml):
                self._servers.add(pid)
                seen.mps = True
                return
        match known:
            case True:
                seen.ours = True
            case False if pid not in seen.others:
                seen.others[pid] = processes.describe(pid)
            case None:
                seen.strangers[pid] = seen.strangers.get(pid, 0) + 1

    # --- NVML ---

    def _handle(self, index: int) -> Any:
        if index not in self._handles:
            self._handles[index] = self._nvml.nvmlDeviceGetHandleByIndex(index)
        return self._handles[index]

    def _reasons(self, handle: Any) -> int:
        """The bits under the call's new name, or under the old one where library or driver are older."""
        nvml = self._nvml
        try:
            return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except (AttributeError, nvml.NVMLError):
            return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    def _lost(self, index: int) -> int | None:
        """Nanoseconds lost to heat since the driver was loaded."""
        try:
            status = self._nvml.nvmlDeviceGetViolationStatus(self._handle(index), THERMAL_POLICY)
        except (AttributeError, self._nvml.NVMLError):
            return None
        return int(status.violationTime)


def _clocks(gpu: str, seen: Seen, seconds: float, invalid: list[str], warnings: list[str]) -> None:
    if not seen.samples:
        warnings.append(f"{gpu}: whether its clocks were held down cannot be read here")
    for reason, count in seen.held.items():
        clock = f", {seen.lowest_mhz} MHz at the lowest" if seen.lowest_mhz else ""
        what = f"{reason.text} in {count} of {seen.samples} samples{clock}"
        if reason.invalid:
            invalid.append(f"{gpu} throttled: {what}")
        else:
            warnings.append(f"{gpu}: clocks held down by the {what}")
    if seen.lost_ns and not any(reason.invalid for reason in seen.held):
        lost = seen.lost_ns / 1e9
        text = f"{gpu} throttled: {lost:.2g} s of {seconds:.3g} s lost to heat, by the driver's count"
        (invalid if lost > LOST_SHARE * seconds else warnings).append(text)


def _users(gpu: str, seen: Seen, invalid: list[str], warnings: list[str]) -> None:
    others = list(seen.others.values())
    strangers = [pid for pid, times in seen.strangers.items() if times >= TWICE]
    if seen.ours:
        others += [f"{pid} (of another container, or ended by now)" for pid in strangers]
    elif strangers:
        # In a container the driver may show the numbers of the host, our own processes' too.
        warnings.append(
            f"{gpu}: whether another process used it cannot be told: the driver shows process "
            f"{', '.join(map(str, strangers))}, which is not in this process table"
        )
    elif seen.mps and not others:
        warnings.append(
            f"{gpu}: whether another process used it cannot be told: it is used through MPS, and the driver "
            "does not show the clients"
        )
    if others:
        invalid.append(f"{gpu} was used by another process as well: {', '.join(others)}")
