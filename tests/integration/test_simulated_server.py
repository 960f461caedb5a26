"""The simulated server as a process: driven over loopback, its log read as a real one's is.

Deaths are held against what the classifier makes of them, streams against those of a real SGLang 0.5.15.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import requests

from pytest_gpuserve.engines.simulated import Simulation
from pytest_gpuserve.engines.simulated.perturb import parse
from pytest_gpuserve.engines.simulated.profile import load_profile
from pytest_gpuserve.failures.classify import Classifier
from pytest_gpuserve.load import client, traffic
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.load.metrics import summarise
from pytest_gpuserve.suite import load_suite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_gpuserve.model import Config

SUITE = load_suite(Path(__file__).parents[2] / "suites" / "kimi_k2_5.yaml")
STREAMS = Path(__file__).parents[1] / "unit" / "engines" / "streams"
MODEL = "moonshotai/Kimi-K2.5"
READY = "The server is fired up and ready to roll!"
PATIENCE_S = 60.0
"""For what should take a fraction of a second, on a machine that may be busy."""
QUICK = 0.0005
"""Scale of starts, and of serving where its speed is not looked at."""

each_version = pytest.mark.parametrize("version", ["story", "0.5.14"])


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    target: Target
    file: Path

    @property
    def log(self) -> str:
        return self.file.read_text()

    @property
    def url(self) -> str:
        return self.target.url

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            over = self.process.poll() is not None
            if found := re.search(pattern, self.log):
                return found
            assert not over, f"ended with {self.process.returncode}:\n{self.log}"
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in:\n{self.log}")

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)

    def generate(self, tokens: int = 8, **body: Any) -> requests.Response:
        body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": tokens}, "stream": True} | body
        return requests.post(f"{self.url}/generate", json=body, timeout=PATIENCE_S)


class Starter:
    """Starts servers as the suite's configs say, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[Server] = []

    def __call__(
        self,
        config: str = "no-spec",
        version: str = "story",
        *perturb: str,
        args: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        time_scale: float = QUICK,
        ready: bool = True,
    ) -> Server:
        perturbation = parse(perturb)
        simulation = Simulation(version, perturbation, time_scale=time_scale, startup_scale=QUICK)
        found: Config = SUITE.config(config)
        changed = {"args": {**found.args, **(args or {})}, "env": {**found.env, **(env or {})}}
        found = msgspec.structs.replace(found, **changed)
        target = Target(host="127.0.0.1", port=free_port())
        command = simulation.engine("sglang").command(found, simulation.site(found), target, ())
        environment = {k: v for k, v in {**os.environ, **command.env}.items() if v is not None}
        file = self._folder / f"log-{len(self._servers)}"
        with file.open("wb") as out:
            process = subprocess.Popen(
                command.argv, env=environment, stdout=out, stderr=out, cwd=self._folder
            )
        self._servers.append(Server(process, target, file))
        if ready:
            self._servers[-1].wait_for(re.escape(READY))
        return self._servers[-1]

    def end(self) -> None:
        for server in self._servers:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    starter.end()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all that only ask: the story's, without speculation."""
    starter = Starter(tmp_path_factory.mktemp("plain"))
    yield starter(args={"enable-metrics": True, "served-model-name": "kimi"})
    starter.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def events(answer: requests.Response) -> list[Any]:
    """The events of a stream; its last one must be [DONE]."""
    assert answer.status_code == 200, answer.text
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def recorded(name: str) -> list[Any]:
    lines = [line for line in (STREAMS / name).read_text().split("\n\n") if line.strip()]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def shape(value: Any) -> Any:
    """Keys in their order, down to the leaves; a leaf is whether it is null."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    return value is None


# --- starts ---


@each_version
def test_a_healthy_start_goes_through_the_phases(start: Starter, version: str) -> None:
    server = start(version=version)
    server.process.terminate()
    status = server.ended()
    classifier = Classifier(engine="sglang")
    for line in server.log.splitlines():
        classifier.feed(line)
    assert classifier.finish(status) is None
    assert classifier.phases_seen == (
        *("args", "device_init", "comm_init", "weights_load", "kv_alloc", "cuda_graph_capture"),
        *("http_bind", "warmup", "ready", "shutdown"),
    )


FAILURES = {
    ("story", "flashinfer-allreduce-fusion"): (
        *(-9, "hw_unsupported", "cuda_graph_capture", "RuntimeError"),
        "No supported CUDA architectures found for major versions [9, 10].",
    ),
    ("story", "nccl-tree"): (
        -9,
        "comm_other",
        "cuda_graph_capture",
        "RuntimeError",
        "NCCL_ALGO was set to Tree",
    ),
    ("story", "torch-symm-mem"): (-9, "hw_unsupported", "comm_init", "KeyError", "12"),
    ("story", "ep-flashinfer-a2a"): (
        *(-9, "oom_gpu", "weights_load", "torch.OutOfMemoryError"),
        "CUDA out of memory. Tried to allocate",
    ),
    ("story", "ep-deepep"): (
        -9,
        "dependency_missing",
        "weights_load",
        "ImportError",
        "DeepEP is not installed.",
    ),
    ("0.5.14", "flashinfer-allreduce-fusion"): (
        *(-9, "hw_unsupported", "cuda_graph_capture", "ValueError"),
        "FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.",
    ),
    ("0.5.14", "nccl-tree"): (
        -9,
        "comm_other",
        "cuda_graph_capture",
        "RuntimeError",
        "NCCL_ALGO was set to Tree",
    ),
    ("0.5.14", "ep-flashinfer-a2a"): (
        *(1, "config_invalid", "args", "AssertionError"),
        "Flashinfer MoE A2A is only supported with dp_size == tp_size and --enable-dp-attention",
    ),
    ("0.5.14", "ep-deepep"): (
        -9,
        "dependency_missing",
        "weights_load",
        "ImportError",
        "DeepEP is not installed.",
    ),
}


@pytest.mark.parametrize(("version", "config"), FAILURES, ids="-".join)
def test_a_dead_end_dies_as_it_is_documented(start: Starter, version: str, config: str) -> None:
    status, failure_class, phase, exception, message = FAILURES[version, config]
    server = start(config, version, ready=False)
    assert server.ended() == status
    classifier = Classifier(engine="sglang")
    for line in server.log.splitlines():
        classifier.feed(line)
    failure = classifier.finish(status)
    assert failure is not None
    assert (failure.failure_class, failure.phase, failure.exception) == (failure_class, phase, exception)
    assert message in failure.message
    assert READY not in server.log


def test_ranks_fail_under_their_own_names_and_the_main_process_has_the_last_word(start: Starter) -> None:
    server = start("torch-symm-mem", ready=False)
    server.ended()
    assert re.findall(r"TP(\d)\] Scheduler hit an exception", server.log) == ["5", "0"]
    assert server.log.rstrip().endswith("It usually means the child failed.")


def test_an_inert_path_serves_and_says_so(start: Starter) -> None:
    server = start("torch-symm-mem", "0.5.14")
    line = "TorchSymmMemCommunicator: Device capability 12 not supported, communicator is not available."
    assert server.log.count(line) == 8
    assert server.generate().status_code == 200


def test_flags_of_another_time_are_refused_as_argparse_refuses(start: Starter) -> None:
    server = start(args={"enable-warp-drive": True}, ready=False)
    assert server.ended() == 2
    assert "usage: sglang serve [-h] --model-path MODEL_PATH" in server.log
    assert server.log.rstrip().endswith("sglang serve: error: unrecognized arguments: --enable-warp-drive")
    assert "server_args=" not in server.log


def test_what_the_profile_does_not_know_is_not_made_up(start: Starter) -> None:
    server = start("ep-native", ready=False)
    assert server.ended() == 1
    assert server.log == "simulated: the profile knows nothing of --ep-size 8\n"


def test_a_port_that_is_taken_ends_it_as_uvicorn_ends(start: Starter) -> None:
    first = start()
    args = ["--host", "127.0.0.1", "--port", str(first.target.port)]
    second = subprocess.run(
        [
            *first.process.args[: first.process.args.index("--") + 1],
            "--model-path",
            MODEL,
            "--tp-size",
            "8",
            *args,
        ],
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert second.returncode == 3
    assert f"('127.0.0.1', {first.target.port}): address already in use" in second.stderr


@pytest.mark.parametrize("milliseconds", ["0", "1"])
def test_time_stamps(start: Starter, milliseconds: str) -> None:
    server = start(env={"SGLANG_LOG_MS": milliseconds})
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d" + (r"\.\d{3}" if milliseconds == "1" else "")
    assert re.search(rf"^\[{stamp} TP7\] Init torch distributed begin\.$", server.log, re.M)
    assert re.search(rf"^\[{stamp}\] server_args=ServerArgs\(model_path='{MODEL}', ", server.log, re.M)


@each_version
def test_the_own_arguments_are_told_with_all_defaults(start: Starter, version: str) -> None:
    server = start("eagle3", version)
    info = requests.get(f"{server.url}/server_info", timeout=PATIENCE_S).json()
    assert (info["tp_size"], info["speculative_algorithm"], info["max_running_requests"]) == (8, "EAGLE3", 48)
    assert info["simulated"] is True
    assert info["version"] == ("0.5.10" if version == "story" else "0.5.14")
    assert len(info) > 300 and info["internal_states"][0]["tp_size"] == 8


# --- the API ---


def test_not_ready_until_its_own_warm_up_is_answered(start: Starter) -> None:
    server = start(time_scale=5, ready=False)
    server.wait_for("Uvicorn running on")
    assert requests.get(f"{server.url}/model_info", timeout=PATIENCE_S).status_code == 200
    assert requests.get(f"{server.url}/health_generate", timeout=PATIENCE_S).status_code == 503
    assert READY not in server.log


def test_read_only_paths(plain: Server) -> None:
    def get(path: str) -> requests.Response:
        return requests.get(plain.url + path, timeout=PATIENCE_S)

    assert get("/health").status_code == get("/health_generate").status_code == 200
    assert get("/model_info").json()["model_path"] == get("/get_model_info").json()["model_path"] == MODEL
    assert get("/v1/models").json()["data"][0]["id"] == "kimi"
    assert get("/nowhere").status_code == 404
    assert get("/generate").status_code == 405
    assert 'sglang:generation_tokens_total{engine_type="unified",model_name="kimi"} ' in get("/metrics").text


def test_metrics_need_their_flag(start: Starter) -> None:
    assert requests.get(f"{start().url}/metrics", timeout=PATIENCE_S).status_code == 404


def test_a_key_is_asked_for(start: Starter) -> None:
    server = start(args={"api-key": "secret"})
    assert server.generate().status_code == 401
    headers = {"Authorization": "Bearer secret"}
    assert requests.get(f"{server.url}/model_info", headers=headers, timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize(("config", "name"), [("no-spec", "generate.sse"), ("eagle3", "generate-ngram.sse")])
def test_native_streams_have_the_shape_of_real_ones(start: Starter, config: str, name: str) -> None:
    server = start(config, "0.5.14", args={"enable-metrics": True})
    real = recorded(name)
    if real[0]["meta_info"]["cached_tokens"]:  # as in the recording, the prompt has been seen before
        server.generate(input_ids=[1, 2, 3, 4])
    found = events(server.generate(input_ids=[1, 2, 3, 4], tokens=12))
    assert shape(found[0]) == shape(real[0])
    assert shape(found[1]) == shape(real[1])
    assert shape(found[-1]) == shape(real[-1])


@each_version
def test_native_streams_count(start: Starter, version: str) -> None:
    found = events(start("eagle3", version).generate(tokens=64))
    last = found[-1]["meta_info"]
    counts = [event["meta_info"]["completion_tokens"] for event in found]
    assert counts[0] == 1 and counts == sorted(counts) and counts[-1] == 64
    assert last["finish_reason"] == {"type": "length", "length": 64}
    assert last["spec_verify_ct"] == len(found) - 1
    assert last["spec_accept_length"] == pytest.approx(64 / last["spec_verify_ct"])
    assert all(len(event["output_ids"]) == event["meta_info"]["completion_tokens"] for event in found)
    assert all(b["text"].startswith(a["text"]) for a, b in itertools.pairwise(found))
    assert len(found[-1]["text"].split()) == 64


def test_fields_are_named_as_each_version_names_them(start: Starter) -> None:
    old = events(start("eagle3", "story").generate())[-1]["meta_info"]
    new = events(start("eagle3", "0.5.14").generate())[-1]["meta_info"]
    assert {"total_retractions", "spec_accept_token_num"} <= old.keys() - new.keys()
    assert {"num_retractions", "spec_num_correct_drafts"} <= new.keys() - old.keys()


@pytest.mark.parametrize(
    ("path", "name", "prompt"),
    [
        ("/v1/completions", "completions.sse", {"prompt": [1, 2, 3, 4], "max_tokens": 6}),
        (
            "/v1/chat/completions",
            "chat.sse",
            {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 4},
        ),
    ],
)
def test_openai_streams_have_the_shape_of_real_ones(
    start: Starter, path: str, name: str, prompt: dict[str, Any]
) -> None:
    body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, **prompt}
    found = events(requests.post(start(version="0.5.14").url + path, json=body, timeout=PATIENCE_S))
    real = recorded(name)
    assert [shape(event) for event in found] == [shape(event) for event in real]
    assert found[-1]["usage"]["completion_tokens"] == real[-1]["usage"]["completion_tokens"]


def test_usage_in_every_chunk(plain: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": [1, 2, 3], "max_tokens": 5, "stream": True, "stream_options": options}
    found = events(requests.post(f"{plain.url}/v1/completions", json=body, timeout=PATIENCE_S))
    assert [event["usage"]["completion_tokens"] for event in found] == [1, 2, 3, 4, 5, 5]


def test_whole_answers(plain: Server) -> None:
    native = plain.generate(5, stream=False).json()
    assert native["meta_info"]["completion_tokens"] == len(native["output_ids"]) == 5
    body = {"prompt": "once upon a time", "max_tokens": 5}
    answer = requests.post(f"{plain.url}/v1/completions", json=body, timeout=PATIENCE_S).json()
    assert answer["usage"] == {
        "prompt_tokens": 4,
        "total_tokens": 9,
        "completion_tokens": 5,
        "reasoning_tokens": 0,
    }


def test_the_cache_remembers_until_it_is_flushed(plain: Server) -> None:
    prompt = list(range(100, 140))

    def cached() -> int:
        return int(events(plain.generate(input_ids=prompt))[-1]["meta_info"]["cached_tokens"])

    assert [cached(), cached()] == [0, 39]
    answer = requests.post(f"{plain.url}/flush_cache", timeout=PATIENCE_S)
    assert answer.status_code == 200 and answer.text.startswith("Cache flushed.")
    assert cached() == 0
    assert plain.log.count("Cache flushed successfully!") == 8
    text = requests.get(f"{plain.url}/metrics", timeout=PATIENCE_S).text
    assert re.search(r"sglang:cached_tokens_total\{.*\} 39\.0", text)


def test_flush_while_a_request_runs(start: Starter) -> None:
    server = start(time_scale=0.3)
    with requests.post(
        f"{server.url}/generate",
        json={"input_ids": [1], "sampling_params": {"max_new_tokens": 300}, "stream": True},
        stream=True,
        timeout=PATIENCE_S,
    ) as running:
        lines = running.iter_lines()  # kept: its end would close the connection
        next(lines)
        assert requests.post(f"{server.url}/flush_cache", timeout=PATIENCE_S).status_code == 400
        waited = requests.post(f"{server.url}/flush_cache?timeout=30", timeout=PATIENCE_S)
        assert waited.status_code == 200


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"input_ids": []}, "one prompt a request"),
        ({"input_ids": [[1], [2]]}, "one prompt a request"),
        ({"input_ids": [163840]}, "outside of the vocabulary"),
        ({"input_ids": [1] * 4000}, "prompts of 1 to 2048 tokens, not 4000"),
        ({"input_ids": None}, "Either text, input_ids"),
        ({"sampling_params": {"max_new_tokens": "many"}}, "must be an integer"),
    ],
)
def test_requests_that_cannot_be_served(plain: Server, body: dict[str, Any], error: str) -> None:
    answer = plain.generate(**body)
    assert answer.status_code == 400
    assert error in answer.json()["error"]["message"]


def test_a_second_request_at_once_is_more_than_the_profile_knows(start: Starter) -> None:
    server = start(time_scale=1)
    body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 300}, "stream": True}
    with requests.post(f"{server.url}/generate", json=body, stream=True, timeout=PATIENCE_S) as running:
        assert running.status_code == 200
        refused = server.generate()
        assert refused.status_code == 400 and "at most 1 requests at once" in refused.text
    deadline = time.monotonic() + PATIENCE_S  # the client is gone, so its request is too
    while (answer := server.generate(1)).status_code != 200:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.01)


def test_broken_requests_are_refused_and_the_server_lives_on(plain: Server) -> None:
    for data in (b"GARBAGE\r\n\r\n", b"POST /generate HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", plain.target.port)) as client:
            client.sendall(data)
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    answer = requests.post(f"{plain.url}/generate", data=b"{", timeout=PATIENCE_S)
    assert answer.status_code == 400 and "Invalid JSON" in answer.text
    assert plain.generate().status_code == 200


def test_connections_are_kept(plain: Server) -> None:
    with requests.Session() as session:
        for _ in range(3):
            assert session.get(f"{plain.url}/model_info", timeout=PATIENCE_S).status_code == 200
    assert len(set(re.findall(r'127\.0\.0\.1:(\d+) - "GET /model_info', plain.log)[-3:])) == 1


# --- speed ---


@pytest.mark.parametrize("config", ["no-spec", "eagle3"])
def test_throughput_is_that_of_the_profile(start: Starter, tmp_path: Path, config: str) -> None:
    """As the load client measures it, in the compressed time in which suites run."""
    scale = 0.05
    server = start(config, time_scale=scale)
    workload = msgspec.structs.replace(SUITE.workloads["decode"], requests=2)
    api = Simulation().engine("sglang").api(SUITE.config(config), workload)
    found = []
    for index in range(5):
        plan = traffic.plan(workload, api, seed=1, round_index=index, folder=tmp_path, time_scale=scale)
        samples = client.run(server.target, api, plan, stall_s=PATIENCE_S)
        found.append(summarise(samples, workload, time_scale=scale).metrics)
    serving = load_profile().serving[config]
    throughput = statistics.median(metrics.output_throughput or 0 for metrics in found)
    assert throughput == pytest.approx(serving.output_throughput.value, rel=0.05)
    if serving.accept_length:
        assert found[0].accept_length == pytest.approx(serving.accept_length.value, rel=0.02)


def test_decode_lines_tell_what_was_served(start: Starter) -> None:
    server = start("eagle3", time_scale=0.05)
    server.generate(256)
    lengths = re.findall(
        r"accept len: ([\d.]+), accept rate: ([\d.]+), cuda graph: True, gen throughput", server.log
    )
    assert lengths and all(float(length) == pytest.approx(2.0, abs=0.15) for length, _ in lengths)
    assert all(float(rate) == pytest.approx(float(length) / 4, abs=0.01) for length, rate in lengths)


# --- perturbations ---


def test_slower(start: Starter) -> None:
    scale = 0.05
    server = start("no-spec", "story", "slowdown:no-spec=50%", time_scale=scale)
    began = time.monotonic()
    server.generate(512, input_ids=list(range(128)))
    assert 512 / (time.monotonic() - began) * scale == pytest.approx(89.5 / 2, rel=0.1)


@pytest.mark.parametrize(("version", "config"), FAILURES, ids="-".join)
def test_a_dead_end_that_opens_serves_like_plain_decoding(start: Starter, version: str, config: str) -> None:
    server = start(config, version, f"opens:{config}")
    assert events(server.generate(4))[-1]["meta_info"]["completion_tokens"] == 4


def test_an_open_path_says_that_it_is_taken(start: Starter) -> None:
    active = SUITE.config("flashinfer-allreduce-fusion").active_if
    assert active is not None
    for version in ("story", "0.5.14"):
        server = start("flashinfer-allreduce-fusion", version, "opens:flashinfer-allreduce-fusion")
        assert re.search(active.log, server.log)


def test_an_inert_path_that_opens_is_silent(start: Starter) -> None:
    server = start("torch-symm-mem", "0.5.14", "opens:torch-symm-mem")
    assert "TorchSymmMemCommunicator" not in server.log


def test_a_slow_path_that_opens_overtakes_plain_decoding(start: Starter) -> None:
    scale = 0.25
    server = start("eagle3", "story", "opens:eagle3", time_scale=scale)
    began = time.monotonic()
    server.generate(512, input_ids=list(range(128)))
    assert 512 / (time.monotonic() - began) * scale > 89.5


@each_version
@pytest.mark.parametrize("config", ["torch-symm-mem", "no-spec", "ep-deepep"])
def test_otherwise_is_another_death(start: Starter, version: str, config: str) -> None:
    server = start(config, version, f"otherwise:{config}", ready=False)
    assert server.ended() == -9
    classifier = Classifier(engine="sglang")
    for line in server.log.splitlines():
        classifier.feed(line)
    failure = classifier.finish(-9)
    assert failure is not None and not failure.environment
    assert (failure.phase, failure.failure_class) == ("weights_load", "model_corrupt")


def broken_stream(server: Server) -> requests.Response:
    server.generate(64)
    return server.generate(64, input_ids=[9, 9, 9])


@each_version
def test_a_crash_cuts_the_stream(start: Starter, version: str) -> None:
    server = start("no-spec", version, "crash:no-spec")
    with pytest.raises(requests.RequestException):
        broken_stream(server)
    assert server.ended() == -9
    classifier = Classifier(engine="sglang")
    for line in server.log.splitlines():
        classifier.feed(line)
    failure = classifier.finish(-9)
    assert failure is not None
    assert (failure.failure_class, failure.phase) == ("runtime_cuda_fault", "serving")


def test_a_hang_lives_on_without_tokens(start: Starter) -> None:
    server = start("no-spec", "story", "hang:no-spec")
    server.generate(64)
    body = {"input_ids": [9], "sampling_params": {"max_new_tokens": 64}, "stream": True}
    with requests.post(f"{server.url}/generate", json=body, stream=True, timeout=2) as answer:
        lines = answer.iter_lines()
        seen = 0
        with pytest.raises(requests.RequestException):
            for line in lines:
                seen += line.startswith(b"data: ")
        assert seen == 32
    assert server.process.poll() is None
    assert requests.get(f"{server.url}/model_info", timeout=PATIENCE_S).status_code == 200
    with pytest.raises(requests.Timeout):
        requests.get(f"{server.url}/server_info", timeout=0.3)


# --- the end ---


def test_sigterm_lets_a_request_end(start: Starter) -> None:
    server = start(time_scale=0.05)
    body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 256}, "stream": True}
    with requests.post(f"{server.url}/generate", json=body, stream=True, timeout=PATIENCE_S) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert rest[-2] == b"data: [DONE]"
    assert server.ended() == -9  # SGLang kills itself at the end, also of an orderly stop
    assert (
        "SIGTERM received." in server.log
        and "Gracefully exiting... Remaining number of requests 1." in server.log
    )


def test_a_start_can_be_stopped(start: Starter) -> None:
    server = start(time_scale=5, ready=False)
    server.wait_for("server_args=")
    server.process.terminate()
    assert server.ended() in (-signal.SIGTERM, -signal.SIGKILL)
