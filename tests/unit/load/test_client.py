"""The loop itself: the clock, stamps, naps, progress, and what it says of its own errors."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.load import client, clock, metrics, traffic
from pytest_gpuserve.load.clock import Offset, read_offset
from pytest_gpuserve.load.connection import await_stamps
from pytest_gpuserve.model import Lengths

from .conftest import APIS, Step, chunk, measure, stream, workload
from .test_faults import GOOD, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.load.client import Progress

    from .conftest import Loopback

    Start = Callable[..., Loopback]


def paced(tokens: int, gap: float) -> list[Step]:
    """One token every `gap` seconds."""
    head, *_ = stream("x", end=False).partition(b"\r\n\r\n")
    steps = [Step(0.001, head + b"\r\n\r\n")]
    steps += [Step(gap * (i + 1), chunk(text().encode() + b"\n\n")) for i in range(tokens)]
    usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 0}
    last = chunk(text("", finish="length", usage=usage).encode() + b"\n\n") + chunk(b"data: [DONE]\n\n")
    return [*steps, Step(gap * tokens, last + b"0\r\n\r\n")]


def load(**changes: Any) -> Any:
    return workload(output_tokens=Lengths(mean=40), **changes)


def test_the_offset_of_the_two_clocks() -> None:
    offset = read_offset()
    assert abs(time.time_ns() - time.monotonic_ns() - offset.ns) < 5e6
    assert 0 <= offset.uncertainty_ns < 1e6


def test_the_kernel_stamps_before_the_clock_starts() -> None:
    assert await_stamps(2.0)


def test_a_clock_that_is_set_during_the_round_is_noticed(
    loopback: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reading is right, later ones are an hour off: the kernel's stamps cannot be trusted."""
    readings: list[int] = []

    def moved(tries: int = 50) -> Offset:
        true = read_offset(tries)
        readings.append(tries)
        return true if len(readings) == 1 else Offset(true.ns + 3_600_000_000_000, true.uncertainty_ns)

    monkeypatch.setattr(client, "read_offset", moved)
    server = loopback(lambda _: paced(40, 0.005))
    samples = measure(server.target, load())
    assert samples.health.clock_steps == 1
    assert any("clock was set" in reason for reason in metrics.summarise(samples, load()).invalid)


def test_a_clock_that_is_slewed_is_followed(loopback: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 us a reading: no step, and stamps of later tokens are mapped with the later offset."""
    drift = [0]

    def slewed(tries: int = 50) -> Offset:
        drift[0] += 20_000
        return Offset(read_offset(tries).ns + drift[0], 50)

    monkeypatch.setattr(client, "read_offset", slewed)
    samples = measure(loopback(lambda _: paced(40, 0.005)).target, load())
    assert samples.health.clock_steps == 0 and drift[0] > 60_000
    assert drift[0] < clock.STEP_NS * 2


def test_progress(loopback: Start) -> None:
    seen: list[Progress] = []
    measure(
        loopback(lambda _: paced(40, 0.005)).target, load(requests=2, concurrency=2), progress=seen.append
    )
    assert len(seen) >= 2 and seen[-1].chunks > seen[0].chunks >= 0
    assert seen[0].sent == seen[0].in_flight == 2 and seen[-1].elapsed_s > seen[0].elapsed_s


def test_progress_is_in_the_time_of_the_workload(loopback: Start) -> None:
    seen: list[Progress] = []
    server = loopback(lambda _: paced(40, 0.005))
    measure(server.target, load(), progress=seen.append, time_scale=0.05)
    assert seen[0].elapsed_s > 0.9


def test_naps_do_not_cost_a_stamp(loopback: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight streams at 10 ms a token: the client naps between them, and every token keeps its own stamp."""
    naps: list[float] = []
    nap = client.Round._nap

    def watched(self: Any, chunks: int) -> float:
        naps.append(nap(self, chunks))
        return naps[-1]

    monkeypatch.setattr(client.Round, "_nap", watched)
    server = loopback(lambda _: paced(60, 0.01))
    samples = measure(server.target, load(requests=8, concurrency=8))
    assert max(naps) > 0 or samples.health.merged, "a stamp lost to a busy machine keeps it awake"
    assert samples.health.merged <= 0.5 * samples.health.chunks
    assert all(len(s.stamps) == 60 for s in samples.requests)


def idle_round(server: Loopback) -> client.Round:
    """One that has not begun."""
    api = APIS["completions"]
    made = traffic.plan(workload(), api, seed=0, round_index=0, folder=Path())
    return client.Round(server.target, api, made, 1.0, None, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"in_flight": 2},
        {"sent": 100},
        {"merged": 1},
        {"stamp_source": "user"},
        {"chunks": 3},
    ],
)
def test_no_nap_where_it_could_do_harm(loopback: Start, change: dict[str, Any]) -> None:
    """Few streams, short requests, a stamp just lost, stamps in user space, too little to read."""
    server = loopback(stream(*GOOD))

    def ready(**changes: Any) -> float:
        round_ = idle_round(server)
        state = {"in_flight": 16, "sent": 16, "merged": 0, "stamp_source": "kernel", "chunks": 1000} | changes
        round_.in_flight, round_.sent = state["in_flight"], state["sent"]
        round_.health.merged, round_.health.stamp_source = state["merged"], state["stamp_source"]
        return round_._nap(state["chunks"])

    assert ready() > 0
    assert ready(**change) == 0


def test_the_garbage_collector_is_left_as_it_was(loopback: Start) -> None:
    target = loopback(stream(*GOOD)).target
    during: list[bool] = []
    assert gc.isenabled()
    measure(
        loopback(lambda _: paced(40, 0.005)).target, load(), progress=lambda _: during.append(gc.isenabled())
    )
    assert during and not any(during) and gc.isenabled()
    gc.disable()
    try:
        measure(target)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_tokens_that_one_write_sends_are_merged_and_counted(loopback: Start) -> None:
    """Four tokens in one write have one stamp: three lost theirs, and not because the client was late."""
    server = loopback(lambda _: [Step(0.05, stream(*GOOD))])
    for _ in range(20):  # a machine with other work may hold up the client in one of them
        samples = measure(server.target)
        assert (samples.health.chunks, samples.health.merged) == (4, 3)
        if samples.health.late_merged == 0:
            break
    assert samples.health.late_merged == 0
    assert len(set(samples.requests[0].stamps)) == 1
    assert samples.health.lost.n == 3 and samples.health.lost_first.n == 1


def test_the_bound_holds_for_a_client_that_was_held_up(
    loopback: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is stopped for 30 ms again and again: stamps are lost, and the bound says by how much at
    most."""
    tick = client.Round._tick

    def slow(self: Any, now: int) -> bool:
        time.sleep(0.03)
        return tick(self, now)

    monkeypatch.setattr(client.Round, "_tick", slow)
    server = loopback(lambda _: paced(40, 0.005))
    samples = measure(server.target, load())
    (sample,) = samples.requests
    written = {round(at * 1e3): before for at, before, _ in server.sent}
    gaps = [
        (b - a) - (written[5 * (i + 2)] - written[5 * (i + 1)])
        for i, (a, b) in enumerate(zip(sample.stamps, sample.stamps[1:], strict=False))
    ]
    bound = metrics.summarise(samples, load()).client.itl_error_bound_ms
    assert samples.health.merged > 4 and bound is not None
    assert sorted(abs(g) / 1e6 for g in gaps)[int(len(gaps) * 0.99) - 1] <= bound
    assert bound < 200


def test_the_bound_holds_for_a_client_that_did_not_get_to_run(
    loopback: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in epoll, a token arrives, and it is not woken for 30 ms: only the kernel's count of that
    tells."""
    waiting = [0]

    class Delayed(clock.RunDelay):
        def take_ns(self) -> int:
            found, waiting[0] = waiting[0], 0
            return found

    real = client.Round._wait

    def late(self: Any, now: int, tick: int) -> float:
        seconds = real(self, now, tick)
        if self.health.chunks and waiting[0] == 0:
            self.poller.poll(seconds)
            time.sleep(0.03)
            waiting[0] = 30_000_000
        return seconds

    monkeypatch.setattr(client, "RunDelay", Delayed)
    monkeypatch.setattr(client.Round, "_wait", late)
    samples = measure(loopback(lambda _: paced(40, 0.005)).target, load())
    assert samples.health.merged >= 10
    assert (samples.health.lost.quantile_ns(0.9) or 0) >= 15_000_000
    assert samples.health.late_merged > 0.5 * samples.health.merged


def test_the_time_that_a_thread_waited_to_run() -> None:
    delay = clock.RunDelay()
    if not delay.known:
        pytest.skip("no schedstat here")
    assert 0 <= delay.take_ns() < 10e9
    delay.close()
    assert delay.take_ns() == 0 and not delay.known


@pytest.mark.parametrize(("due_ms", "least", "most"), [(1.4, 1.4, 0), (0.3, 0.3, 0), (7.6, 0, 7), (0, 0, 0)])
def test_the_wait_never_reaches_beyond_what_is_due(
    loopback: Start, due_ms: float, least: float, most: float
) -> None:
    """epoll counts whole milliseconds: the last one is slept through with a finer clock."""
    round_ = idle_round(loopback(stream(*GOOD)))
    round_.traffic.mode = "open"
    round_.traffic._ready[0].due_ns = int(due_ms * 1e6)
    began = time.monotonic()
    seconds = round_._wait(0, client.TICK_NS)
    assert time.monotonic() - began >= least * 1e-3
    assert seconds * 1e3 <= most
