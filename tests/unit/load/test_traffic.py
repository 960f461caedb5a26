"""What is sent, and when."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.load import traffic
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.load.prompts import draw, rng
from pytest_gpuserve.model import Lengths

from .conftest import APIS, Step, measure, stream, workload
from .test_faults import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.load.api import Api
    from pytest_gpuserve.load.traffic import Planned

    from .conftest import Loopback, Request

    Start = Callable[..., Loopback]


def planned(
    api: Api | str = "generate", *, round_index: int = 0, seed: int = 0, folder: Path = Path(), **changes: Any
) -> list[Planned]:
    used = APIS[api] if isinstance(api, str) else api
    made = traffic.plan(workload(**changes), used, seed=seed, round_index=round_index, folder=folder)
    found = []
    while (one := made.take()) is not None:
        found.append(one)
    return found


def prompts(made: list[Planned], key: str = "input_ids") -> list[Any]:
    return [json.loads(one.body)[key] for one in made]


# --- the same bytes, and never the same prompt ------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes() -> None:
    load = {"requests": 20, "input_tokens": Lengths(kind="lognormal", mean=50, sigma=0.5)}
    first, second = planned(**load), planned(**load)
    assert [one.body for one in first] == [one.body for one in second]
    assert [one.body for one in planned(seed=1, **load)] != [one.body for one in first]


@pytest.mark.parametrize("api", ["generate", "completions"])
def test_no_prompt_of_any_round_shares_its_first_token_with_another(api: str) -> None:
    """One cached token is a cache hit: prompts differ from the first token on, in warm-up and all rounds."""
    key = "input_ids" if api == "generate" else "prompt"
    seen = Counter(
        ids[0]
        for index in (-1, 0, 1, 2, 3)
        for ids in prompts(planned(api, round_index=index, requests=500), key)
    )
    assert max(seen.values()) == 1 and len(seen) == 2500


def test_token_ids_stay_within_the_vocabulary() -> None:
    api = msgspec.structs.replace(APIS["generate"], vocabulary=600)
    ids = [i for each in prompts(planned(api, requests=1500)) for i in each]
    assert min(ids) >= 75 and max(ids) < 600


def test_text_prompts_of_different_rounds_differ() -> None:
    def texts(index: int) -> list[str]:
        return [m[0]["content"] for m in prompts(planned("chat", round_index=index, requests=50), "messages")]

    assert len({*texts(0), *texts(1), *texts(-1)}) == 150


def test_a_shared_prefix_is_shared_and_nothing_after_it() -> None:
    load = {"requests": 30, "input_tokens": Lengths(mean=100), "shared_prefix": 0.4}
    found = prompts(planned(**load))
    assert len({tuple(ids[:40]) for ids in found}) == 1
    assert len({ids[40] for ids in found}) == 30
    assert found[0][:40] != prompts(planned(round_index=1, **load))[0][:40]


def test_a_shared_prefix_of_prompts_of_many_lengths() -> None:
    lengths = Lengths(kind="uniform", mean=0, low=20, high=2000)
    found = prompts(planned(requests=40, input_tokens=lengths, shared_prefix=0.5))
    longest = max(found, key=len)
    assert all(ids[: round(len(ids) * 0.5)] == longest[: round(len(ids) * 0.5)] for ids in found)


# --- lengths ----------------------------------------------------------------------------------------


def test_fixed_lengths_are_exact() -> None:
    for one in planned(requests=10, input_tokens=Lengths(mean=33), output_tokens=Lengths(mean=7)):
        body = json.loads(one.body)
        assert len(body["input_ids"]) == one.input_tokens == 33
        assert body["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 7, "ignore_eos": True}


def test_uniform_lengths_reach_both_ends() -> None:
    random = rng(0, "t")
    drawn = [draw(Lengths(kind="uniform", mean=0, low=3, high=6), random) for _ in range(400)]
    assert set(drawn) == {3, 4, 5, 6}


def test_lognormal_has_the_mean_that_it_says_and_is_clipped() -> None:
    random = rng(0, "t")
    lengths = Lengths(kind="lognormal", mean=200, sigma=0.6)
    drawn = [draw(lengths, random) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(200, rel=0.02)
    clipped = msgspec.structs.replace(lengths, low=150, high=250)
    drawn = [draw(clipped, random) for _ in range(1000)]
    assert min(drawn) == 150 and max(drawn) == 250


# --- when -------------------------------------------------------------------------------------------


def test_constant_arrivals() -> None:
    found = planned(concurrency=None, request_rate=50.0, arrival="constant", requests=5)
    assert [one.due_ns for one in found] == pytest.approx([0, 20e6, 40e6, 60e6, 80e6])


def test_poisson_arrivals_have_their_rate_and_their_scatter() -> None:
    found = planned(concurrency=None, request_rate=100.0, requests=4000)
    gaps = [b.due_ns - a.due_ns for a, b in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(10e6, rel=0.05) and deviation == pytest.approx(mean, rel=0.1)


def test_a_duration_ends_the_arrivals() -> None:
    load = {"concurrency": None, "request_rate": 100.0, "arrival": "constant", "requests": None}
    assert len(planned(duration=0.5, **load)) == 50


def test_time_scale_compresses_arrivals_and_duration() -> None:
    load = workload(concurrency=None, request_rate=10.0, arrival="constant", requests=None, duration=1.0)
    made = traffic.plan(load, APIS["generate"], seed=0, round_index=0, folder=Path(), time_scale=0.05)
    due = []
    while (one := made.take()) is not None:
        due.append(one.due_ns)
    assert due == pytest.approx([i * 5e6 for i in range(10)])


def test_neither_requests_nor_duration() -> None:
    with pytest.raises(InputError, match="neither"):
        planned(requests=None)


def test_warm_up_is_a_workload_of_its_own() -> None:
    by_count = traffic.warmup(workload(warmup=3, requests=100))
    assert by_count is not None and by_count.requests == 3 and by_count.concurrency == 1
    by_time = traffic.warmup(workload(warmup=0, warmup_seconds=2.5, requests=100))
    assert by_time is not None and by_time.requests is None and by_time.duration == 2.5
    assert traffic.warmup(workload(warmup=0)) is None


def test_many_long_prompts_are_not_all_kept_in_memory() -> None:
    made = traffic.plan(
        workload(requests=100_000, input_tokens=Lengths(mean=1000)),
        APIS["generate"],
        seed=0,
        round_index=0,
        folder=Path(),
    )
    assert made.ready_bytes < 2 * traffic.AHEAD_BYTES
    taken = [made.take() for _ in range(5000)]
    assert [one.index for one in taken if one is not None] == list(range(5000))
    assert made.hungry


# --- driving a server -------------------------------------------------------------------------------


def test_closed_loop_keeps_its_concurrency(loopback: Start) -> None:
    answer = [Step(0.02, stream(*GOOD))]
    samples = measure(loopback(lambda _: answer).target, workload(requests=30, concurrency=6))
    assert samples.mode == "closed" and samples.peak_in_flight == 6
    changes = sorted([(s.sent_ns, 1) for s in samples.requests] + [(s.end_ns, -1) for s in samples.requests])
    level, highest = 0, 0
    for _, change in changes:
        level += change
        highest = max(highest, level)
    assert highest == 6


@pytest.mark.parametrize("concurrency", [300])
def test_nothing_caps_the_concurrency(loopback: Start, concurrency: int) -> None:
    """G2-20: HTTP libraries stop at 100 connections and book the wait on the server. Here all must have
    come before one is answered."""
    arrived: list[int] = []
    all_in = threading.Event()

    def script(request: Request) -> bytes:
        arrived.append(request.index)
        if len(arrived) == concurrency:
            all_in.set()
        all_in.wait(30)
        return stream(*GOOD)

    server = loopback(script)
    samples = measure(server.target, workload(requests=concurrency, concurrency=concurrency), stall_s=30.0)
    assert samples.first_failure == ""
    assert len(server.requests) == concurrency == samples.peak_in_flight


def test_a_burst_sends_everything_at_once(loopback: Start) -> None:
    samples = measure(
        loopback(lambda _: [Step(0.05, stream(*GOOD))]).target, workload(requests=20, concurrency=None)
    )
    assert samples.mode == "burst" and samples.peak_in_flight == 20


def test_open_loop_counts_from_the_scheduled_time(loopback: Start) -> None:
    """G2-19: with one slow server thread after the other the schedule is still kept, and waiting is
    latency."""
    load = workload(concurrency=None, request_rate=100.0, arrival="constant", requests=10)
    samples = measure(loopback(lambda _: [Step(0.15, stream(*GOOD))]).target, load)
    assert samples.mode == "open" and samples.peak_in_flight > 5
    assert [s.due_ns for s in samples.requests] == pytest.approx([i * 10e6 for i in range(10)])
    assert all(s.sent_ns is not None and s.sent_ns >= s.due_ns for s in samples.requests)


def test_duration_stops_the_sending_not_the_answers(loopback: Start) -> None:
    answer = [Step(0.05, stream(*GOOD))]
    load = workload(requests=None, duration=0.3, concurrency=2)
    samples = measure(loopback(lambda _: answer).target, load)
    assert all(s.ok for s in samples.requests)
    assert 4 <= len(samples.requests) <= 14
    assert all((s.sent_ns or 0) <= 0.3e9 for s in samples.requests)


def test_more_connections_than_files(monkeypatch: pytest.MonkeyPatch, loopback: Start) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    with pytest.raises(
        InputError, match=r"1000 connections need .* open files, and this process may have 512"
    ):
        measure(loopback(stream(*GOOD)).target, workload(requests=1000, concurrency=984))


def test_the_limit_of_files_is_raised(monkeypatch: pytest.MonkeyPatch, loopback: Start) -> None:
    import resource

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    measure(loopback(stream(*GOOD)).target, workload(requests=40, concurrency=40))
    assert asked and asked[0][0] > 64 and asked[0][1] == 4096


@pytest.mark.parametrize(("end", "limit"), [({"requests": 500}, 564), ({"duration": 99.0}, 4096)])
def test_an_open_loop_may_have_all_its_requests_in_flight(
    monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], limit: int
) -> None:
    """Nobody knows how far a server falls behind: as many files as it can be, up to the hard limit."""
    import resource

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    load = workload(**{"concurrency": None, "request_rate": 1000.0, "requests": None} | end)
    measure(Target(host="no-such-host.invalid", port=1), load)
    assert asked == [(limit, 4096)]


# --- datasets ---------------------------------------------------------------------------------------


def write(folder: Path, *lines: object) -> Path:
    path = folder / "d.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def sharegpt(n: int) -> list[object]:
    return [
        {
            "id": str(i),
            "conversations": [
                {"from": "human", "value": f"question {i}"},
                {"from": "gpt", "value": "one two three"},
            ],
        }
        for i in range(n)
    ]


def test_sharegpt(tmp_path: Path) -> None:
    write(tmp_path, *sharegpt(40))
    load = {"folder": tmp_path, "requests": 10, "dataset": "d.jsonl"}
    first = [m[0]["content"] for m in prompts(planned("chat", **load), "messages")]
    second = [m[0]["content"] for m in prompts(planned("chat", round_index=1, **load), "messages")]
    assert len({*first, *second}) == 20
    assert first == [m[0]["content"] for m in prompts(planned("chat", **load), "messages")]
    assert all(text.startswith("question") for text in first)
    assert all(one.input_tokens is None for one in planned("chat", **load))


def test_sharegpt_as_text_for_generate(tmp_path: Path) -> None:
    write(tmp_path, *sharegpt(5))
    body = json.loads(planned(folder=tmp_path, dataset="d.jsonl")[0].body)
    assert body["text"].startswith("question") and "input_ids" not in body


def test_the_length_of_the_answer_where_the_workload_gives_none(tmp_path: Path) -> None:
    write(tmp_path, *sharegpt(5))
    (one,) = planned("chat", folder=tmp_path, dataset="d.jsonl", output_tokens=Lengths(mean=0))
    assert one.output_tokens == 4


def test_a_small_dataset_never_repeats_a_prompt(tmp_path: Path) -> None:
    write(tmp_path, *sharegpt(3))
    found = prompts(planned("completions", folder=tmp_path, dataset="d.jsonl", requests=12), "prompt")
    assert len(set(found)) == 12 and all("question" in text for text in found)


def test_lengths_from_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"input_tokens": 17, "output_tokens": 5}, {"input_length": 90, "output_length": 2})
    made = planned(folder=tmp_path, dataset="d.jsonl", requests=2, output_tokens=Lengths(mean=0))
    assert sorted((one.input_tokens, one.output_tokens) for one in made) == [(17, 5), (90, 2)]
    assert sorted(map(len, prompts(made))) == [17, 90]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"a": 1}', "neither"),
        ('{"conversations": []}', "no text"),
    ],
)
def test_a_bad_dataset_names_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "d.jsonl").write_text('{"prompt": "a"}\n\n' + line + "\n")
    with pytest.raises(InputError, match=rf"d\.jsonl:3: .*{words}"):
        planned(folder=tmp_path, dataset="d.jsonl")


def test_a_missing_and_an_empty_dataset(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        planned(folder=tmp_path, dataset="none.jsonl")
    (tmp_path / "d.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no line"):
        planned(folder=tmp_path, dataset="d.jsonl")


def test_requests_of_each_api() -> None:
    body = json.loads(planned("chat", ignore_eos=False, temperature=0.7)[0].body)
    assert body["messages"][0]["role"] == "user" and "ignore_eos" not in body
    assert body["temperature"] == 0.7 and body["stream_options"] == {"include_usage": True}
    api = msgspec.structs.replace(
        APIS["completions"], chunk_usage=True, ignore_eos=False, extra={"top_p": 0.9, "stream_options": {}}
    )
    body = json.loads(planned(api)[0].body)
    assert "ignore_eos" not in body and body["top_p"] == 0.9 and body["stream_options"] == {}
    api = msgspec.structs.replace(APIS["completions"], chunk_usage=True)
    assert json.loads(planned(api)[0].body)["stream_options"]["continuous_usage_stats"] is True
    api = msgspec.structs.replace(APIS["generate"], extra={"sampling_params": {"top_k": 5}, "rid": "x"})
    body = json.loads(planned(api)[0].body)
    assert body["sampling_params"]["top_k"] == 5 and body["rid"] == "x"
