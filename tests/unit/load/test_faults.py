"""What a server or a wire can do wrong, and the outcome that each has. No request is ever sent twice."""

from __future__ import annotations

import gzip
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.load.metrics import summarise

from .conftest import APIS, CHUNKED, HANG, HEAD, RESET, Step, chunk, measure, stream, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loopback, Request

    Start = Callable[..., Loopback]


def text(words: str = "x", finish: str | None = None, **more: Any) -> str:
    return "data: " + json.dumps(
        {"choices": [{"index": 0, "text": words, "finish_reason": finish}], **more}, separators=(",", ":")
    )


USAGE = {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}
GOOD = (text(), text(), text(), text(finish="length", usage=USAGE), "data: [DONE]")
ERROR = 'data: {"error":{"message":"CUDA error: device-side assert","type":"InternalServerError","code":500}}'


def status(code: int, body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d Whatever" % code, b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


FAULTS: dict[str, tuple[bytes | list[Step], str, str]] = {
    "500": (status(500, b'{"error":{"message":"out of memory"}}'), "http_500", "out of memory"),
    "503 in plain words": (status(503, b"busy"), "http_503", "busy"),
    "422 with a detail": (status(422, b'{"detail":[{"loc":["body"],"msg":"bad"}]}'), "http_422", "bad"),
    "a redirect": (status(307, b"", b"location: /elsewhere"), "http_307", ""),
    "401": (status(401, b'{"error":"Unauthorized"}'), "http_401", "Unauthorized"),
    "an error object as JSON under 200": (
        status(200, b'{"error":{"message":"too long"}}', b"content-type: application/json"),
        "in_band_error",
        "too long",
    ),
    "a whole answer instead of a stream": (
        status(200, b'{"choices":[{"text":"x"}]}', b"content-type: application/json"),
        "not_a_stream",
        "choices",
    ),
    "an error object after tokens": (stream(text(), ERROR, "data: [DONE]"), "in_band_error", "device-side"),
    "an error object, and no more": (
        [Step(0, stream(text(), ERROR, end=False)), Step(0.02, None)],
        "in_band_error",
        "device-side",
    ),
    "an error event": (stream(text(), "event: error\ndata: engine died"), "in_band_error", "engine died"),
    "llama.cpp's error line": (
        stream(text(), 'error: {"message":"slot lost"}'),
        "in_band_error",
        "slot lost",
    ),
    "object: error": (
        stream('data: {"object":"error","message":"bad input","code":400}'),
        "in_band_error",
        "bad input",
    ),
    "finish_reason abort": (
        stream(text(), text(finish="abort", usage=USAGE), "data: [DONE]"),
        "aborted",
        "abort",
    ),
    "finish_reason error": (stream(text(), text("", finish="error"), "data: [DONE]"), "aborted", "error"),
    "no finish_reason": (stream(text(), text(usage=USAGE), "data: [DONE]"), "no_finish_reason", ""),
    "no [DONE] where it is promised": (stream(*GOOD[:-1]), "no_done", ""),
    "no token": (stream(text("", finish="stop", usage=USAGE), "data: [DONE]"), "no_token_events", ""),
    "nothing but [DONE]": (stream("data: [DONE]"), "no_token_events", ""),
    "an empty stream": (stream(), "no_token_events", ""),
    "half an event, and the stream is complete": (
        stream(text(), 'data: {"choices":[{"index":0,"fini'),
        "unreadable",
        "",
    ),
    "half a chunk": (
        [Step(0, CHUNKED + chunk(text().encode() + b"\n\n") + b"f0\r\ndata: {"), Step(0.02, None)],
        "closed_early",
        "closed",
    ),
    "closed between chunks": (
        [Step(0, stream(text(), text(), end=False)), Step(0.02, None)],
        "closed_early",
        "",
    ),
    "closed before anything": ([Step(0.01, None)], "closed_early", ""),
    "closed within the head": ([Step(0, b"HTTP/1.1 200 OK\r\ncont"), Step(0.01, None)], "closed_early", ""),
    "reset": ([Step(0, stream(text(), end=False)), Step(0.02, b""), RESET], "connection_reset", "reset"),
    "gzip": (
        HEAD + b"content-encoding: gzip\r\ncontent-length: 40\r\n\r\n" + gzip.compress(b"x")[:40],
        "content_encoding",
        "gzip",
    ),
    "chunked under gzip": (
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n",
        "content_encoding",
        "gzip",
    ),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol_error", "SSH"),
    "a chunk that is longer than it says": (
        CHUNKED + b"3\r\n" + text().encode() + b"\n\n\r\n",
        "protocol_error",
        "chunk",
    ),
    "a chunk size that is none": (CHUNKED + b"-5\r\nhello\r\n", "protocol_error", "chunk size"),
    "more than was asked for": (
        stream(*GOOD) + b"HTTP/1.1 200 OK\r\n\r\n",
        "protocol_error",
        "after the end",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_outcome(loopback: Start, fault: str) -> None:
    answer, reason, words = FAULTS[fault]
    server = loopback(lambda _: answer)
    (sample,) = measure(server.target).requests
    assert sample.failure == reason, sample.detail
    assert words in sample.detail
    assert len(server.requests) == 1


def test_a_good_stream_is_a_success(loopback: Start) -> None:
    (sample,) = measure(loopback(stream(*GOOD)).target).requests
    assert sample.failure is None
    assert (sample.input_tokens, sample.output_tokens, len(sample.stamps)) == (8, 4, 4)
    assert sample.finish_reason == "length"


@pytest.mark.parametrize("end", [Step(0.02, None), RESET, HANG], ids=["closed", "reset", "left open"])
def test_done_is_enough_when_the_connection_then_breaks(loopback: Start, end: Step) -> None:
    """Servers that are told to stop say [DONE] and leave the last chunk out."""
    server = loopback(lambda _: [Step(0, stream(*GOOD, end=False)), Step(0.02, b""), end])
    samples = measure(server.target, stall_s=0.3)
    (sample,) = samples.requests
    assert sample.failure is None and sample.output_tokens == 4
    early = ["the round ended early: a response was left open after [DONE]"] if end is HANG else []
    assert [r for r in summarise(samples, workload()).invalid if "early" in r] == early


def test_done_ends_a_response_that_would_only_end_with_its_connection(loopback: Start) -> None:
    body = "".join(f"{event}\n\n" for event in GOOD).encode()
    server = loopback(lambda _: [Step(0, HEAD + b"\r\n" + body), HANG])
    samples = measure(server.target, workload(requests=3))
    assert [s.failure for s in samples.requests] == [None] * 3 and not samples.stalled


def test_no_done_where_none_is_promised(loopback: Start) -> None:
    import msgspec

    api = msgspec.structs.replace(APIS["completions"], promises_done=False)
    assert measure(loopback(stream(*GOOD[:-1])).target, api=api).requests[0].failure is None


def test_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        from pytest_gpuserve.load.api import Target

        target = Target(host="127.0.0.1", port=taken.getsockname()[1])
        samples = measure(target, workload(requests=5, concurrency=2))
    assert [s.failure for s in samples.requests] == ["connect_refused"] * 5
    assert all(s.sent_ns is None and s.first_ns is None for s in samples.requests)


def test_unknown_host() -> None:
    from pytest_gpuserve.load.api import Target

    (sample,) = measure(Target(host="no-such-host.invalid", port=1)).requests
    assert sample.failure == "unresolved"


def test_stalled(loopback: Start) -> None:
    """One stream stops, the rest are done: after the limit the round ends and the request has failed."""

    def script(request: Request) -> list[Step]:
        if request.index == 1:
            return [Step(0, stream(text(), text(), end=False)), HANG]
        return [Step(0, stream(*GOOD))]

    samples = measure(loopback(script).target, workload(requests=2, concurrency=2), stall_s=0.3)
    assert samples.stalled and not samples.interrupted
    assert sorted(str(s.failure) for s in samples.requests) == ["None", "stalled"]
    assert next(len(s.stamps) for s in samples.requests if s.failure) == 2


def test_comments_are_no_sign_of_life(loopback: Start) -> None:
    steps = [Step(0, CHUNKED), *(Step(0.05 * i, chunk(b": ping\n\n")) for i in range(1, 40)), HANG]
    samples = measure(loopback(lambda _: steps).target, stall_s=0.4)
    assert samples.stalled and samples.duration_ns < 1.5e9


def test_interrupted(loopback: Start) -> None:
    asked: list[int] = []

    def interrupt() -> bool:
        asked.append(1)
        return len(asked) >= 3

    samples = measure(
        loopback(lambda _: [Step(0, stream(text(), end=False)), HANG]).target, interrupt=interrupt
    )
    assert samples.interrupted and not samples.stalled
    assert [s.failure for s in samples.requests] == ["interrupted"]
    assert 0.1e9 < samples.duration_ns < 1e9


def test_one_failure_does_not_touch_the_others(loopback: Start) -> None:
    def script(request: Request) -> list[Step]:
        return [RESET] if request.index == 3 else [Step(0, stream(*GOOD))]

    server = loopback(script)
    samples = measure(server.target, workload(requests=12, concurrency=3))
    assert len(server.requests) == len(samples.requests) == 12
    assert [s.failure for s in samples.requests if s.failure] == ["connection_reset"]


def test_a_server_that_dies_ends_an_endless_round(loopback: Start) -> None:
    """Requests of a round with a duration are not made without end against a closed port."""
    server = loopback(stream(*GOOD))
    stopped: list[int] = []

    def interrupt() -> bool:
        if not stopped and len(server.requests) > 20:
            stopped.append(1)
            server.__exit__()
        return False

    load = workload(requests=None, duration=30.0, concurrency=2)
    samples = measure(server.target, load, interrupt=interrupt)
    assert samples.duration_ns < 10e9
    refused = sum(s.failure == "connect_refused" for s in samples.requests)
    assert 0 < refused <= 120
