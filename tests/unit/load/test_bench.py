"""`gpuserve bench`, run in this process against a server that is told what to say."""

from __future__ import annotations

import io
import json
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.load import bench
from pytest_gpuserve.load.bench_options import lengths
from pytest_gpuserve.load.bench_output import Live
from pytest_gpuserve.load.client import Progress
from pytest_gpuserve.model import Lengths

from .conftest import HANG, Step, stream
from .test_faults import GOOD, status, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Loopback, Request

    Start = Callable[..., Loopback]

ANSWER = stream(*GOOD)
EXACT = ["--api", "completions", "--model", "m", "--input-tokens", "8", "--output-tokens", "4"]


def ran(server: Loopback, *options: str, exact: bool = True) -> int:
    return bench.main([server.target.url, *(EXACT if exact else []), *options])


def as_json(capsys: pytest.CaptureFixture[str], server: Loopback, *options: str, status: int = 0) -> Any:
    assert ran(server, "--json", *options) == status
    return json.loads(capsys.readouterr().out)


def test_json_has_the_names_of_the_record(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    said = as_json(capsys, loopback(ANSWER), "--requests", "6", "--concurrency", "2", "--seed", "7")
    assert said["requests"] == {
        "ok": 6,
        "failed": 0,
        "input_tokens": 48,
        "output_tokens": 24,
        "cached_tokens": None,
    }
    assert said["failures"] == {} and said["seed"] == 7
    assert said["metrics"]["output_throughput"] > 0
    for name in ("ttft_ms", "chunk_gap_ms", "e2e_ms"):
        assert set(said["metrics"][name]) == {"mean", "p50", "p90", "p99", "n"}
    assert {"cpu_us_per_token", "lag_ms_p99", "merged_share", "stamp_source", "error_bound_ms"} <= set(
        said["client"]
    )
    assert said["client"]["stamp_source"] == "kernel"


def test_the_whole_object_when_every_request_failed(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    server = loopback(status(503, b"busy"))
    said = as_json(capsys, server, "--requests", "5", status=1)
    assert said["requests"]["ok"] == 0 and said["requests"]["failed"] == 5
    assert said["failures"] == {"http_503": 5}
    assert said["metrics"]["output_throughput"] is None and said["metrics"]["ttft_ms"] is None
    assert {"tpot_ms", "itl_ms", "chunk_gap_ms", "e2e_ms"} <= set(said["metrics"])
    assert "busy" in said["invalid"][0] and said["client"]["merged_share"] is None
    assert len(server.requests) == 5


def test_one_failed_request_is_status_1(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    def script(request: Request) -> bytes:
        return status(500, b"{}") if request.index == 1 else ANSWER

    said = as_json(capsys, loopback(script), "--requests", "3", status=1)
    assert said["requests"]["ok"] == 2 and said["metrics"]["ttft_ms"]["n"] == 2


def test_an_invalid_round_is_status_0(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    said = as_json(capsys, loopback(ANSWER), "--output-tokens", "9")
    assert "output lengths not as asked" in said["invalid"][0]


def test_samples(loopback: Start, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    answers = [Step(0.01, ANSWER)]
    assert ran(loopback(lambda _: answers), "--requests", "4", "--samples", str(path)) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(line["index"] for line in lines) == [0, 1, 2, 3]
    assert all(len(line["token_times_ms"]) == 4 and line["tokens"] == [1, 2, 3, 4] for line in lines)
    assert all(line["token_times_ms"][0] > line["sent_ms"] for line in lines)


def test_samples_on_a_full_disk_do_not_cost_the_result(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    assert ran(loopback(ANSWER), "--json", "--samples", "/dev/full") == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["requests"]["ok"] == 16 and "--samples /dev/full: No space left" in err


def test_a_stall_is_told_whole(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server = loopback(lambda _: [Step(0, stream(text(), end=False)), HANG])
    said = as_json(capsys, server, "--requests", "1", "--stall", "0.2", status=1)
    assert said["failures"] == {"stalled": 1} and said["metrics"]["e2e_ms"] is None
    assert {"cpu_us_per_token", "lag_ms_p99", "merged_share", "error_bound_ms"} <= set(said["client"])


def test_report_for_people(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(loopback(ANSWER), "--requests", "4", "--slo-ttft", "1000") == 0
    out, err = capsys.readouterr()
    for word in ("4 ok, 0 failed", "tok/s", "goodput", "TTFT", "stamps: kernel", "off by at most"):
        assert word in out
    assert err == ""


def models(owner: str, **more: Any) -> bytes:
    body = json.dumps({"data": [{"id": "the-model", "owned_by": owner, **more}]}).encode()
    return status(200, body, b"content-type: application/json")


@pytest.mark.parametrize(
    ("owner", "path", "engine"),
    [
        ("sglang", b"/generate", "sglang"),
        ("vllm", b"/v1/completions", "vllm"),
        ("llamacpp", b"/v1/completions", "llamacpp"),
        ("somebody", b"/v1/chat/completions", "openai"),
    ],
)
def test_the_server_says_what_it_is(
    loopback: Start, capsys: pytest.CaptureFixture[str], owner: str, path: bytes, engine: str
) -> None:
    generated = stream(
        'data: {"text":"a","meta_info":{"finish_reason":{"type":"length"},"completion_tokens":1}}',
        "data: [DONE]",
    )

    def script(request: Request) -> bytes:
        if request.head.startswith(b"GET"):
            return models(owner)
        return generated if path == b"/generate" else ANSWER

    server = loopback(script)
    bench.main([server.target.url, "--json", "--requests", "1"])
    said = json.loads(capsys.readouterr().out)
    assert said["engine"] == engine and said["requests"]["ok"] + said["requests"]["failed"] == 1
    assert server.requests[-1].head.startswith(b"POST " + path)
    assert said["model"] == "the-model"


@pytest.mark.parametrize(
    ("meta", "options", "below"),
    [
        ({"n_vocab": 1024}, [], 1024),
        ({"n_vocab": 151_936}, [], 8000),  # the ids at its end are special ones
        ({"n_vocab": 1024}, ["--vocabulary", "50"], 50),
        ({"n_vocab": 0}, [], 8000),
        ({"n_vocab": True}, [], 8000),
        ("none", [], 8000),
    ],
)
def test_token_ids_stay_below_what_the_server_says(
    loopback: Start, meta: object, options: list[str], below: int
) -> None:
    server = loopback(
        lambda request: models("llamacpp", meta=meta) if request.head.startswith(b"GET") else ANSWER
    )
    ran(server, "--requests", "1", "--input-tokens", "2000", *options, exact=False)
    highest = max(json.loads(server.requests[-1].body)["prompt"])
    assert 0.8 * below < highest < below


def test_where_token_ids_are_refused_the_way_out_is_named(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = status(400, b'{"error": {"message": "Prompt contains invalid tokens"}}')
    said = as_json(capsys, loopback(refused), "--engine", "vllm", "--requests", "1", status=1)
    assert "invalid tokens" in said["invalid"][0]
    (note,) = said["warnings"]
    assert "below 32000" in note and "--vocabulary N" in note and "--text" in note
    said = as_json(capsys, loopback(refused), "--engine", "vllm", "--requests", "1", "--text", status=1)
    assert said["warnings"] == []
    said = as_json(capsys, loopback(status(503, b"")), "--engine", "vllm", "--requests", "1", status=1)
    assert said["warnings"] == []


def test_where_no_done_comes_the_way_out_is_named(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    server = loopback(stream(*GOOD[:-1]))
    said = as_json(capsys, server, "--requests", "1", status=1)
    assert said["failures"] == {"no_done": 1} and "--engine transformers" in " ".join(said["warnings"])
    said = as_json(capsys, server, "--requests", "1", "--engine", "transformers")
    assert said["failures"] == {} and "--engine" not in " ".join(said["warnings"])


def test_where_every_request_failed_only_that_is_told(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(loopback(status(404, b"no such path")), "--requests", "3") == 1
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == [
        "server",
        "load",
        "requests",
        "failed",
        "INVALID",
    ]
    assert "3 x http_404" in out and "no such path" in out
    assert "unknown" not in out and "saturated" not in out


def test_the_workload_holds_the_seed_that_was_used(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ([], ["--seed", "7"]):
        said = as_json(capsys, loopback(ANSWER), "--requests", "1", *options)
        assert said["workload"]["seed"] == said["seed"]
    assert said["seed"] == 7


def test_text_prompts_can_be_held_to_a_length(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    for tolerance, invalid in (("0", False), ("0.1", True)):
        options = ["--text", "--input-tokens", "20", "--requests", "1", "--prompt-tolerance", tolerance]
        said = as_json(capsys, loopback(ANSWER), *options)
        assert any("prompt lengths not as asked" in reason for reason in said["invalid"]) is invalid


def test_a_server_that_is_supposed_to_be_sglang_may_close_unsaid(
    loopback: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--api generate` and nobody says what it is: no request is lost on a connection that is being closed."""
    meta = {"finish_reason": {"type": "length"}, "prompt_tokens": 8, "completion_tokens": 1}
    event = "data: " + json.dumps({"text": "a", "meta_info": meta})
    server = loopback(lambda _: [Step(0, stream(event, "data: [DONE]")), Step(0, None)])
    options = ["--api", "generate", "--model", "m", "--output-tokens", "1", "--requests", "6", "--json"]
    assert ran(server, *options, exact=False) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["engine"] == "sglang" and said["requests"]["ok"] == 6


def test_nothing_but_the_requests_is_sent_when_all_is_said(loopback: Start) -> None:
    server = loopback(ANSWER)
    ran(server, "--engine", "vllm", "--requests", "3")
    assert [r.head.split(b" ")[0] for r in server.requests] == [b"POST"] * 3
    body = json.loads(server.requests[0].body)
    assert body["model"] == "m" and body["stream_options"]["continuous_usage_stats"] is True


def test_warm_up_and_measured_prompts_differ(loopback: Start) -> None:
    server = loopback(ANSWER)
    assert ran(server, "--requests", "3", "--warmup", "2", "--text") == 0
    prompts = [json.loads(r.body)["prompt"] for r in server.requests]
    assert len(prompts) == len(set(prompts)) == 5


def test_the_seed_gives_the_same_requests(loopback: Start) -> None:
    server = loopback(ANSWER)
    for seed in ("1", "1", "2"):
        ran(server, "--requests", "2", "--seed", seed)
    first, second, third = (
        [json.loads(r.body)["prompt"] for r in server.requests[i : i + 2]] for i in (0, 2, 4)
    )
    assert first == second != third


def test_base_paths_and_keys(loopback: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    server = loopback(ANSWER)
    options = [*EXACT, "--requests", "1", "--api-key-env", "KEY", "--header", "X-A: b"]
    assert bench.main([server.target.url + "/proxy/v1/", *options]) == 0
    head = server.requests[0].head
    assert head.startswith(b"POST /proxy/v1/completions HTTP/1.1")
    assert b"Authorization: Bearer s3cret" in head and b"X-A: b" in head


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert bench.main([url, "--json", "--requests", "3", "--quiet"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"] == {"connect_refused": 3}


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ([""], "''"),
        (["127.0.0.1:30000"], "http://127.0.0.1:30000?"),
        (["localhost"], "localhost"),
        (["ftp://x"], "ftp://x"),
        (["http://"], "http://"),
        (["http://h:99999"], "http://h:99999"),
        (["http://h:abc"], "http://h:abc"),
        (["http://[::1"], "http://[::1"),
        (["http://h/?key=1"], "http://h/?key=1"),
        (["http://\u4f8b\u3048..jp"], "no name of a host"),
        (["http://user:key@h"], "http://user:key@h"),
        (["http://h", "--path", "v1/completions"], "--path v1/completions"),
        (["http://h", "--path", "/a b"], "--path /a b"),
        (["http://h", "--engine", "nonesuch"], "--engine nonesuch"),
        (["http://h", "--engine", "vllm", "--api", "generate"], "--api generate"),
        (["http://h", "--header", "nothing"], "--header"),
        (["http://h", "--header", "two words: x"], "--header"),
        (["http://h", "--header", "X: a\r\nY: b"], "--header"),
        (["http://h", "--header", "X: \u20ac"], "--header"),
        (["http://h", "--api-key-env", "GPUSERVE_NOT_SET"], "GPUSERVE_NOT_SET"),
        (["https://h", "--ca-file", "/nonexistent.pem"], "--ca-file /nonexistent.pem"),
        (["https://h", "--ca-file", __file__], "--ca-file"),
        (["http://h", "--burst", "--duration", "3"], "--burst"),
        (["http://h", *EXACT, "--samples", "/nonexistent/folder/s.jsonl"], "--samples /nonexistent"),
        (["http://h", *EXACT, "--dataset", "/nonexistent/d.jsonl"], "/nonexistent/d.jsonl"),
        (["http://127.0.0.1:1", *EXACT, "--concurrency", "1000000000"], "open files"),
    ],
)
def test_bad_input_is_status_2_and_one_line(
    options: list[str], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(options) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and place in err and out == ""


def test_an_empty_dataset_and_one_without_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d.jsonl"
    for said, words in (("\n", f"{path}: no line"), ('\n{"prompt": "x"}\n', f"{path}:2: no answer")):
        path.write_text(said)
        assert bench.main(["http://h", "--api", "chat", "--model", "m", "--dataset", str(path)]) == 2
        assert words in capsys.readouterr().err


def test_a_dataset_says_how_long_its_answers_are(loopback: Start, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": "x", "output_tokens": 7}\n')
    server = loopback(ANSWER)
    for more in ((), ("--output-tokens", "9")):
        ran(server, "--engine", "vllm", "--model", "m", "--dataset", str(path), *more, exact=False)
    asked = [json.loads(request.body)["max_tokens"] for request in server.requests]
    assert (asked[0], asked[-1]) == (7, 9)


@pytest.mark.parametrize(
    "options",
    [
        ["--concurrency", "0"],
        ["--concurrency", "2.5"],
        ["--concurrency", "2", "--rate", "3"],
        ["--rate", "-1"],
        ["--rate", "inf"],
        ["--rate", "fast"],
        ["--requests", "-1"],
        ["--duration", "nan"],
        ["--warmup", "-1"],
        ["--warmup-seconds", "nan"],
        ["--shared-prefix", "2"],
        ["--shared-prefix", "nan"],
        ["--temperature", "-1"],
        ["--input-tokens", "9-3"],
        ["--input-tokens", "0"],
        ["--input-tokens", "1000000000"],
        ["--input-tokens", "lognormal:0:1"],
        ["--input-tokens", "lognormal:nan:1"],
        ["--output-tokens", "lognormal:100:-1"],
        ["--api", "soap"],
    ],
)
def test_bad_usage_names_the_option(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        bench.main(["http://h", *options])
    assert exit_.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert options[-2] in said and "_" not in said


def test_no_url() -> None:
    with pytest.raises(SystemExit) as exit_:
        bench.main([])
    assert exit_.value.code == 2


def test_lengths() -> None:
    assert lengths("64") == Lengths(mean=64)
    assert lengths("8-16") == Lengths(kind="uniform", mean=12, low=8, high=16)
    assert lengths("lognormal:100:0.5") == Lengths(kind="lognormal", mean=100, sigma=0.5)


def test_ctrl_c_reports_what_there_is(loopback: Start, capsys: pytest.CaptureFixture[str]) -> None:
    def script(request: Request) -> list[Step]:
        return [Step(0, ANSWER)] if request.index < 2 else [Step(0, stream(text(), end=False)), HANG]

    server = loopback(script)

    def interrupt() -> None:
        while len(server.requests) < 3:
            time.sleep(0.01)
        time.sleep(0.05)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    assert ran(server, "--json", "--requests", "5") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["requests"]["ok"] == 2 and said["failures"] == {"interrupted": 1}
    assert signal.getsignal(signal.SIGINT) is before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_line_is_redrawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pytest_gpuserve.load.bench_output.time.monotonic", lambda: now[0])
    screen = Terminal()
    live = Live(screen)
    live.show(Progress(1.0, 10, 2, 8, 1000))
    live.show(Progress(1.1, 10, 2, 8, 1100))
    now[0] = 1.0
    live.show(Progress(2.0, 20, 2, 18, 3000))
    assert screen.getvalue().count("\r") == 2 and "2,000 chunks/s" in screen.getvalue()
    live.clear()
    assert screen.getvalue().endswith("\r")


def test_the_live_line_elsewhere_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pytest_gpuserve.load.bench_output.time.monotonic", lambda: now[0])
    log = io.StringIO()
    live = Live(log)
    for now[0] in (1.0, 5.0, 11.0, 12.0):
        live.show(Progress(now[0], 1, 1, 0, 10))
    live.clear()
    assert log.getvalue().count("\n") == 1 and "\r" not in log.getvalue()
