"""Replays measured rounds into pytest-benchmark, so that its JSON, comparisons and histograms work on them.

pytest-benchmark knows one quantity, seconds, and lower is better. A round is told to it as seconds per output
token on a clock that only we move: then its OPS column is tok/s and everything it compares points the right
way. It archives, it does not decide: its own gate fails no test, and it is off under pytest-xdist.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from .figures import flat, simulated, valid_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..model import Host
    from ..record import Record

FIXTURE = "benchmark"


class TokenClock:
    """A timer for pytest-benchmark that advances by measured seconds per output token."""

    __name__ = "seconds_per_output_token"  # shown as the timer in its JSON, instead of an address

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


CLOCK = TokenClock()


def available(config: pytest.Config) -> bool:
    """False under `-p no:benchmark`, where neither the fixture nor the mark exists."""
    return config.pluginmanager.hasplugin("benchmark")


def mark(config: pytest.Config) -> tuple[pytest.MarkDecorator, ...]:
    """The mark that a case needs so that its replay is timed by the token clock; none without
    pytest-benchmark."""
    return (pytest.mark.benchmark(timer=CLOCK),) if available(config) else ()


def seconds_per_token(record: Record) -> list[float]:
    """Of every round whose numbers may be used, in the order in which they were measured."""
    return [
        1 / rate
        for rounds in valid_rounds(record)
        for round_ in rounds
        if (rate := round_.metrics.output_throughput) is not None and rate > 0
    ]


def replay(benchmark: Any, record: Record) -> None:
    """Tell the `benchmark` fixture of a measured case: a round of its for each of ours, the figures as
    `extra_info`.

    Nothing happens without figures. With pytest-benchmark disabled (under pytest-xdist) nothing is archived;
    our own records are complete all the same.
    """
    samples = seconds_per_token(record)
    if not samples:
        return
    # Simulated figures form a group of their own, so that no table ranks them beside measured ones.
    benchmark.group = f"{record.suite} (simulated)" if simulated(record) else record.suite
    benchmark.extra_info.update(flat(record))
    pending = iter(samples)
    benchmark.pedantic(lambda: CLOCK.advance(next(pending)), rounds=len(samples))


def archive(request: pytest.FixtureRequest, record: Record) -> None:
    """`replay` with the fixture asked for only now: a case without figures then has no unused fixture to warn
    of."""
    if available(request.config) and seconds_per_token(record):
        replay(request.getfixturevalue(FIXTURE), record)


@contextmanager
def counted_as_benchmarks(items: Sequence[pytest.Item]) -> Iterator[None]:
    """Around the other plugins' `pytest_collection_modifyitems`: `--benchmark-only` keeps these items and
    `--benchmark-skip` skips them, although their signature does not name the fixture."""
    names: dict[int, list[str]] = {
        id(closure): closure
        for item in items
        if isinstance(closure := getattr(item, "fixturenames", None), list) and FIXTURE not in closure
    }
    for closure in names.values():  # shared by the cases of a suite, so each is changed once
        closure.append(FIXTURE)
    try:
        yield
    finally:
        for closure in names.values():
            closure.remove(FIXTURE)


def machine_info(host: Host) -> dict[str, str | int | float | bool]:
    """For `pytest_benchmark_update_machine_info`: what identifies the GPUs, nothing that varies from day to
    day."""
    return {
        "profile": host.profile,
        "product": host.product,
        "count": host.count,
        "compute_capability": host.compute_capability,
        "topology": host.topology,
        "simulated": host.simulated,
    }
