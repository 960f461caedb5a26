"""A ready server under one workload: warm-up, then rounds, each with an empty cache and its own prompts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ..errors import CaseError, Crashed, Invalid
from ..load import client, metrics, traffic
from ..load.validity import SATURATED, TOGETHER
from .gpu_watch import GpuWatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..engines.base import Counters, Engine, Site
    from ..load.api import Api, Target
    from ..load.client import Samples
    from ..model import Config, Workload
    from ..record import Round

T = TypeVar("T")

DEATH_NOTICE_S = 3.0
"""SGLang's own watchdog looks at its children every second before it ends."""

WAYS_OUT = {
    "no_done": "if it never sends one, say `args: {done: false}` in the config",
    "closed_early": "if it does so after each stream, say `args: {keep-alive: false}` in the config",
}
"""For engine openai, which supposes how a server speaks: reason of a request's failure -> what to write."""
BUSY = "where the machine has other work, `busy_machine: true` in the workload makes it a warning"

WARMUP_ROUND = -1
"""Its prompts are drawn for a round that is never measured, so no round finds them cached."""


class Running(Protocol):
    """The part of a running server that measuring needs; `serving.server.Server` is one."""

    target: Target
    log: Path
    gpus: tuple[int, ...]
    """Those that it has leased, as NVML counts; none on the simulated host or without GPUs."""

    def owns(self, pid: int) -> bool | None: ...
    def failed(self) -> bool: ...
    def crash(self) -> CaseError: ...
    def stall(self) -> CaseError: ...


def accept_length(before: Counters | None, after: Counters | None) -> float | None:
    """Tokens per verify pass between two readings of an engine's totals, the bonus token included; None if unknown."""
    if before is None or after is None or before.verify_passes is None or after.verify_passes is None:
        return None
    passes = after.verify_passes - before.verify_passes
    if passes <= 0:
        return None
    if before.accepted_tokens is not None and after.accepted_tokens is not None:
        return 1 + (after.accepted_tokens - before.accepted_tokens) / passes
    if before.generated_tokens is not None and after.generated_tokens is not None:
        return (after.generated_tokens - before.generated_tokens) / passes
    return None


class Measurement:
    """One workload on one server. `seed` keeps the prompts of launches apart; the same seed gives the same bytes."""

    def __init__(
        self,
        server: Running,
        engine: Engine,
        config: Config,
        workload: Workload,
        site: Site,
        *,
        folder: Path,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._engine = engine
        self._config = config
        self._workload = workload
        self._site = site
        self._folder = folder
        self._seed = seed
        self._say = say

    def rounds(self) -> list[Round]:
        """Warm up, then measure every round. Raises Crashed or Stalled, and Invalid for a server that speaks otherwise
        than its engine says; failed requests make a round invalid.
        """
        workload = self._workload
        api = self._engine.api(self._config, workload, self._site)
        self._warm_up(api)
        measured: list[Round] = []
        for index in range(workload.rounds):
            measured.append(self._round(api, index))
            result = measured[-1]
            speed = result.metrics.output_throughput
            self._say(
                f"round {index + 1}/{workload.rounds}: "
                + ("invalid: " + "; ".join(result.invalid) if result.invalid else f"{speed or 0:.1f} tok/s")
            )
        return measured

    def _warm_up(self, api: Api) -> None:
        workload = traffic.warmup(self._workload)
        if workload is None:
            return
        samples = self._run(api, workload, WARMUP_ROUND)
        if samples.all_failed:
            told = f"every warm-up request failed: {samples.first_failure}"
            if samples.first_failure.startswith("no_done"):  # it has answered, to the end
                raise Invalid(with_way_out(told, self._engine.name))
            raise Crashed(told)

    def _round(self, api: Api, index: int) -> Round:
        workload, engine, target = self._workload, self._engine, self._server.target
        if workload.cache == "cold":
            self._ask(lambda: engine.flush(target), "flush its cache")
        before = self._ask(lambda: engine.counters(target), "tell its counters")
        start = log_size(self._server.log)
        with GpuWatch(self._server.gpus, self._server.owns) as watch:
            samples = self._run(api, workload, index)
        after = self._ask(lambda: engine.counters(target), "tell its counters")
        result = metrics.summarise(
            samples,
            workload,
            time_scale=self._site.time_scale,
            accept_length=accept_length(before, after) if engine.speculative(self._config) else None,
        )
        against = (
            engine.round_warnings(self._server.log, start, log_size(self._server.log)),
            watch.findings(),
        )
        if self._site.time_scale != 1:
            result = excused(result)
        result = msgspec.structs.replace(
            result, invalid=[with_way_out(reason, engine.name) for reason in result.invalid]
        )
        for invalid, warnings in against:
            result = msgspec.structs.replace(
                result, invalid=[*result.invalid, *invalid], warnings=[*result.warnings, *warnings]
            )
        return result

    def _ask(self, call: Callable[[], T], what: str) -> T:
        """A control call between rounds. Raises Crashed, with the root error when the server has ended."""
        import requests

        try:
            return call()
        except requests.RequestException as error:
            if self._has_failed_within(DEATH_NOTICE_S):
                raise self._server.crash() from error
            raise Crashed(f"the server lives, but when asked to {what}: {error}") from error

    def _has_failed_within(self, seconds: float) -> bool:
        """A dying server refuses connections a moment before its end is seen."""
        until = time.monotonic() + seconds
        while not self._server.failed():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _run(self, api: Api, workload: Workload, index: int) -> Samples:
        server, scale = self._server, self._site.time_scale
        plan = traffic.plan(
            workload, api, seed=self._seed, round_index=index, folder=self._folder, time_scale=scale
        )
        samples = client.run(
            server.target, api, plan, stall_s=workload.stall * scale, interrupt=server.failed
        )
        if samples.stalled and not server.failed():
            raise server.stall()
        if server.failed() or (samples.all_failed and self._has_failed_within(DEATH_NOTICE_S)):
            raise server.crash()
        return samples


def excused(result: Round) -> Round:
    """In compressed time a busy client is no reason against a round, but a warning.

    The simulated host sends tokens many times faster than the server that it stands for, so that the limits, which
    are for real servers, would blame a laptop for figures that are never used as measured ones.
    """
    blamed = [reason for reason in result.invalid if reason.startswith(SATURATED)]
    return msgspec.structs.replace(
        result,
        invalid=[reason for reason in result.invalid if reason not in blamed],
        warnings=[*result.warnings, *blamed],
    )


def with_way_out(reason: str, engine: str) -> str:
    """A reason against a round or a warm-up, with the setting of the suite that is there for it."""
    if reason.startswith((SATURATED, TOGETHER)):
        return f"{reason}; {BUSY}"
    for failure, way in WAYS_OUT.items() if engine == "openai" else ():
        if f"failed: {failure}" in reason:
            return f"{reason}; {way}"
    return reason


def log_size(log: Path) -> int:
    """Bytes written so far; 0 before the first."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0
