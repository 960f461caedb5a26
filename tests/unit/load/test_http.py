"""HTTP/1.1 as real servers speak it, through the real client."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_gpuserve.load.api import Target

from .conftest import APIS, CHUNKED, HEAD, Step, chunk, measure, stream, workload
from .test_faults import GOOD, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loopback, Request

    Start = Callable[..., Loopback]

BODY = b"".join(e.encode() + b"\n\n" for e in GOOD)
PEM = Path(__file__).parent / "loopback.pem"


def answers() -> dict[str, bytes]:
    whole = chunk(BODY)
    return {
        "one chunk for all": CHUNKED + whole + b"0\r\n\r\n",
        "a chunk a byte": CHUNKED + b"".join(chunk(BODY[i : i + 1]) for i in range(len(BODY))) + b"0\r\n\r\n",
        "chunks of 100": CHUNKED
        + b"".join(chunk(BODY[i : i + 100]) for i in range(0, len(BODY), 100))
        + b"0\r\n\r\n",
        "upper-case sizes": CHUNKED + b"%X\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        "padded sizes": CHUNKED + b"0000%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        "chunk extensions": CHUNKED + b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        "trailers": CHUNKED + whole + b"0\r\nx-checksum: 1\r\nserver-timing: a\r\n\r\n",
        "a length": HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
        "interim responses": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        + CHUNKED
        + whole
        + b"0\r\n\r\n",
        "header names in any case": b"HTTP/1.1 200 OK\r\nTRANSFER-encoding:  Chunked\r\n\r\n"
        + whole
        + b"0\r\n\r\n",
        "no reason phrase": CHUNKED.replace(b" OK", b"") + whole + b"0\r\n\r\n",
        "CRLF in the events": CHUNKED + chunk(BODY.replace(b"\n", b"\r\n")) + b"0\r\n\r\n",
        "CR in the events": CHUNKED + chunk(BODY.replace(b"\n", b"\r")) + b"0\r\n\r\n",
        "no space after data:": CHUNKED + chunk(BODY.replace(b"data: ", b"data:")) + b"0\r\n\r\n",
        "ids, comments and other fields": CHUNKED
        + chunk(b": hello\n\n" + BODY.replace(b"data: ", b"event: message\nid: 7\nretry: 10\ndata: "))
        + b"0\r\n\r\n",
        "no blank line at the end": CHUNKED + chunk(BODY.rstrip(b"\n")) + b"0\r\n\r\n",
        "identity": HEAD
        + b"content-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n"
        + whole
        + b"0\r\n\r\n",
    }


@pytest.mark.parametrize("piece", [1 << 20, 97, 3])
@pytest.mark.parametrize("name", answers())
def test_framing(loopback: Start, name: str, piece: int) -> None:
    """The same four tokens, whatever carries them and wherever the writes end; the connection is used
    again."""
    answer = answers()[name]
    writes = [Step(0, answer[i : i + piece]) for i in range(0, len(answer), piece)]
    server = loopback(lambda _: writes)
    samples = measure(server.target, workload(requests=2))
    assert [s.failure for s in samples.requests] == [None, None], samples.first_failure
    assert [len(s.stamps) for s in samples.requests] == [4, 4]
    assert server.connections == 1


def test_a_server_that_closes_without_saying_so(loopback: Start) -> None:
    """llama.cpp's answers say Keep-Alive, and after a stream the connection is closed all the same."""
    head = HEAD + b"transfer-encoding: chunked\r\nkeep-alive: timeout=5, max=100\r\n\r\n"
    answer = head + chunk(BODY) + b"0\r\n\r\n"
    server = loopback(lambda _: [Step(0, answer), Step(0.01, None)])
    api = msgspec.structs.replace(APIS["completions"], keep_alive=False)
    samples = measure(server.target, workload(requests=40, concurrency=2), api)
    assert [s.failure for s in samples.requests] == [None] * 40, samples.first_failure
    assert 40 <= server.connections <= 44


@pytest.mark.parametrize("concurrency", [1, 3])
def test_whether_a_server_closes_unsaid_is_found_out_without_losing_a_request(
    loopback: Start, concurrency: int
) -> None:
    """Not known: a used connection is not used again before the server has had the time to close it."""
    api = msgspec.structs.replace(APIS["completions"], keep_alive=None)
    closing = loopback(lambda _: [Step(0, stream(*GOOD)), Step(0.01, b""), Step(0, None)])
    keeping = loopback(lambda _: [Step(0.005, stream(*GOOD))])
    load = workload(requests=30, concurrency=concurrency)
    for server in (closing, keeping):
        samples = measure(server.target, load, api)
        assert [s.failure for s in samples.requests] == [None] * 30, samples.first_failure
    before = closing.connections, keeping.connections
    assert before[0] >= 30 and before[1] <= 30
    for server in (closing, keeping):
        assert measure(server.target, load, api).first_failure == ""
    assert closing.connections - before[0] >= 30
    assert keeping.connections - before[1] == concurrency, "known by now"


@pytest.mark.parametrize("says_close", [True, False])
def test_a_server_that_serves_one_connection_after_the_other(says_close: bool) -> None:
    """A connection opened ahead, or kept open while another is used, must not hold such a server up."""
    listener = socket.create_server(("127.0.0.1", 0))
    head = HEAD + (b"connection: close\r\n" if says_close else b"")
    answer = head + b"content-length: %d\r\n\r\n" % len(BODY) + BODY

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                while sock.recv(65536):
                    sock.sendall(answer)
                    if says_close:
                        break

    threading.Thread(target=serve, daemon=True).start()
    api = msgspec.structs.replace(APIS["completions"], keep_alive=None)
    target = Target(host="127.0.0.1", port=listener.getsockname()[1])
    samples = measure(target, workload(requests=6), api, stall_s=5.0)
    listener.close()
    assert [s.failure for s in samples.requests] == [None] * 6, samples.first_failure


def test_connection_close_opens_another(loopback: Start) -> None:
    answer = HEAD + b"connection: close\r\n\r\n" + BODY
    server = loopback(lambda _: [Step(0, answer), Step(0, None)])
    samples = measure(server.target, workload(requests=3))
    assert [s.failure for s in samples.requests] == [None] * 3
    assert 3 <= server.connections <= 5


def test_http_1_0(loopback: Start) -> None:
    answer = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + BODY
    server = loopback(lambda _: [Step(0, answer), Step(0, None)])
    assert measure(server.target).requests[0].failure is None


def test_an_idle_connection_that_the_server_closes_is_replaced(loopback: Start) -> None:
    """Open loop at 4/s; the server closes 20 ms after each answer. Nothing was asked on it: no failure."""
    server = loopback(lambda _: [Step(0, stream(*GOOD)), Step(0, b""), Step(0.02, b""), Step(0, None)])
    load = workload(concurrency=None, request_rate=4.0, arrival="constant", requests=4)
    samples = measure(server.target, load)
    assert [s.failure for s in samples.requests] == [None] * 4


def test_ipv6(loopback: Start) -> None:
    try:
        server = loopback(stream(*GOOD), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on loopback")
    assert measure(server.target).requests[0].failure is None
    assert b"Host: [::1]:%d\r\n" % server.port in server.requests[0].head + b"\r\n"


def test_localhost_where_only_one_family_listens(loopback: Start) -> None:
    server = loopback(stream(*GOOD))
    target = msgspec.structs.replace(server.target, host="localhost")
    assert measure(target).requests[0].failure is None


def tls_server(loopback: Start) -> Loopback:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return loopback(stream(*GOOD), tls=context)


def test_tls_is_stamped_in_user_space_and_says_so(loopback: Start) -> None:
    server = tls_server(loopback)
    target = msgspec.structs.replace(server.target, tls=True, ca_file=str(PEM))
    samples = measure(target, workload(requests=6, concurrency=2))
    assert [s.failure for s in samples.requests] == [None] * 6, samples.first_failure
    assert samples.health.stamp_source == "user"
    assert server.connections == 2


def test_tls_with_a_certificate_that_nobody_trusts(loopback: Start) -> None:
    server = tls_server(loopback)
    target = msgspec.structs.replace(server.target, tls=True)
    (sample,) = measure(target).requests
    assert sample.failure == "tls_failed" and "certificate" in sample.detail
    unchecked = msgspec.structs.replace(target, verify=False)
    assert measure(unchecked).requests[0].failure is None


def test_plain_http_is_stamped_by_the_kernel(loopback: Start) -> None:
    samples = measure(loopback(stream(*GOOD)).target)
    assert samples.health.stamp_source == "kernel" and samples.health.unstamped == 0


def test_without_kernel_stamps(loopback: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another platform: stamps are our own, and the record says so."""
    monkeypatch.setattr("pytest_gpuserve.load.connection.sys.platform", "other")
    samples = measure(loopback(stream(*GOOD)).target)
    assert samples.requests[0].failure is None and samples.health.stamp_source == "user"


def test_without_epoll(loopback: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("select.epoll")
    load = workload(requests=8, concurrency=4)
    samples = measure(loopback(stream(*GOOD)).target, load)
    assert [s.failure for s in samples.requests] == [None] * 8


def test_the_request(loopback: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are sent, a proxy is not used, a compressed answer is not invited."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = loopback(stream(*GOOD))
    target = msgspec.structs.replace(server.target, headers={"Authorization": "Bearer k"})
    assert measure(target).requests[0].failure is None
    lines = server.requests[0].head.split(b"\r\n")
    assert lines[0] == b"POST /v1/completions HTTP/1.1"
    assert b"Authorization: Bearer k" in lines and b"Accept-Encoding: identity" in lines
    body = json.loads(server.requests[0].body)
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}
    assert len(body["prompt"]) == 8 and body["max_tokens"] == 4 and body["ignore_eos"] is True


def test_a_long_prompt_goes_out_in_pieces(loopback: Start) -> None:
    """More than a socket buffer holds: 3 MB of token ids."""
    server = loopback(stream(*GOOD))
    from pytest_gpuserve.model import Lengths

    samples = measure(server.target, workload(input_tokens=Lengths(mean=500_000)))
    assert samples.requests[0].failure is None
    assert len(json.loads(server.requests[0].body)["prompt"]) == 500_000


def test_events_longer_than_a_read(loopback: Start) -> None:
    """Cumulative text grows: 3 events of up to 120 KB."""
    meta = {"prompt_tokens": 8, "cached_tokens": 0}

    def event(n: int, finish: object = None) -> str:
        counted = {"finish_reason": finish, "completion_tokens": n, **meta}
        said = {"text": "ab" * 20_000 * n, "meta_info": counted}
        return "data: " + json.dumps(said, separators=(",", ":"))

    answer = stream(event(1), event(2), event(3, {"type": "length", "length": 3}), "data: [DONE]")
    (sample,) = measure(loopback(answer).target, api="generate").requests
    assert sample.failure is None
    assert (len(sample.stamps), sample.output_tokens, list(sample.counts or ())) == (3, 3, [1, 2, 3])


def test_many_comments_in_one_write(loopback: Start) -> None:
    noise = b"".join(chunk(b":\n\n") for _ in range(5000))
    first, rest = text(), [e.encode() + b"\n\n" for e in GOOD[1:]]
    answer = CHUNKED + chunk(first.encode() + b"\n\n") + noise + b"".join(map(chunk, rest)) + b"0\r\n\r\n"
    (sample,) = measure(loopback(answer).target).requests
    assert sample.failure is None and len(sample.stamps) == 4


def test_keep_alive_is_used_again_by_every_api(loopback: Start) -> None:
    def script(request: Request) -> bytes:
        return stream(*GOOD)

    server = loopback(script)
    measure(server.target, workload(requests=20, concurrency=2), APIS["completions"])
    assert server.connections == 2
