"""Workloads of a suite, checked; a list of concurrencies becomes one workload each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..model import Lengths, Slo, Workload
from ..yaml_values import seconds, share
from .spec import MOST_REQUESTS, MOST_TOKENS

if TYPE_CHECKING:
    from ..yaml_source import Source
    from ..yaml_types import Keys
    from .spec import LengthsSpec, LognormalParameters, WorkloadSpec

_NAME = re.compile(r"[a-z0-9_]+")
MOST_CHARACTERS = 80
"""Of a name: it stands in file names, behind those of suite and config."""


def build_workloads(source: Source, specs: dict[str, WorkloadSpec]) -> dict[str, tuple[Workload, ...]]:
    """The workloads that each written one stands for: itself, or one for each concurrency of a list."""
    built: dict[str, tuple[Workload, ...]] = {}
    taken: dict[str, str] = {}
    for name, spec in specs.items():
        keys = ("workloads", name)
        if not _NAME.fullmatch(name):
            raise source.error(keys, f"the name {name!r} may hold only a-z, 0-9 and _")
        if len(name) > MOST_CHARACTERS:
            raise source.error(keys, f"the name has {len(name)} characters; at most {MOST_CHARACTERS}")
        built[name] = tuple(_expand(source, keys, name, spec))
        for workload in built[name]:
            if (other := taken.setdefault(workload.name, name)) != name:
                raise source.error(keys, f"the name {workload.name!r} is taken by workloads.{other}")
    return built


def _expand(source: Source, keys: Keys, name: str, spec: WorkloadSpec) -> list[Workload]:
    levels = spec.concurrency
    if not isinstance(levels, list):
        return [_workload(source, keys, name, spec, levels)]
    at = (*keys, "concurrency")
    if not levels:
        raise source.error(at, "an empty list")
    if len(set(levels)) < len(levels):
        raise source.error(at, "the same concurrency twice")
    return [_workload(source, keys, f"{name}_c{level}", spec, level) for level in levels]


def _workload(source: Source, keys: Keys, name: str, spec: WorkloadSpec, concurrency: int | None) -> Workload:
    _check_drive(source, keys, spec, concurrency)
    if spec.dataset is not None and not (Path(source.file).parent / spec.dataset).is_file():
        raise source.error((*keys, "dataset"), f"no file {spec.dataset!r} beside the suite")
    if isinstance(spec.warmup, int) and spec.warmup < 0:
        raise source.error((*keys, "warmup"), "cannot be negative")
    if isinstance(spec.warmup, int) and spec.warmup > MOST_REQUESTS:
        raise source.error((*keys, "warmup"), f"expected a whole number <= {MOST_REQUESTS}")
    by_time = isinstance(spec.warmup, str)
    return Workload(
        name=name,
        concurrency=concurrency,
        request_rate=spec.request_rate,
        arrival=spec.arrival,
        requests=spec.requests,
        duration=(
            seconds(source, (*keys, "duration"), spec.duration, zero=False)
            if spec.duration is not None
            else None
        ),
        input_tokens=_lengths(source, keys, "input_tokens", spec),
        output_tokens=_lengths(source, keys, "output_tokens", spec),
        dataset=spec.dataset,
        shared_prefix=share(source, (*keys, "shared_prefix"), spec.shared_prefix),
        cache=spec.cache,
        warmup=0 if isinstance(spec.warmup, str) else spec.warmup,
        warmup_seconds=seconds(source, (*keys, "warmup"), spec.warmup) if by_time else 0.0,
        rounds=spec.rounds,
        api=spec.api,
        ignore_eos=spec.ignore_eos,
        temperature=spec.temperature,
        seed=spec.seed,
        slo=_slo(source, keys, spec),
        stall=seconds(source, (*keys, "stall"), spec.stall, zero=False),
        prompt_tolerance=share(source, (*keys, "prompt_tolerance"), spec.prompt_tolerance),
        busy_machine=spec.busy_machine,
    )


def _check_drive(source: Source, keys: Keys, spec: WorkloadSpec, concurrency: int | None) -> None:
    """Exactly one thing says how many requests there are, and at most one how they are sent."""
    if concurrency is not None and not 1 <= concurrency <= MOST_REQUESTS:
        limit = ">= 1" if concurrency < 1 else f"<= {MOST_REQUESTS}"
        raise source.error((*keys, "concurrency"), f"expected a whole number {limit}, got {concurrency}")
    if concurrency is not None and spec.request_rate is not None:
        raise source.error((*keys, "request_rate"), "excludes concurrency; give one of the two")
    if (spec.requests is None) == (spec.duration is None):
        raise source.error(keys, "give requests or duration, one of the two")
    if spec.duration is not None and concurrency is None and spec.request_rate is None:
        raise source.error((*keys, "duration"), "needs concurrency or request_rate")
    if spec.requests is not None and concurrency is not None and spec.requests < concurrency:
        raise source.error(
            (*keys, "requests"), f"{spec.requests} requests never make a concurrency of {concurrency}"
        )


def _lengths(source: Source, keys: Keys, name: str, spec: WorkloadSpec) -> Lengths:
    written: int | LengthsSpec | None = getattr(spec, name)
    at = (*keys, name)
    if written is None:
        if spec.dataset is None:
            raise source.error(keys, f"the key {name!r} is missing")
        return Lengths()  # the dataset's own
    if isinstance(written, int):
        return Lengths(mean=written)
    if (written.uniform is None) == (written.lognormal is None):
        raise source.error(
            at, "give a number, {uniform: [low, high]} or {lognormal: {mean: ..., sigma: ...}}"
        )
    if written.uniform is not None:
        low, high = written.uniform
        if not 1 <= low <= high <= MOST_TOKENS:
            raise source.error(
                (*at, "uniform"),
                f"expected [low, high] with 1 <= low <= high <= {MOST_TOKENS}, got {written.uniform}",
            )
        return Lengths(kind="uniform", mean=(low + high) / 2, low=low, high=high)
    assert written.lognormal is not None
    return _lognormal(source, (*at, "lognormal"), written.lognormal)


def _lognormal(source: Source, keys: Keys, written: LognormalParameters) -> Lengths:
    if not 1 <= written.low <= written.mean <= written.high <= MOST_TOKENS:
        raise source.error(keys, f"expected 1 <= low <= mean <= high <= {MOST_TOKENS}")
    if not 0 < written.sigma < 10:
        raise source.error((*keys, "sigma"), f"expected a number between 0 and 10, got {written.sigma}")
    return Lengths(
        kind="lognormal", mean=written.mean, sigma=written.sigma, low=written.low, high=written.high
    )


def _slo(source: Source, keys: Keys, spec: WorkloadSpec) -> Slo | None:
    if spec.slo is None:
        return None
    slo = Slo(ttft_ms=spec.slo.ttft_ms, tpot_ms=spec.slo.tpot_ms, e2e_ms=spec.slo.e2e_ms)
    if slo == Slo():
        raise source.error((*keys, "slo"), "limits nothing; give ttft_ms, tpot_ms or e2e_ms")
    return slo
