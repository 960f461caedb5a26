"""A server that is not ours: asked, never started or stopped."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.engines.openai import OpenAI
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.errors import Crashed, EngineMissing, Stalled, StartFailed
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import Config, ModelRef, Place
from pytest_gpuserve.serving import attached
from pytest_gpuserve.serving.attached import AttachedServer
from pytest_gpuserve.serving.measure import log_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = Config(id="c", place=Place("s.yaml", 1), engine="openai", model=ModelRef(id="m"), args={})
SAID = {"/v1/models": '{"data": []}', "/server_info": '{"version": "0.5.15"}'}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = SAID.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write((body or "").encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def target() -> Iterator[Target]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield Target(host="127.0.0.1", port=server.server_port)
    server.shutdown()
    server.server_close()


def test_a_life(target: Target, tmp_path: Path) -> None:
    server = AttachedServer(OpenAI(), CONFIG, target, log=tmp_path / "logs" / "a.log")
    server.start()
    server.wait_ready()
    assert not server.failed()
    assert log_size(server.log) > 0, "rounds look into the log"
    facts = server.launch_facts()
    assert (facts.log, facts.command, facts.ready_s) == ("logs/a.log", [], None)
    assert facts.started
    server.stop()
    assert attached.answer(target, "/v1/models") == "200", "it goes on"
    assert isinstance(server.crash(), Crashed)
    assert isinstance(server.stall(), Stalled)


def test_it_must_answer(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "PATIENCE_S", 0.0)
    server = AttachedServer(SGLang(), CONFIG, target, log=tmp_path / "a.log")
    server.start()
    with pytest.raises(StartFailed, match=r"/model_info does not answer 200: 404") as raised:
        server.wait_ready()
    assert raised.value.failure is not None and raised.value.failure.environment, "no dead end"


def test_what_runs_there(target: Target) -> None:
    build = attached.build(SGLang(), target)
    assert (build.name, build.version, build.build) == ("sglang", "0.5.15", "attached")
    assert attached.build(OpenAI(), target).version == "unknown"


def test_nothing_runs_there() -> None:
    with pytest.raises(EngineMissing, match=r"no openai answers at http://127\.0\.0\.1:9"):
        attached.build(OpenAI(), Target(host="127.0.0.1", port=9))
