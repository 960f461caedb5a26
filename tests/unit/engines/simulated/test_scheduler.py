"""Pacing on a clock that the test moves, so that it is exact."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.simulated import scheduler as module
from pytest_gpuserve.engines.simulated.log import Log
from pytest_gpuserve.engines.simulated.perturb import Change
from pytest_gpuserve.engines.simulated.profile import DEFAULT_PROFILE, load_profile, load_version
from pytest_gpuserve.engines.simulated.scheduler import Generation, Refused, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROFILE = load_profile()
SERVE = load_version(DEFAULT_PROFILE, "story").serve
SCALE = 0.05


class Clock:
    """Stands in for the loop and for `time`: timers are called when due, or later where `late` says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.late: dict[int, float] = {}
        """By number of the timer: seconds by which the machine is late there."""
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._called = itertools.count()

    def at(self, moment: float, callback: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (moment, next(self._order), callback))

    def run(self) -> None:
        while self._timers:
            moment, _, callback = heapq.heappop(self._timers)
            self.now = max(self.now, moment) + self.late.get(next(self._called), 0.0)
            callback()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class Stamps:
    """A sink that keeps (moment, tokens so far) of each step."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.steps: list[tuple[float, int]] = []
        self.text = ""
        self.last = False

    def step(self, generation: Generation, piece: str, ids: Sequence[int], last: bool) -> None:
        self.steps.append((self._clock.now, generation.tokens))
        self.text += piece
        self.last = last


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(Log, "_write", staticmethod(lambda lines: None))
    return clock


def scheduler(
    clock: Clock, serving: str = "no-spec", change: Change | None = None, speedup: float = 1.0
) -> Scheduler:
    loop: Any = clock
    return Scheduler(
        loop,
        Log(8, milliseconds=False),
        PROFILE,
        PROFILE.serving[serving],
        SERVE,
        change=change or Change(),
        open_speedup=speedup,
        time_scale=SCALE,
        pool_tokens=1000,
    )


def run(clock: Clock, one: Scheduler, prompt: Sequence[Any] = range(128), wanted: int = 512) -> Stamps:
    stamps = Stamps(clock)
    one.submit(list(prompt), wanted, stamps)
    clock.run()
    return stamps


@pytest.mark.parametrize(
    ("serving", "throughput"), [("no-spec", 89.5), ("eagle3", 54.1), ("custom-allreduce-pcie", 38)]
)
def test_a_request_has_the_throughput_of_its_profile(clock: Clock, serving: str, throughput: float) -> None:
    start = clock.now
    stamps = run(clock, scheduler(clock, serving))
    assert stamps.last and stamps.steps[-1][1] == 512
    assert 512 / (clock.now - start) * SCALE == pytest.approx(throughput, rel=1e-6)


def test_steps_are_even(clock: Clock) -> None:
    stamps = run(clock, scheduler(clock))
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(stamps.steps)]
    assert len(gaps) == 511
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-6)


@pytest.mark.parametrize(
    ("change", "speedup", "factor"), [(0.08, 1.0, 0.92), (-0.1, 1.0, 1.1), (0.0, 1.1, 1.1)]
)
def test_perturbed_speed(clock: Clock, change: float, speedup: float, factor: float) -> None:
    start = clock.now
    run(clock, scheduler(clock, change=Change(slowdown=change), speedup=speedup))
    assert 512 / (clock.now - start) * SCALE == pytest.approx(89.5 * factor, rel=1e-6)


def test_after_a_hiccup_it_catches_up(clock: Clock) -> None:
    start = clock.now
    clock.late = {100: 0.02}  # of the 0.29 s that it takes
    run(clock, scheduler(clock))
    assert 512 / (clock.now - start) * SCALE == pytest.approx(89.5, rel=1e-6)


def test_a_late_end_is_given_back_to_the_next_request(clock: Clock) -> None:
    one, start = scheduler(clock), clock.now
    clock.late = {511: 0.004}
    run(clock, one)
    assert 512 / (clock.now - start) * SCALE == pytest.approx(88.3, abs=0.1)
    first = clock.now
    stamps = run(clock, one, range(500, 628))
    assert 1024 / (clock.now - start) * SCALE == pytest.approx(89.5, rel=1e-6)
    assert (stamps.steps[0][0] - first) / SCALE == pytest.approx(
        0.061, rel=1e-6
    )  # its first token comes in time


def test_after_a_pause_nothing_is_given_back(clock: Clock) -> None:
    one = scheduler(clock)
    clock.late = {511: 0.004}
    run(clock, one)
    clock.now += 1
    start = clock.now
    run(clock, one, range(500, 628))
    assert 512 / (clock.now - start) * SCALE == pytest.approx(89.5, rel=1e-6)


def test_prompts_that_were_seen_come_from_the_cache(clock: Clock) -> None:
    one = scheduler(clock)
    run(clock, one, range(100), 8)
    assert one.submit([*range(60), *range(200, 240)], 8, Stamps(clock)).cached == 60
    clock.run()
    assert one.submit(list(range(100)), 8, Stamps(clock)).cached == 99  # the last token is always computed
    clock.run()
    assert one.flush()
    assert one.submit(list(range(100)), 8, Stamps(clock)).cached == 0


def test_the_cache_is_not_emptied_under_a_request(clock: Clock) -> None:
    one = scheduler(clock)
    one.submit([1, 2], 8, Stamps(clock))
    assert not one.flush()


def test_speculation_counts_its_passes(clock: Clock) -> None:
    one = scheduler(clock, "eagle3")
    stamps = Stamps(clock)
    generation = one.submit(list(range(128)), 512, stamps)
    clock.run()
    assert generation.passes == one.counters.passes == sum(generation.histogram) == len(stamps.steps) - 1
    assert sum((accepted + 1) * count for accepted, count in enumerate(generation.histogram)) == 511
    assert 512 / generation.passes == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize(
    ("prompt", "wanted", "error"),
    [
        (range(4000), 8, "prompts of 1 to 2048 tokens, not 4000"),
        (range(8), 0, "answers of 1 to 4096 tokens, not 0"),
    ],
)
def test_lengths_of_which_nothing_is_known_are_refused(
    clock: Clock, prompt: range, wanted: int, error: str
) -> None:
    with pytest.raises(Refused, match=error):
        scheduler(clock).submit(list(prompt), wanted, Stamps(clock))


def test_more_at_once_than_is_known_is_refused(clock: Clock) -> None:
    one = scheduler(clock)
    first = one.submit([1], 8, Stamps(clock))
    with pytest.raises(Refused, match="at most 1 requests at once"):
        one.submit([2], 8, Stamps(clock))
    one.abort(first)
    one.submit([2], 8, Stamps(clock))


def test_an_aborted_request_gives_no_more_tokens(clock: Clock) -> None:
    one, stamps = scheduler(clock), Stamps(clock)
    one.abort(one.submit([1], 8, stamps))
    clock.run()
    assert stamps.steps == []


@pytest.mark.parametrize("action", ["crash", "hang"])
def test_it_gives_up_half_way_through_the_second_request(clock: Clock, action: Any) -> None:
    one = scheduler(clock, change=Change(action=action))
    crashed: list[int] = []
    one.on_crash = lambda: crashed.append(one.counters.requests)
    assert run(clock, one, wanted=64).last
    broken = run(clock, one, range(300, 400), wanted=64)
    assert not broken.last and broken.steps[-1][1] == 32
    assert one.frozen and crashed == ([2] if action == "crash" else [])


def test_text_and_ids_look_drawn(clock: Clock) -> None:
    one = scheduler(clock)
    stamps = Stamps(clock)
    generation = one.submit([5, 6], 200, stamps)
    clock.run()
    assert len(set(generation.output)) > 190
    assert all(0 <= token < PROFILE.vocabulary for token in generation.output)
    assert len(stamps.text.split()) == 200
