"""Real SGLang 0.5.23 on the CPU: what the engine `sglang` says of it, held against the thing itself.

A start takes 20-35 s on two idle cores, so that one server is shared where none has to be special. What depends on
the machine's speed is not asserted.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.errors import StartFailed
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload
from pytest_gpuserve.serving.lease import Leases
from pytest_gpuserve.serving.measure import Measurement
from pytest_gpuserve.serving.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_gpuserve.record import Round

    Make = Callable[..., Server]

HOME = os.environ.get("GPUSERVE_SGLANG_CPU", "")
pytestmark = [
    pytest.mark.sglang_cpu,
    pytest.mark.skipif(not HOME, reason="GPUSERVE_SGLANG_CPU names no environment with SGLang for the CPU"),
]

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(Path(__file__).parent / "sglang_cpu" / "standins"),
    "SGLANG_USE_CPU_ENGINE": "1",
}
SITE = Site(python=f"{HOME}/bin/python", env=ENVIRONMENT)
ARGS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "attention-backend": "torch_native",
    "disable-overlap-schedule": True,
    "mem-fraction-static": 0.2,
    "max-total-tokens": 8192,
    "max-running-requests": 8,
    "enable-metrics": True,
}


def config(**changes: Any) -> Config:
    base: dict[str, Any] = {"id": "c", "place": Place("s.yaml", 1), "engine": "sglang"}
    # Beside other work a start was seen to take 200 s instead of 25, and a request as much longer.
    slow = {"import": 900.0, "args": 900.0, "device_init": 900.0, "http_bind": 900.0, "shutdown": 300.0}
    base |= {"model": ModelRef(id="gpuserve-tiny"), "args": ARGS, "timeouts": slow}
    return Config(**{**base, **changes})


def workload(**changes: Any) -> Workload:
    base: dict[str, Any] = {"name": "w", "concurrency": 2, "requests": 4, "rounds": 2, "warmup": 1}
    lengths = {"input_tokens": Lengths(mean=24), "output_tokens": Lengths(mean=32)}
    return Workload(**{**base, **lengths, **changes})


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """A server that has yet to be started; all are stopped in the end."""
    folder = tmp_path_factory.mktemp("sglang")
    servers: list[Server] = []

    def make(**changes: Any) -> Server:
        log = folder / f"{len(servers)}.log"
        leases = Leases(folder / "leases", slots=4)
        servers.append(Server(SGLang(), config(**changes), SITE, log=log, leases=leases, count=1))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def server(make: Make) -> Server:
    server = make()
    server.start()
    server.wait_ready()
    return server


def rounds(server: Server, **changes: Any) -> list[Round]:
    measurement = Measurement(
        server, SGLang(), config(), workload(**changes), SITE, folder=Path(), seed=0, say=lambda _: None
    )
    return measurement.rounds()


def test_what_is_installed() -> None:
    build = SGLang().build(SITE)
    assert (build.version, build.packages["torch"].partition("+")[0]) == ("0.5.23", "2.13.0")


def test_the_phases_of_its_start(server: Server) -> None:
    phases = [p.phase for p in server.launch_facts().phases]
    order = [
        "import",
        "device_init",
        "comm_init",
        "weights_load",
        "kv_alloc",
        "http_bind",
        "warmup",
        "ready",
        "serving",
    ]
    assert [phase for phase in phases if phase in order] == [phase for phase in order if phase in phases]
    assert {"import", "device_init", "weights_load", "kv_alloc", "http_bind", "ready"} <= set(phases)


def test_what_it_says_of_itself(server: Server) -> None:
    info = SGLang().info(server.target)
    assert info["version"] == "0.5.23"
    assert info["max_total_tokens"] == ARGS["max-total-tokens"]


def test_generate_counts_every_token(server: Server) -> None:
    before = SGLang().counters(server.target)
    found = rounds(server)
    after = SGLang().counters(server.target)
    for one in found:
        assert (one.requests.ok, one.requests.failed) == (4, 0), one.failures
        assert (one.requests.input_tokens, one.requests.output_tokens) == (4 * 24, 4 * 32)
        assert one.requests.cached_tokens == 0, "flushed before each round"
    assert before is not None and after is not None
    assert before.generated_tokens is not None and after.generated_tokens is not None
    assert after.generated_tokens - before.generated_tokens == 32 * (1 + 2 * 4)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_openai_formats(server: Server, api: str) -> None:
    (one,) = rounds(server, api=api, rounds=1, prompt_tolerance=2.0)
    assert (one.requests.ok, one.requests.output_tokens) == (4, 4 * 32), one.failures


def test_a_flush_empties_the_cache(server: Server) -> None:
    body = {"input_ids": list(range(300, 364)), "sampling_params": {"max_new_tokens": 1}}

    def cached() -> int:
        said: dict[str, Any] = json.loads(post(server, "/generate", body))
        return int(said["meta_info"]["cached_tokens"])

    cached()
    assert cached() > 32
    SGLang().flush(server.target)
    assert cached() == 0


def post(server: Server, path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(
        server.target.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        whole: bytes = answer.read()
    return whole


def test_sigterm_drains(server: Server) -> None:
    """What is under way when it is stopped is answered to the end. Last, since the server is gone after it."""
    answers: list[bytes] = []
    body = {"text": "time", "sampling_params": {"max_new_tokens": 150, "ignore_eos": True}}
    asking = threading.Thread(target=lambda: answers.append(post(server, "/generate", body)))
    deadline = time.monotonic() + 60
    before = server.log.read_text().count("Prefill batch")
    asking.start()
    while server.log.read_text().count("Prefill batch") == before and time.monotonic() < deadline:
        time.sleep(0.05)
    server.stop()
    asking.join(60)
    assert json.loads(answers[0])["meta_info"]["completion_tokens"] == 150
    assert server.report["survivors"] == []
    assert "Draining" in server.log.read_text() or "Gracefully exiting" in server.log.read_text()


def failed(server: Server) -> Any:
    """The root error of a start that must fail."""
    with pytest.raises(StartFailed) as raised:
        server.start()
        server.wait_ready()
    failure = raised.value.failure
    assert failure is not None
    server.stop()
    assert server.report["survivors"] == []
    return failure


def test_a_wrong_flag(make: Make) -> None:
    failure = failed(make(args=ARGS | {"no-such-flag": True}))
    assert (failure.failure_class, failure.phase) == ("config_invalid", "args")
    assert failure.exit_status in {2, None}, "it may be stopped before it has ended by itself"
    assert "no-such-flag" in failure.message


def test_a_model_that_is_not_there(make: Make) -> None:
    failure = failed(make(model=ModelRef(id="nobody/nothing")))
    assert failure.failure_class in {"model_access", "config_invalid"}


def test_a_port_that_somebody_takes_during_the_start(make: Make) -> None:
    """SGLang loads everything, cannot bind, and still says that it is ready, while the other one answers."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = make()
    server.start()
    other = HTTPServer(("127.0.0.1", server.target.port), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        with pytest.raises(StartFailed) as raised:
            server.wait_ready()
    finally:
        other.shutdown()
        other.server_close()
    assert raised.value.failure is not None
    assert (raised.value.failure.failure_class, raised.value.failure.environment) == ("port_conflict", True)


SUITE = """\
server:
  engine: sglang
  model: gpuserve-tiny
  args: {args}
workloads:
  single: {{concurrency: 1, requests: 2, input_tokens: 16, output_tokens: 32, rounds: 1}}
gate: none
probe: same
configs:
  - id: plain
  - id: no-radix-cache
    args: {{disable-radix-cache: true}}
    compare_to: plain
"""


def test_a_suite_of_two_configs_through_the_whole_path(pytester: pytest.Pytester) -> None:
    """Its figures may be refused on a busy machine; the probe and the records may not."""
    (pytester.mkdir("suites") / "real.yaml").write_text(SUITE.format(args=json.dumps(ARGS)))
    local = {"engines": {"sglang": {"python": SITE.python, "env": ENVIRONMENT}}}
    (pytester.path / "gpuserve.local.yaml").write_text(json.dumps(local))
    result = pytester.runpytest_subprocess("suites", "--gpuserve-run-dir=run", "--benchmark-disable")
    outcomes = result.parseoutcomes()
    assert outcomes.get("passed", 0) + outcomes.get("failed", 0) == 2, result.stdout.str()
    records = [
        json.loads((pytester.path / f"run/records/real--{name}-single.json").read_text())
        for name in ("plain", "no-radix-cache")
    ]
    assert {record["verdict"] for record in records} <= {"measured", "invalid"}
    assert {record["engine"]["version"] for record in records} == {"0.5.23"}
    assert records[1]["launches"][0]["probe"]["same_share"] == 1.0
    assert records[0]["launches"][0]["server_info"]["version"] == "0.5.23"
