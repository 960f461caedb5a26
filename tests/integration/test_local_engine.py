"""A real engine: llama.cpp out of xllamacpp, with a model that is made on the spot.

What depends on the machine's speed is not asserted: other work beside it slows it down tenfold.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.llamacpp import LlamaCpp
from pytest_gpuserve.engines.openai import OpenAI
from pytest_gpuserve.errors import StartFailed
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload
from pytest_gpuserve.serving.attached import AttachedServer
from pytest_gpuserve.serving.lease import Leases
from pytest_gpuserve.serving.measure import Measurement
from pytest_gpuserve.serving.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_gpuserve.record import Round

    Start = Callable[..., Server]

MISSING = [name for name in ("xllamacpp", "gguf", "safetensors") if not importlib.util.find_spec(name)]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"NO REAL ENGINE IS TESTED: pip install '.[local]' brings {', '.join(MISSING)}"
)

SITE = Site(python=sys.executable, options={"server": "embedded"})
ARGS: dict[str, Any] = {"threads": 1, "parallel": 4, "ctx-size": 2048, "cache-ram": 0}


def config(**changes: Any) -> Config:
    base: dict[str, Any] = {"id": "c", "place": Place("s.yaml", 1), "engine": "llamacpp"}
    base |= {"model": ModelRef(id="gpuserve-tiny"), "args": ARGS}
    return Config(**{**base, **changes})


def workload(**changes: Any) -> Workload:
    base: dict[str, Any] = {"name": "w", "concurrency": 2, "requests": 4, "rounds": 2, "warmup": 1}
    lengths = {"input_tokens": Lengths(mean=24), "output_tokens": Lengths(mean=32)}
    return Workload(**{**base, **lengths, **changes})


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The model is made here, not in the cache of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def make(**changes: Any) -> Server:
        server = Server(
            LlamaCpp(),
            config(**changes),
            SITE,
            log=tmp_path / f"{len(servers)}.log",
            leases=Leases(tmp_path / "leases", slots=4),
            count=1,
        )
        servers.append(server)
        server.start()
        server.wait_ready()
        return server

    yield make
    for server in servers:
        server.stop()


def rounds(server: Any, engine: Any = None, asked: Config | None = None, **changes: Any) -> list[Round]:
    measurement = Measurement(
        server,
        engine or LlamaCpp(),
        asked or config(),
        workload(**changes),
        SITE,
        folder=Path(),
        seed=0,
        say=lambda _: None,
    )
    return measurement.rounds()


def greedy(server: Server, **more: Any) -> str:
    body = {"prompt": "the time of the year", "max_tokens": 48, "temperature": 0, **more}
    request = urllib.request.Request(
        f"{server.target.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        text: str = json.load(answer)["choices"][0]["text"]
    return text


def test_a_life(start: Start) -> None:
    """Ready, measured, and gone: every request has as many tokens as asked, each in a chunk of its own."""
    server = start()
    facts = server.launch_facts()
    assert [p.phase for p in facts.phases] == sorted(
        (p.phase for p in facts.phases),
        key=["import", "args", "weights_load", "kv_alloc", "ready", "serving"].index,
    )
    found = rounds(server)
    for one in found:
        assert (one.requests.ok, one.requests.failed) == (4, 0), one.failures
        assert (one.requests.input_tokens, one.requests.output_tokens) == (4 * 24, 4 * 32)
        assert one.requests.cached_tokens == 0
        assert not [text for text in one.warnings if "tokens per chunk are unknown" in text]
    counted = LlamaCpp().counters(server.target)
    assert counted is not None and counted.generated_tokens == 32 * (1 + 2 * 4)
    assert LlamaCpp().info(server.target)["total_slots"] == 4
    server.stop()
    assert server.report["survivors"] == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.target.port)) != 0


def test_chat(start: Start) -> None:
    (one, *_) = rounds(start(), api="chat", rounds=1, prompt_tolerance=2.0)
    assert (one.requests.ok, one.requests.output_tokens) == (4, 4 * 32), one.failures


def test_a_warm_workload_uses_the_prompt_cache(start: Start) -> None:
    asked = {"shared_prefix": 0.8, "requests": 8, "concurrency": 1, "rounds": 1}
    (cold,) = rounds(start(), **asked)
    (warm,) = rounds(start(), cache="warm", **asked)
    assert cold.requests.cached_tokens == 0
    assert (warm.requests.cached_tokens or 0) > 0


def test_a_model_that_is_its_own_draft_accepts_everything(start: Start) -> None:
    """Accept length: the three draft tokens and the one of the verify pass; and the text is the same."""
    speculation = {"spec-type": "draft-simple", "model-draft": "gpuserve-tiny", "spec-draft-n-max": 3}
    asked = config(args={**ARGS, **speculation})
    server, plain = start(args=asked.args), start()
    (one, *_) = rounds(server, asked=asked, rounds=1)
    assert one.metrics.accept_length == pytest.approx(4.0, abs=0.2)
    assert greedy(server) == greedy(plain)


def test_attached_it_is_measured_and_left_alone(start: Start, tmp_path: Path) -> None:
    server = start()
    asked = config(engine="openai", args={"token-ids": True, "vocabulary": 1024, "keep-alive": False})
    other = AttachedServer(OpenAI(), asked, server.target, log=tmp_path / "attached.log")
    other.start()
    other.wait_ready()
    (one, *_) = rounds(other, OpenAI(), asked, rounds=1)
    assert (one.requests.ok, one.requests.input_tokens) == (4, 4 * 24), one.failures
    other.stop()
    assert not server.failed()
    assert greedy(server)


@pytest.mark.parametrize(
    ("changes", "failure_class", "said"),
    [
        ({"no-such-flag": True}, "config_invalid", "invalid argument: --no-such-flag"),
        ({"cache-type-v": "q8_0", "flash-attn": "off"}, "config_incompatible", "quantized V cache requires"),
    ],
)
def test_what_it_refuses(start: Start, changes: dict[str, Any], failure_class: str, said: str) -> None:
    with pytest.raises(StartFailed, match=said) as raised:
        start(args=ARGS | changes)
    failure = raised.value.failure
    assert failure is not None
    assert (failure.failure_class, failure.environment) == (failure_class, False)


def test_a_file_that_is_no_model(start: Start, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + os.urandom(64))
    with pytest.raises(StartFailed) as raised:
        start(model=ModelRef(id=str(tmp_path / "model.gguf")))
    assert raised.value.failure is not None and raised.value.failure.failure_class.startswith("model_")


def test_the_text_is_the_same_with_two_threads(start: Start) -> None:
    assert greedy(start()) == greedy(start(args=ARGS | {"threads": 2}))


SUITE = """\
server:
  engine: llamacpp
  model: gpuserve-tiny
  args: {threads: 1, parallel: 2, ctx-size: 1024, cache-ram: 0}
workloads:
  single: {concurrency: 1, requests: 2, input_tokens: 16, output_tokens: 64, rounds: 1}
gate: none
probe: same
configs:
  - id: plain
  - id: draft
    args: {spec-type: draft-simple, model-draft: gpuserve-tiny, spec-draft-n-max: 3}
    compare_to: plain
  - id: quantized-v-cache
    args: {cache-type-v: q8_0, flash-attn: "off"}
    xfail:
      kind: start
      reason: needs flash attention
      phases: [kv_alloc]
      match: {class: config_incompatible, message: quantized V cache}
"""


def test_a_suite_through_the_whole_path(pytester: pytest.Pytester) -> None:
    """Its figures may be refused on a busy machine; the probe, the dead end and the records may not."""
    folder = pytester.mkdir("suites")
    (folder / "real.yaml").write_text(SUITE)
    (pytester.path / "gpuserve.local.yaml").write_text("engines: {llamacpp: {options: {server: embedded}}}\n")
    result = pytester.runpytest_subprocess("suites", "--gpuserve-run-dir=run", "--benchmark-disable", "-rx")
    outcomes = result.parseoutcomes()
    assert outcomes["xfailed"] == 1
    assert outcomes.get("passed", 0) + outcomes.get("failed", 0) == 2
    records = {
        file.stem.partition("--")[2]: json.loads(file.read_text())
        for file in (pytester.path / "run" / "records").iterdir()
    }
    assert {records[f"{name}-single"]["verdict"] for name in ("plain", "draft")} <= {"measured", "invalid"}
    plain, draft = (records[f"{name}-single"]["launches"][0]["probe"] for name in ("plain", "draft"))
    assert plain["text"] and plain["text"] == draft["text"]
    assert (draft["same_as"], draft["same_share"]) == ("plain", 1.0)
    assert records["quantized-v-cache-single"]["verdict"] == "dead-end"
    assert records["plain-single"]["engine"]["name"] == "llamacpp"


def test_a_suite_on_a_server_that_runs_already(start: Start, pytester: pytest.Pytester) -> None:
    server = start()
    (pytester.mkdir("suites") / "real.yaml").write_text(SUITE)
    result = pytester.runpytest_subprocess(
        "suites",
        "-k",
        "plain",
        f"--gpuserve-attach={server.target.url}",
        "--gpuserve-run-dir=run",
        "--benchmark-disable",
    )
    record = json.loads((pytester.path / "run/records/real--plain-single.json").read_text())
    assert record["verdict"] in {"measured", "invalid"}, result.stdout.str()
    assert record["engine"]["build"] == "attached"
    assert record["stopped_because"]
    (launch,) = record["launches"]
    assert launch["command"] == [] and launch["probe"]["text"]
    assert not server.failed()
