"""The G2 cases, replayed over a real socket through the real client; `g2/CONVENTIONS.md` has the figures."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import time
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_gpuserve.load import client, metrics, traffic
from pytest_gpuserve.load.figures import figures
from pytest_gpuserve.model import Lengths

if TYPE_CHECKING:
    from pytest_gpuserve.load.api import Api
    from pytest_gpuserve.load.sample import Sample
    from pytest_gpuserve.load.samples import Samples

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("load_loopback", HERE.parent / "unit/load/conftest.py")
assert _spec is not None and _spec.loader is not None
loop = importlib.util.module_from_spec(_spec)
sys.modules["load_loopback"] = loop
_spec.loader.exec_module(loop)

CASES = {
    case["id"]: case
    for path in sorted((HERE / "g2").glob("*.yaml"))
    if "stream" in (case := yaml.safe_load(path.read_text()))
}
TRANSIT_NS = 2_000_000
"""A kernel stamp on loopback is set within the write; this is for machines that defer it."""

TRIES = 4
"""A busy machine may stamp late what it received in time, and nothing tells; it does not do so each time."""


def items(case: dict[str, Any]) -> list[tuple[float, bytes]]:
    return [
        (item["t_ms"], (item["line"] + "\n\n").encode() if "line" in item else item["bytes"].encode())
        for item in case["stream"]
    ]


def whole_chunks(parts: list[tuple[float, bytes]]) -> list[Any]:
    """One HTTP chunk an item, as the engines send them."""
    steps = [loop.Step(0.001, loop.CHUNKED)]
    steps += [loop.Step(t / 1e3, loop.chunk(data)) for t, data in parts]
    return [*steps, loop.Step(parts[-1][0] / 1e3, b"0\r\n\r\n")]


def torn(parts: list[tuple[float, bytes]]) -> list[Any]:
    """Chunks of 7 bytes, and writes that end in the middle of chunk headers."""
    steps = [loop.Step(0.001, loop.CHUNKED[:30]), loop.Step(0.002, loop.CHUNKED[30:])]
    for t, data in parts:
        framed = b"".join(loop.chunk(data[i : i + 7]) for i in range(0, len(data), 7))
        steps += [loop.Step(t / 1e3, framed[:11]), loop.Step(t / 1e3, framed[11:])]
    return [*steps, loop.Step(parts[-1][0] / 1e3, b"0\r\n\r\n")]


def until_close(parts: list[tuple[float, bytes]]) -> list[Any]:
    """No length at all: the body ends with the connection."""
    steps = [loop.Step(0.001, loop.HEAD + b"connection: close\r\n\r\n")]
    steps += [loop.Step(t / 1e3, data) for t, data in parts]
    return [*steps, loop.Step(0, None)]


FRAMINGS = {"chunked": whole_chunks, "torn": torn, "close": until_close}


def api_of(case: dict[str, Any]) -> Api:
    first = next(iter(items(case)))[1]
    return loop.APIS["completions" if b"text_completion" in first else "chat"]


def in_time(sent: list[tuple[float, int, int]]) -> bool:
    """The server wrote nothing early upon something late: no two items became one."""
    return all((b[1] - a[1]) / 1e9 > (b[0] - a[0]) / 2 for a, b in pairwise(sent) if b[0] - a[0] >= 0.005)


class Replay:
    """One case through the real client, and when the server really wrote each item."""

    def __init__(self, case: dict[str, Any], framing: str) -> None:
        steps = FRAMINGS[framing](items(case))
        for _ in range(8):
            with loop.Loopback(lambda _: steps) as server:
                self.samples: Samples = loop.measure(server.target, api=api_of(case))
            lost_ns = self.samples.health.lost.quantile_ns(1.0) or 0
            if lost_ns < TRANSIT_NS and in_time(server.sent):
                break  # else client or server was held up
        self.slack_ns = TRANSIT_NS + lost_ns
        """On a machine that is busy in every try: what the client says that a stamp can be late."""
        (self.sample,) = self.samples.requests
        self.written: dict[int, tuple[int, int]] = {}
        for at, before, after in server.sent:
            first, _ = self.written.get(round(at * 1e3), (before, after))
            self.written[round(at * 1e3)] = (first, after)

    def check_time(self, ns: int | None, t_ms: float | None, name: str) -> None:
        """A stamp lies within the write that the case says it belongs to, whatever the server's own delay."""
        if t_ms is None:
            assert ns is None, name
            return
        assert ns is not None, name
        before, after = self.written[round(t_ms)]
        assert before <= ns + self.samples.clock_start_ns <= after + self.slack_ns, name


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case(case: dict[str, Any], framing: str) -> None:
    expected = wire_only(case)
    for tries_left in reversed(range(TRIES)):
        played = Replay(case, framing)
        sample = played.sample
        assert sample.ok is expected["success"], sample.failure
        assert sample.failure == expected.get("failure")
        assert sample.output_tokens == expected.get("output_tokens")
        if "prompt_tokens" in expected:
            assert sample.input_tokens == expected["prompt_tokens"]
        if "partial_tokens" in expected:
            assert len(sample.stamps) == expected["partial_tokens"]
        if "reasoning_tokens" in expected:
            assert sample.reasoning_events == expected["reasoning_tokens"]
        check_figures(sample, expected)
        check_aggregates(played.samples, expected)
        try:
            check_times(played, expected)
        except AssertionError:
            if not tries_left:
                raise
        else:
            break


def carries_counts(case: dict[str, Any]) -> bool:
    """Whether the wire tells the tokens of each chunk: one each, or counted in each."""
    tokens = [item["tokens"] for item in case["stream"] if "tokens" in item]
    return all(n == 1 for n in tokens) or case.get("request", {}).get("stream_options", {}).get(
        "continuous_usage_stats", False
    )


def wire_only(case: dict[str, Any]) -> dict[str, Any]:
    """What of the expectation a client can know that sees the wire and not the tokens behind it."""
    known = dict(case["expected"])
    if not known["success"]:
        for name in ("tpot_ms", "itl_ms", "tokens_in_first_chunk", "tpot_ms_naive_n_minus_1"):
            known.pop(name, None)
    if not carries_counts(case):
        known |= {"tpot_ms": None, **known.get("without_per_chunk_token_counts", {})}
    return known


def check_times(played: Replay, expected: dict[str, Any]) -> None:
    sample = played.sample
    for name, ns in (
        ("ttft_ms", sample.first_ns),
        ("ttfot_ms", sample.answer_ns),
        ("last_token_ms", sample.last_ns),
        ("e2e_ms", sample.last_ns),
        ("stream_end_ms", sample.end_ns),
    ):
        if name in expected:
            played.check_time(ns, expected[name], name)
    if "chunk_gap_ms" in expected and sample.ok:
        at = [expected["ttft_ms"], *expected["chunk_gap_ms"]]
        due = [t for t in accumulate(at) if t in played.written]
        if len(due) == len(at):  # G2-08 rounds its last gap
            assert len(sample.stamps) == len(due)
            for ns, t_ms in zip(sample.stamps, due, strict=True):
                played.check_time(ns, t_ms, f"token event at {t_ms}")


def check_figures(sample: Sample, expected: dict[str, Any]) -> None:
    """The figures follow from the stamps by the definitions, whatever the stamps are."""
    found = figures(sample)
    span = (sample.stamps[-1] - sample.stamps[0]) / 1e6 if sample.stamps else 0.0
    first = expected.get("tokens_in_first_chunk")
    if "tokens_in_first_chunk" in expected:
        assert found.tokens_in_first_chunk == first
    if "tpot_ms" in expected:
        if expected["tpot_ms"] is None:
            assert found.tpot_ms is None
        else:
            assert found.tpot_ms == pytest.approx(span / (sample.output_tokens - (first or 1)))
    if "tpot_ms_naive_n_minus_1" in expected:
        assert found.tpot_ms_naive_n_minus_1 == pytest.approx(span / (sample.output_tokens - 1))
    if "itl_ms" in expected:
        if not expected["itl_ms"]:
            assert not found.itl_ms
        else:
            assert found.itl_ms is not None and len(found.itl_ms) == len(expected["itl_ms"])
            assert sum(found.itl_ms) == pytest.approx(span)
    if "chunk_gap_ms" in expected:
        assert len(found.chunk_gap_ms) == len(expected["chunk_gap_ms"])


def check_aggregates(samples: Samples, expected: dict[str, Any]) -> None:
    """A request that failed is in no distribution; whatever is unknown is None."""
    result = metrics.summarise(samples, loop.workload(ignore_eos=False))
    assert result.requests.ok == int(expected["success"])
    assert result.failures == ({} if expected["success"] else {expected["failure"]: 1})
    if expected["success"]:
        assert result.metrics.ttft_ms is not None and result.metrics.ttft_ms.n == 1
        assert (result.metrics.peak_output_throughput or 0) >= (result.metrics.output_throughput or 0)
    else:
        assert result.invalid
        assert result.metrics.ttft_ms is None and result.metrics.e2e_ms is None
        assert result.metrics.output_throughput is None


# --- cases without a stream: what a load generator must not do --------------------------------------


def rule(number: int) -> dict[str, Any]:
    (path,) = (HERE / "g2").glob(f"{number:02}-*.yaml")
    return yaml.safe_load(path.read_text())


def token(finish: str | None = None, cached: int = 0, n: int = 4) -> str:
    usage = {"prompt_tokens": 8, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": cached}}
    event = {"choices": [{"index": 0, "text": "x", "finish_reason": finish}]}
    return "data: " + json.dumps(event | ({"usage": usage} if finish else {}), separators=(",", ":"))


def answer(cached: int = 0, n: int = 4) -> bytes:
    return loop.stream(*[token()] * (n - 1), token("length", cached, n), "data: [DONE]")


def test_17_the_prefix_cache_measured_on_a_second_run() -> None:
    """A prompt token from the cache makes a cold round invalid; another round of one seed has other
    prompts."""
    assert "cached_tokens" in rule(17)["expected"]["detectors"][0]
    seen: set[bytes] = set()

    def script(request: Any) -> bytes:
        known = request.body in seen
        seen.add(request.body)
        return answer(cached=7 if known else 0)

    with loop.Loopback(script) as server:
        results = [
            metrics.summarise(loop.measure(server.target, round_index=index), loop.workload())
            for index in (0, 1, 0)
        ]
    assert [any("cache: cold" in reason for reason in r.invalid) for r in results] == [False, False, True]
    assert results[2].requests.cached_tokens == 7


def test_18_warm_up_does_not_use_the_measured_prompts() -> None:
    assert "disjoint" in rule(18)["expected"]["rule"]
    load = loop.workload(requests=8, warmup=4)
    with loop.Loopback(lambda _: answer()) as server:
        loop.measure(server.target, traffic.warmup(load), round_index=-1)
        loop.measure(server.target, load)
    firsts = [json.loads(request.body)["prompt"][0] for request in server.requests]
    assert len(firsts) == len(set(firsts)) == 12


def test_19_an_overloaded_server_looks_overloaded() -> None:
    """One slot of 50 ms asked 100 times a second: latency from the schedule grows, from the sending it
    would not."""
    case = rule(19)
    assert (
        case["expected"]["values"]["cap1"]["e2e_from_schedule_mean_ms"]
        > 3 * case["wrong"]["reported_mean_e2e_ms"]
    )
    turn = threading.Lock()
    slots = [0.0]

    def script(_: Any) -> list[Any]:
        with turn:
            slots[0] = max(slots[0], time.monotonic()) + 0.05
            return [loop.Step(slots[0] - time.monotonic(), answer())]

    load = loop.workload(concurrency=None, request_rate=100.0, arrival="constant", requests=8)
    with loop.Loopback(script) as server:
        samples = loop.measure(server.target, load)
    result = metrics.summarise(samples, load)
    assert result.metrics.e2e_ms is not None and result.metrics.e2e_ms.mean > 120
    assert result.client.schedule_delay_ms_p99 is not None
    assert all(s.sent_ns is not None and s.first_ns is not None for s in samples.requests)


def test_20_nothing_stops_at_100_connections() -> None:
    assert "in-flight peak" in rule(20)["expected"]["rule"]
    load = loop.workload(requests=150, concurrency=150)
    with loop.Loopback(lambda _: [loop.Step(0.5, answer())]) as server:
        samples = loop.measure(server.target, load)
    assert samples.peak_in_flight == 150 and server.connections == 150


def test_21_a_client_that_is_the_bottleneck_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is blocked for 40 ms at each tick, as by somebody who tokenizes on it; a token comes every 2
    ms."""
    assert "mark the run invalid" in rule(21)["expected"]["rule"]
    tick = client.Round._tick

    def blocked(self: Any, now: int) -> bool:
        time.sleep(0.04)
        return tick(self, now)

    monkeypatch.setattr(client.Round, "_tick", blocked)
    head = loop.CHUNKED
    steps = [loop.Step(0.001, head)]
    steps += [loop.Step(0.002 * i, loop.chunk(token().encode() + b"\n\n")) for i in range(1, 100)]
    steps.append(loop.Step(0.2, loop.chunk(token("length", n=100).encode() + b"\n\n" + b"data: [DONE]\n\n")))
    load = loop.workload(output_tokens=Lengths(mean=100))
    with loop.Loopback(lambda _: [*steps, loop.Step(0, b"0\r\n\r\n")]) as server:
        result = metrics.summarise(loop.measure(server.target, load), load)
    assert any(reason.startswith("client saturated") for reason in result.invalid), result
    assert result.client.merged_share is not None and result.client.merged_share > 0.1
    assert result.client.error_bound_ms is not None and result.client.error_bound_ms > 2


def test_22_a_503_is_a_failure_and_is_not_tried_again() -> None:
    assert "no automatic retries" in rule(22)["expected"]["rule"]
    busy = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"
    load = loop.workload(requests=10, concurrency=2)
    with loop.Loopback(lambda request: busy if request.index % 2 else answer()) as server:
        result = metrics.summarise(loop.measure(server.target, load), load)
    assert len(server.requests) == 10
    assert (result.requests.ok, result.requests.failed, result.failures) == (5, 5, {"http_503": 5})
    assert "5 of 10 requests failed" in result.invalid[0]


def test_23_times_are_monotonic_and_missing_ones_are_none() -> None:
    """A request without a token is in no percentile; nothing is negative or counted from 1970."""
    assert "monotonic clock only" in rule(23)["expected"]["rule"]
    with loop.Loopback(lambda r: answer() if r.index else loop.stream("data: [DONE]")) as server:
        samples = loop.measure(server.target, loop.workload(requests=4))
    result = metrics.summarise(samples, loop.workload(requests=4))
    assert result.metrics.ttft_ms is not None and result.metrics.ttft_ms.n == 3
    assert 0 < result.metrics.ttft_ms.mean < result.duration_s * 1e3
    assert samples.requests[0].first_ns is None and figures(samples.requests[0]).ttft_ms is None


def test_26_a_requested_length_is_only_a_cap() -> None:
    assert "output_tokens == requested" in rule(26)["expected"]["rule"]
    load = loop.workload(requests=3, output_tokens=Lengths(mean=6))
    with loop.Loopback(lambda r: answer(n=4 if r.index == 1 else 6)) as server:
        result = metrics.summarise(loop.measure(server.target, load), load)
    assert result.requests.output_tokens == 16
    assert "output lengths not as asked: 1 of 3 requests, such as 4 tokens instead of 6" in result.invalid
