"""How often the gate is right: seeded launches of known noise, judged as a run judges them, by outcome.

    python benchmarks/gate_power.py [--trials 6000] [--seed 1]

Each trial draws a baseline and, launch by launch, a run, and hands them to `judge` and `to_error`, with the
defaults of a suite, until no further launch is wanted: what a session does with a case. Noise is log-normal,
of equal size between launches and between the rounds of one. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit
from tabulate import tabulate

from pytest_gpuserve.gate.baseline import Baseline, HostIdentity, Measured
from pytest_gpuserve.gate.match import workload_identity
from pytest_gpuserve.gate.quantity import QUANTITIES
from pytest_gpuserve.gate.verdict import judge, to_error
from pytest_gpuserve.model import Case, Config, EngineBuild, Host, Lengths, ModelRef, Place, Workload
from pytest_gpuserve.record import METRIC_DEFINITION, Launch, Metrics, Round, Spread, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PRIMARY = "output_throughput"
TYPICAL = {"output_throughput": 89.5, "tpot_ms": 11.2, "accept_length": 2.4}
"""Metrics of a default gate, and figures for them; only ratios matter."""
EVERY = tuple(TYPICAL)
SLOWDOWN = 0.05
NOISES = (0.005, 0.015, 0.03)
CORRELATIONS = (0.5, 1.0)


@dataclass(frozen=True)
class World:
    """What is true of the launches that are drawn."""

    noise: float
    """Standard deviation between launches, and again between rounds of a launch, as a fraction."""
    slowdown: float = 0.0
    """Of the run against the baseline, as a fraction; of throughput, and the same of the other metrics."""
    metrics: tuple[str, ...] = (PRIMARY,)
    correlation: float = 1.0
    """Between the noise of any two metrics."""
    shift: float = 0.0
    """Standard deviation of what a day does to all launches of a run alike."""
    days: int = 1
    """Days over which the baseline was recorded, in equal parts."""
    disturbed: float = 1.0
    """How many times the noise of the baseline that of the run is."""


# --- drawing ----------------------------------------------------------------------------------------

CASE = Case(
    suite="power",
    config=Config(
        id="config", place=Place("suites/power.yaml", 1), engine="sglang", model=ModelRef(id="model"), args={}
    ),
    workload=Workload(
        name="decode",
        concurrency=1,
        requests=4,
        input_tokens=Lengths(mean=128),
        output_tokens=Lengths(mean=512),
    ),
)
HOST = Host(
    profile="power",
    product="GPU",
    count=1,
    compute_capability="9.0",
    topology="single",
    driver="",
    memory_gib=80,
)
ENGINE = EngineBuild(name="sglang", version="0.5.15")


def draw(world: World, rng: np.random.Generator, launches: int) -> Array:
    """Log-deviations of speed, shape (launches, rounds, metrics)."""
    rounds, metrics = CASE.workload.rounds, len(world.metrics)
    common, own = np.sqrt(world.correlation), np.sqrt(1 - world.correlation)

    def noise(*shape: int) -> Array:
        together, alone = rng.standard_normal((*shape, 1)), rng.standard_normal((*shape, metrics))
        return np.asarray(world.noise * (common * together + own * alone))

    return noise(launches, 1) + noise(launches, rounds)


def figures(speeds: Array, metrics: Sequence[str]) -> dict[str, list[list[float]]]:
    """Log-speeds as values of the metrics: metric -> the rounds of each launch."""
    return {
        metric: (TYPICAL[metric] * np.exp(QUANTITIES[metric].direction * speeds[:, :, index])).tolist()
        for index, metric in enumerate(metrics)
    }


def as_launch(values: dict[str, list[float]]) -> Launch:
    rounds = []
    for index in range(CASE.workload.rounds):
        each: dict[str, float | Spread] = {metric: rounds_[index] for metric, rounds_ in values.items()}
        if isinstance(tpot := each.get("tpot_ms"), float):
            each["tpot_ms"] = Spread(mean=tpot, p50=tpot, p90=tpot, p99=tpot, n=4)
        rounds.append(Round(duration_s=20, metrics=Metrics(**each)))  # type: ignore[arg-type]
    return Launch(started="2026-11-29T12:00:00+00:00", rounds=rounds)


def as_baseline(values: dict[str, list[list[float]]]) -> Baseline:
    return Baseline(
        case=CASE.id,
        place=Place("baselines/power/power.yaml", 1),
        host=HostIdentity(product=HOST.product, count=1, topology="single"),
        model="model",
        workload=workload_identity(CASE.workload),
        measured=Measured(date="2026-11-01", definition=METRIC_DEFINITION),
        rounds=values,
    )


# --- judging ----------------------------------------------------------------------------------------


def trial(world: World, rng: np.random.Generator) -> tuple[str, int]:
    """One case in one run: how it ended, and after how many launches."""
    stored = draw(world, rng, CASE.launches.baseline)
    if world.shift:
        each_day = world.shift * rng.standard_normal((world.days, 1, 1))
        stored += np.repeat(each_day, len(stored) // world.days, axis=0)
    baseline = as_baseline(figures(stored, world.metrics))
    speeds = draw(world, rng, CASE.launches.max) * world.disturbed + np.log1p(-world.slowdown)
    speeds += world.shift * rng.standard_normal()
    drawn = figures(speeds, world.metrics)
    launches: list[Launch] = []
    while True:
        launches.append(as_launch({metric: rounds[len(launches)] for metric, rounds in drawn.items()}))
        judgement = judge(CASE, launches, host=HOST, engine=ENGINE, baseline=baseline)
        if not judgement.undecided:
            outcome = "failed" if to_error(judgement) else str(judgement.verdict)
            return outcome, len(launches)


@dataclass(frozen=True)
class Outcomes:
    """What came out of many trials, as shares."""

    failed: float
    ok: float
    inconclusive: float
    launches: float
    """Of a run, on average."""


def measure(world: World, trials: int, seed: int) -> Outcomes:
    rng = np.random.default_rng(seed)
    counted: Counter[str] = Counter()
    used = 0
    for _ in range(trials):
        outcome, launches = trial(world, rng)
        counted[outcome] += 1
        used += launches
    return Outcomes(
        failed=counted["failed"] / trials,
        ok=(counted[Verdict.OK] + counted[Verdict.IMPROVED]) / trials,
        inconclusive=counted[Verdict.INCONCLUSIVE] / trials,
        launches=used / trials,
    )


# --- other rules ------------------------------------------------------------------------------------


def added_up(world: World, trials: int, seed: int) -> Outcomes:
    """The same decisions at 1 % and 5 %, with the errors of the looks merely added up (1:1:2:2:6).

    The rule to beat: its looks take no account of each other.
    """
    rng = np.random.default_rng(seed)
    spread = world.noise * np.sqrt(1 + 1 / CASE.workload.rounds)
    stored = spread * rng.standard_normal((trials, CASE.launches.baseline))
    runs = np.log1p(-world.slowdown) + spread * rng.standard_normal((trials, CASE.launches.max))
    outcome = np.full(trials, "inconclusive", dtype="U12")
    used = np.full(trials, CASE.launches.max)
    for look, share in enumerate(np.array([1, 1, 2, 2, 6]) / 12, start=1):
        run, freedom = runs[:, :look], CASE.launches.baseline - 1 + look - 1
        squares = stored.var(axis=1) * stored.shape[1] + run.var(axis=1) * look
        error = np.sqrt(squares / freedom * (1 / look + 1 / stored.shape[1]))
        estimate = run.mean(axis=1) - stored.mean(axis=1)
        worse = (estimate + stdtrit(freedom, 1 - 0.01 * share) * error < 0) & (estimate < np.log(0.975))
        fine = estimate - stdtrit(freedom, 1 - 0.05 * share) * error > np.log(0.95)
        undecided = outcome == "inconclusive"
        outcome[undecided & fine] = "ok"
        outcome[undecided & worse] = "failed"
        used[undecided & (fine | worse)] = look
    failed, ok, inconclusive = (float((outcome == each).mean()) for each in ("failed", "ok", "inconclusive"))
    return Outcomes(failed=failed, ok=ok, inconclusive=inconclusive, launches=float(used.mean()))


def peers(world: World, trials: int, seed: int) -> dict[str, tuple[float, float]]:
    """Share of failed runs, and runs made on average, by the rules that other projects use.

    Each holds the mean of a run's rounds against 95 % of a stored mean (here that of eight launches).
    """
    rng = np.random.default_rng(seed)
    noise = world.noise * np.sqrt(1 + 1 / CASE.workload.rounds)
    stored = noise / np.sqrt(CASE.launches.baseline) * rng.standard_normal((trials, 1))
    shift = world.shift * rng.standard_normal((trials, 1))
    runs = noise * rng.standard_normal((trials, 4)) + np.log1p(-world.slowdown) + shift
    below = runs - stored < np.log(0.95)
    return {
        "one run": (below[:, 0].mean(), 1.0),
        "best of two": (below[:, :2].all(axis=1).mean(), 1 + below[:, 0].mean()),
        "3 of 4": ((below.sum(axis=1) >= 3).mean(), 4.0),
    }


# --- bars and tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    world: World
    share: str
    """Attribute of `Outcomes`."""
    at_least: float = 0.0
    at_most: float = 1.0


def bars() -> list[Bar]:
    """What the gate must hold: for the primary metric alone, and no more false alarms with further ones."""
    found = []
    for noise in (0.005, 0.015):
        equal = World(noise)
        found += [
            Bar(equal, "failed", at_most=0.01),
            Bar(equal, "ok", at_least=0.90),
            Bar(replace(equal, slowdown=SLOWDOWN), "failed", at_least=0.95),
        ]
    equal = World(0.03)
    found += [
        Bar(equal, "failed", at_most=0.01),
        Bar(equal, "inconclusive", at_most=0.50),
        Bar(replace(equal, slowdown=SLOWDOWN), "ok", at_most=0.05),
    ]
    found += [
        Bar(World(noise, metrics=EVERY, correlation=correlation), "failed", at_most=0.01)
        for noise in NOISES[1:]
        for correlation in CORRELATIONS
    ]
    return found


def percent(share: float) -> str:
    return f"{share * 100:.2f} %"


def rows(worlds: Sequence[World], result: Callable[[World], Outcomes]) -> list[list[str]]:
    table = []
    for world in worlds:
        got = result(world)
        table.append(
            [
                f"{world.noise * 100:.1f} %",
                f"{world.slowdown * 100:.0f} % slower" if world.slowdown else "equal",
                percent(got.failed),
                percent(got.ok),
                percent(got.inconclusive),
                f"{got.launches:.2f}",
            ]
        )
    return table


HEADERS = ("noise", "truth", "failed", "ok", "inconclusive", "launches")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=6000, help="for each line with a bar, else a quarter")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    began = time.perf_counter()
    known: dict[World, Outcomes] = {}

    def result(world: World) -> Outcomes:
        trials = options.trials if world in barred else options.trials // 4
        if world not in known:
            known[world] = measure(world, trials, options.seed)
        return known[world]

    barred = {bar.world for bar in bars()}
    worlds = [World(noise, slowdown) for noise in NOISES for slowdown in (0.0, SLOWDOWN)]

    def show(title: str, **changed: Any) -> None:
        print(f"\n{title}")
        table = rows([replace(world, **changed) for world in worlds], result)
        print(tabulate(table, HEADERS, stralign="right"))

    print(f"{options.trials} trials for each line with a bar, else a quarter; seed {options.seed}")
    show("The primary metric alone")
    missed = 0
    print("\nBars")
    for bar in bars():
        share = getattr(result(bar.world), bar.share)
        held = bar.at_least <= share <= bar.at_most
        missed += not held
        limit = f">= {percent(bar.at_least)}" if bar.at_least else f"<= {percent(bar.at_most)}"
        truth = "5 % slower" if bar.world.slowdown else "equal"
        several = len(bar.world.metrics) > 1
        of = f"all metrics, correlated {bar.world.correlation:g}: " if several else ""
        print(
            f"  {'held  ' if held else 'MISSED'}  noise {bar.world.noise * 100:.1f} %, {truth}: {of}"
            f"{bar.share} {percent(share)} ({limit})"
        )
    for correlation in CORRELATIONS:
        show(
            f"All gated metrics ({', '.join(EVERY)}), noise correlated {correlation:g}",
            metrics=EVERY,
            correlation=correlation,
        )
    for days in (1, 4):
        show(
            f"The primary metric, a shift of 1 % from day to day, baseline of {days} day{'s' * (days > 1)}",
            shift=0.01,
            days=days,
        )
    show("The primary metric, on a day twice as noisy as the baseline's", disturbed=2.0)
    print("\nThe primary metric alone, errors of the looks merely added up")
    simple = rows(worlds, lambda world: added_up(world, 10 * options.trials, options.seed))
    print(tabulate(simple, HEADERS, stralign="right"))
    show_peers(worlds, options.trials, options.seed)
    print(f"\n{time.perf_counter() - began:.0f} s; {'all bars held' if not missed else f'{missed} missed'}")
    return 1 if missed else 0


def show_peers(worlds: Sequence[World], trials: int, seed: int) -> None:
    print("\nWhat others do: a run fails below 95 % of a stored mean (failed, runs on average)")
    table = []
    for shift in (0.0, 0.01):
        for world in worlds:
            found = peers(replace(world, shift=shift), trials, seed)
            table.append(
                [
                    f"{world.noise * 100:.1f} %" + (" and 1 % a day" if shift else ""),
                    "5 % slower" if world.slowdown else "equal",
                    *(f"{percent(failed)}, {runs:.2f}" for failed, runs in found.values()),
                ]
            )
    print(tabulate(table, ("noise", "truth", *found), stralign="right"))


if __name__ == "__main__":
    sys.exit(main())
