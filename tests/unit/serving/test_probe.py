"""What a server says to the probe, and when that is nonsense."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.errors import Crashed, Garbage
from pytest_gpuserve.load.api import Api, Target
from pytest_gpuserve.model import Probe
from pytest_gpuserve.record import ProbeAnswer
from pytest_gpuserve.serving import probe

if TYPE_CHECKING:
    from collections.abc import Iterator

APIS = {
    "generate": Api(kind="generate", path="/generate", model="", token_ids=True),
    "completions": Api(
        kind="completions", path="/v1/completions", model="m", token_ids=True, extra={"cache_prompt": False}
    ),
    "chat": Api(kind="chat", path="/v1/chat/completions", model="m", token_ids=False),
}
SENSE = "January has 31 days, February has 28 days or 29 in a leap year, March has 31 days, April has 30."


class Answering:
    """A server that gives one answer, and notes what it was asked."""

    def __init__(self) -> None:
        self.status, self.said = 200, b"{}"
        self.asked: dict[str, Any] = {}
        self.dead = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                outer.asked = {"path": self.path, **json.loads(self.rfile.read(length))}
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.said)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        target = Target(host="127.0.0.1", port=self._server.server_port)
        self.running: Any = SimpleNamespace(
            target=target, failed=lambda: self.dead, crash=lambda: Crashed("it died")
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Answering]:
    server = Answering()
    yield server
    server.close()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("generate", {"text": SENSE, "meta_info": {"completion_tokens": 30}}),
        ("completions", {"choices": [{"text": SENSE}], "usage": {"completion_tokens": 30}}),
        ("chat", {"choices": [{"message": {"content": SENSE}}], "usage": {"completion_tokens": 30}}),
        (
            "chat",
            {
                "choices": [{"message": {"reasoning_content": SENSE[:9], "content": SENSE[9:]}}],
                "usage": {"completion_tokens": 30},
            },
        ),
    ],
)
def test_it_is_asked_greedily_and_as_a_whole(server: Answering, kind: str, said: dict[str, Any]) -> None:
    server.said = json.dumps(said).encode()
    answer = probe.ask(server.running, APIS[kind], Probe(prompt="Hello", output_tokens=30))
    assert answer == ProbeAnswer(text=SENSE, output_tokens=30)
    asked = server.asked
    assert (asked["path"], asked["stream"]) == (APIS[kind].path, False)
    assert "stream_options" not in asked
    assert "Hello" in json.dumps(asked)
    sampling = asked.get("sampling_params", asked)
    assert sampling["temperature"] == 0.0
    assert sampling.get("max_tokens", sampling.get("max_new_tokens")) == 30


def test_an_error_is_a_crash(server: Answering) -> None:
    server.status, server.said = 500, b"CUDA error"
    with pytest.raises(Crashed, match="answered with 500: CUDA error"):
        probe.ask(server.running, APIS["generate"], Probe())
    server.dead = True
    with pytest.raises(Crashed, match="it died"):
        probe.ask(server.running, APIS["generate"], Probe())


def test_no_answer_is_a_crash(server: Answering) -> None:
    server.close()
    with pytest.raises(Crashed, match="has no answer"):
        probe.ask(server.running, APIS["generate"], Probe())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no text at all"),
        (" \n ", "no text at all"),
        ("!" * 64, "runs in circles: '!'"),
        ("the the the the the the the the", "runs in circles"),
        ("Well, so it is. " + "I am a cat. " * 40, "runs in circles"),
        ("\ufffd\ufffd word \ufffd\ufffd\ufffd", "bytes that are no text"),
    ],
)
def test_nonsense(text: str, why: str) -> None:
    assert probe.degenerate(text).startswith(why)


@pytest.mark.parametrize(
    "text",
    [
        SENSE,
        "No.",
        "hahaha",
        "one two three one two three, four five six seven",
        " practice project practis offici leader practice resear mind ed act comp controC doo practi nig",
        "naïve café: \ufffd is one bad byte in an otherwise readable sentence of some length",
    ],
)
def test_what_may_be_an_answer(text: str) -> None:
    assert probe.degenerate(text) == ""


def test_compare_counts_the_common_beginning() -> None:
    one, other = ProbeAnswer(text="abcdef"), ProbeAnswer(text="abcxyz12")
    found = probe.compare(one, "plain", other)
    assert (found.same_as, found.same_share) == ("plain", 3 / 8)
    assert probe.compare(one, "plain", one).same_share == 1.0
    assert probe.compare(one, "plain", ProbeAnswer(text="abc")).same_share == 0.5


def test_demands() -> None:
    bad = ProbeAnswer(text="!!!!", degenerate="no text")
    probe.demand(Probe(demand="record"), bad, None)
    with pytest.raises(Garbage, match="its answer to the probe is no text") as raised:
        probe.demand(Probe(demand="sane"), bad, None)
    assert raised.value.failure is not None
    assert raised.value.failure.failure_class == "silent_wrong_output"
    fine, other = ProbeAnswer(text=SENSE), ProbeAnswer(text=SENSE[:20] + "?")
    probe.demand(Probe(demand="same"), fine, None)  # the partner has not run
    differs = probe.compare(fine, "plain", other)
    probe.demand(Probe(demand="sane"), differs, other)
    with pytest.raises(Garbage, match="differs from that of plain after 20 letters"):
        probe.demand(Probe(demand="same"), differs, other)
    probe.demand(Probe(demand="same"), probe.compare(fine, "plain", fine), fine)
