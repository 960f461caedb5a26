"""A server that answers what it is told, and the configs and sites that engines are asked about."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METRICS = Path(__file__).parent / "metrics"


class Stub:
    """Answers from a list a path, the last answer again and again, and remembers what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, str]]] = {}
        self.asked: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.asked.append(f"{self.command} {self.path}")
                answers = stub.answers.get(self.path.partition("?")[0], [(404, "")])
                status, body = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.target = Target(host="127.0.0.1", port=self._server.server_port)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def metrics(self, name: str) -> None:
        """Let /metrics be what a real server said."""
        self.answers["/metrics"] = [(200, (METRICS / name).read_text())]


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


@pytest.fixture
def config() -> Callable[..., Config]:
    def make(engine: str, **changes: Any) -> Config:
        base: dict[str, Any] = {"id": "c", "place": Place("s.yaml", 1), "model": ModelRef(id="org/model")}
        return Config(**{**base, "args": {}, "engine": engine, **changes})

    return make


@pytest.fixture
def workload() -> Callable[..., Workload]:
    def make(**changes: Any) -> Workload:
        base: dict[str, Any] = {"name": "decode", "concurrency": 1, "requests": 1}
        lengths = {"input_tokens": Lengths(mean=8), "output_tokens": Lengths(mean=8)}
        return Workload(**{**base, **lengths, **changes})

    return make


@pytest.fixture
def site() -> Callable[..., Site]:
    return lambda **changes: Site(**{"python": "/opt/venv/bin/python", **changes})
