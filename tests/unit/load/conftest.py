"""A scripted HTTP server on loopback: it says what it is told, when it is told, and notes when it did."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.load import client, traffic
from pytest_gpuserve.load.api import Api, Target
from pytest_gpuserve.model import Lengths, Workload

if TYPE_CHECKING:
    import ssl

    from pytest_gpuserve.load.samples import Samples

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(*events: str | bytes, end: bool = True) -> bytes:
    """A whole chunked response, one chunk an event, for when its timing does not matter."""
    encoded = [e.encode() if isinstance(e, str) else e for e in events]
    return CHUNKED + b"".join(chunk(e + b"\n\n") for e in encoded) + (b"0\r\n\r\n" if end else b"")


@dataclass
class Request:
    index: int
    head: bytes
    body: bytes


@dataclass
class Step:
    """`at` seconds after the request, send `data`; None closes. `RESET` resets, `HANG` does nothing more."""

    at: float
    data: bytes | None


RESET = Step(0, b"\0reset")
HANG = Step(0, b"\0hang")
Script = Callable[[Request], "list[Step] | bytes"]


@dataclass
class Loopback:
    """Answers each request with its script, each connection on a thread of its own."""

    script: Script
    family: int = socket.AF_INET
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    sent: list[tuple[float, int, int]] = field(default_factory=list)
    """(`Step.at`, monotonic ns before and after the write), of all requests."""

    def __enter__(self) -> Loopback:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self._listener = socket.socket(self.family)
        self._listener.bind(("::1" if self.family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(1024)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in [self._listener, *self._open]:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    @property
    def target(self) -> Target:
        return Target(host="::1" if self.family == socket.AF_INET6 else "127.0.0.1", port=self.port)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
            pending = b""
            while True:
                while b"\r\n\r\n" not in pending:
                    if not (data := sock.recv(65536)):
                        return
                    pending += data
                head, _, body = pending.partition(b"\r\n\r\n")
                _, given, rest = head.lower().partition(b"content-length:")
                length = int(rest.split(b"\r\n")[0]) if given else 0
                while len(body) < length:
                    body += sock.recv(65536)
                arrived = time.monotonic()
                pending = body[length:]
                with self._lock:
                    request = Request(len(self.requests), head, body[:length])
                    self.requests.append(request)
                said = self.script(request)
                steps = [Step(0, said)] if isinstance(said, bytes) else said
                if not self._play(sock, steps, arrived):
                    return
        except (OSError, ValueError):
            return

    def _play(self, sock: socket.socket, steps: list[Step], arrived: float) -> bool:
        for step in steps:
            if step is HANG:
                self._stop.wait()
                return False
            if step is RESET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if step is RESET or step.data is None:
                sock.close()
                return False
            if (wait := arrived + step.at - time.monotonic()) > 0:
                time.sleep(wait)
            before = time.monotonic_ns()
            sock.sendall(step.data)
            self.sent.append((step.at, before, time.monotonic_ns()))
        return True


APIS = {
    "generate": Api(kind="generate", path="/generate", model="", token_ids=True, chunk_usage=True),
    "completions": Api(kind="completions", path="/v1/completions", model="m", token_ids=True),
    "chat": Api(kind="chat", path="/v1/chat/completions", model="m", token_ids=False),
}


def workload(**changes: Any) -> Workload:
    """One request of 8 tokens for 4, unless changed."""
    base: dict[str, Any] = {
        "name": "w",
        "concurrency": 1,
        "requests": 1,
        "input_tokens": Lengths(mean=8),
        "output_tokens": Lengths(mean=4),
    }
    return Workload(**base | changes)


def measure(
    target: Target,
    load: Workload | None = None,
    api: Api | str = "completions",
    *,
    stall_s: float = 20.0,
    seed: int = 0,
    round_index: int = 0,
    time_scale: float = 1.0,
    **more: Any,
) -> Samples:
    """One round through the real client."""
    used = APIS[api] if isinstance(api, str) else api
    planned = traffic.plan(
        load or workload(),
        used,
        seed=seed,
        round_index=round_index,
        folder=Path(),
        time_scale=time_scale,
    )
    return client.run(target, used, planned, stall_s=stall_s, **more)


@pytest.fixture
def loopback() -> Iterator[Callable[..., Loopback]]:
    """Makes servers: `loopback(script)`, gone after the test."""
    started: list[Loopback] = []

    def start(script: Script | bytes, **options: Any) -> Loopback:
        answer: Script = (lambda _: script) if isinstance(script, bytes) else script
        server = Loopback(answer, **options).__enter__()
        started.append(server)
        return server

    yield start
    for server in started:
        server.__exit__()
