from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import SuiteError
from pytest_gpuserve.model import Lengths, Slo

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gpuserve.model import Workload

    from .conftest import Load

LENGTHS = "input_tokens: 128, output_tokens: 16"


def suite_of(workload: str, name: str = "w") -> str:
    return f"server: {{engine: e, model: m}}\nconfigs: [{{id: a}}]\nworkloads:\n  {name}: {{{workload}}}\n"


def one(load: Load, workload: str) -> Workload:
    (found,) = load(suite_of(workload)).workloads.values()
    return found


def test_defaults_are_the_models(load: Load) -> None:
    found = one(load, f"concurrency: 2, requests: 4, {LENGTHS}")
    assert (found.name, found.concurrency, found.requests) == ("w", 2, 4)
    assert (found.warmup, found.rounds, found.cache, found.ignore_eos, found.stall) == (
        1,
        3,
        "cold",
        True,
        60.0,
    )
    assert (found.input_tokens, found.output_tokens) == (Lengths(mean=128), Lengths(mean=16))


@pytest.mark.parametrize(
    ("written", "lengths"),
    [
        ("{uniform: [10, 30]}", Lengths(kind="uniform", mean=20.0, low=10, high=30)),
        ("{lognormal: {mean: 200, sigma: 0.5}}", Lengths(kind="lognormal", mean=200.0, sigma=0.5)),
        (
            "{lognormal: {mean: 200, sigma: 1, low: 8, high: 4096}}",
            Lengths(kind="lognormal", mean=200.0, sigma=1.0, low=8, high=4096),
        ),
    ],
)
def test_lengths(load: Load, written: str, lengths: Lengths) -> None:
    assert one(load, f"requests: 4, input_tokens: {written}, output_tokens: 1").input_tokens == lengths


def test_open_loop_by_time(load: Load) -> None:
    found = one(
        load, f"request_rate: 2.5, arrival: constant, duration: 1m, warmup: 30s, stall: 2m, {LENGTHS}"
    )
    assert (found.request_rate, found.arrival, found.duration) == (2.5, "constant", 60.0)
    assert (found.warmup, found.warmup_seconds, found.stall) == (0, 30.0, 120.0)


def test_everything_else(load: Load) -> None:
    found = one(
        load,
        f"requests: 4, {LENGTHS}, shared_prefix: 50%, cache: warm, rounds: 5, api: chat, ignore_eos: false, "
        "temperature: 0.7, seed: 3, slo: {ttft_ms: 500, tpot_ms: 30}, prompt_tolerance: 10%, warmup: 0",
    )
    assert (found.concurrency, found.request_rate) == (None, None)
    assert (found.shared_prefix, found.cache, found.rounds, found.api) == (0.5, "warm", 5, "chat")
    assert (found.ignore_eos, found.temperature, found.seed) == (False, 0.7, 3)
    assert found.slo == Slo(ttft_ms=500, tpot_ms=30)
    assert (found.prompt_tolerance, found.warmup) == (0.1, 0)


def test_a_list_of_concurrencies_is_a_workload_each(load: Load) -> None:
    suite = load(suite_of(f"concurrency: [1, 8, 64], requests: 64, {LENGTHS}", "decode"))
    assert {name: w.concurrency for name, w in suite.workloads.items()} == {
        "decode_c1": 1, "decode_c8": 8, "decode_c64": 64,
    }  # fmt: skip
    assert [case.id for case in suite.cases()] == ["a-decode_c1", "a-decode_c8", "a-decode_c64"]


def test_a_dataset_brings_its_own_lengths(load: Load, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("{}\n")
    found = one(load, "requests: 4, dataset: d.jsonl")
    assert (found.dataset, found.input_tokens, found.output_tokens) == ("d.jsonl", Lengths(), Lengths())


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (LENGTHS, "workloads.w: give requests or duration, one of the two"),
        (f"requests: 1, duration: 3s, concurrency: 1, {LENGTHS}", "give requests or duration, one of"),
        (f"requests: 1, concurrency: 1, request_rate: 1, {LENGTHS}", "w.request_rate: excludes concurrency"),
        (f"duration: 3s, {LENGTHS}", "w.duration: needs concurrency or request_rate"),
        (f"requests: 4, concurrency: 16, {LENGTHS}", "w.requests: 4 requests never make a concurrency of 16"),
        (f"requests: 4, concurrency: [1, 8], {LENGTHS}", "4 requests never make a concurrency of 8"),
        (f"requests: 4, concurrency: 0, {LENGTHS}", "w.concurrency: expected a whole number >= 1, got 0"),
        (f"requests: 4, concurrency: [], {LENGTHS}", "w.concurrency: an empty list"),
        (f"requests: 4, concurrency: [1, 1], {LENGTHS}", "the same concurrency twice"),
        (f"requests: 4, request_rate: 0, {LENGTHS}", "w.request_rate: expected a number > 0"),
        (f"requests: 0, {LENGTHS}", "w.requests: expected a whole number >= 1"),
        (f"requests: 4, warmup: -1, {LENGTHS}", "w.warmup: cannot be negative"),
        (f"requests: 4, warmup: soon, {LENGTHS}", "w.warmup: 'soon' is no duration"),
        (f"requests: 4, rounds: 0, {LENGTHS}", "w.rounds: expected a whole number >= 1"),
        (f"requests: 4, shared_prefix: 2, {LENGTHS}", "w.shared_prefix: a share lies between 0 and 1"),
        (f"requests: 4, slo: {{}}, {LENGTHS}", "w.slo: limits nothing"),
        (f"requests: 4, api: chats, {LENGTHS}", "w.api: 'chats' is none of generate, completions, chat"),
        (f"requests: 4, cache: hot, {LENGTHS}", "w.cache: 'hot' is none of"),
        ("requests: 4, input_tokens: 3", "workloads.w: the key 'output_tokens' is missing"),
        ("requests: 4, input_tokens: 0, output_tokens: 1", "w.input_tokens: expected a whole number >= 1"),
        ("requests: 4, output_tokens: 1, input_tokens: {}", "w.input_tokens: give a number, {uniform"),
        ("requests: 4, output_tokens: 1, input_tokens: {uniform: [3, 1]}", "expected [low, high] with 1 <="),
        ("requests: 4, output_tokens: 1, input_tokens: {uniform: [3]}", "w.input_tokens.uniform"),
        ("requests: 4, output_tokens: 1, input_tokens: {lognormal: {mean: 9, sigma: 0}}", "lognormal.sigma"),
        ("requests: 4, output_tokens: 1, input_tokens: {lognormal: {mean: 9, sigma: 1, low: 10}}",
         "expected 1 <= low <= mean <= high"),
        (f"requests: {10**30}, {LENGTHS}", "w.requests: expected a whole number <= 1000000"),
        (f"requests: 1, rounds: {10**30}, {LENGTHS}", "w.rounds: expected a whole number <= 1000"),
        (f"requests: 1, warmup: {10**30}, {LENGTHS}", "w.warmup: expected a whole number <= 1000000"),
        (f"requests: 1, seed: -1, {LENGTHS}", "w.seed: expected a whole number >= 0"),
        (f"duration: 3s, concurrency: {10**30}, {LENGTHS}", "w.concurrency: expected a whole number <= 1000000"),
        (f"requests: 1, request_rate: .inf, {LENGTHS}", "w.request_rate: expected a number <= 1000000"),
        (f"requests: 1, temperature: .inf, {LENGTHS}", "w.temperature: expected a number <= 100"),
        (f"requests: 1, input_tokens: {10**30}, output_tokens: 1", "w.input_tokens: expected a whole number <="),
        (f"requests: 1, output_tokens: 1, input_tokens: {{uniform: [1, {10**30}]}}", "1 <= low <= high <= 10000000"),
        (f"requests: 1, stall: 0, {LENGTHS}", "w.stall: a duration cannot be 0 here"),
        (f"concurrency: 1, duration: 0s, {LENGTHS}", "w.duration: a duration cannot be 0s here"),
        ("requests: 4, dataset: none.jsonl", "w.dataset: no file 'none.jsonl' beside the suite"),
    ],
)  # fmt: skip
def test_what_is_wrong(load: Load, workload: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(suite_of(workload))
    assert message in str(caught.value)
    assert str(caught.value).startswith("s.yaml:4: workloads.w")


def test_names(load: Load) -> None:
    work = f"requests: 8, {LENGTHS}"
    with pytest.raises(SuiteError, match="the name 'long-context' may hold only a-z, 0-9 and _"):
        load(suite_of(work, "long-context"))
    with pytest.raises(SuiteError, match="the name has 81 characters; at most 80"):
        load(suite_of(work, "w" * 81))
    text = suite_of(f"concurrency: [1, 8], {work}", "decode") + f"  decode_c8: {{{work}}}\n"
    with pytest.raises(SuiteError, match=r"the name 'decode_c8' is taken by workloads\.decode"):
        load(text)
