from __future__ import annotations

import pytest

from pytest_gpuserve.failures.phases import PhaseTracker, engines, phase_rules, recognise, table
from pytest_gpuserve.model import PHASES, PhaseRule

SGLANG = {
    "0.5.9": """\
server_args=ServerArgs(model_path='x')
Init torch distributed begin.
Init torch distributed ends. elapsed=0.21 s, mem usage=0.09 GB
Load weight begin. avail mem=139.13 GB
Load weight end. elapsed=0.22 s, type=X, dtype=torch.bfloat16, avail mem=137.05 GB, mem usage=2.07 GB.
KV Cache is allocated. #tokens: 4048463, KV size: 61.77 GB
Capture cuda graph begin. This can take up to several minutes. avail mem=2.85 GB
Capture cuda graph end. Time elapsed: 21.10 s. mem usage=1.20 GB. avail mem=5.01 GB.
max_total_num_tokens=18432, chunked_prefill_size=2048, max_running_requests=2048, context_len=8192
Started server process [4321]
Application startup complete.
Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00
The server is fired up and ready to roll!
Decode batch, #running-req: 1, #token: 48, token usage: 0.00, cuda graph: True
SIGTERM received. signum=None frame=None. Draining requests and shutting down...
""",
    "0.5.23": """\
server_args={'model_path': 'x'}
Init parallel begin.
Init parallel ends. elapsed=0.01 s
Load weight begin. avail mem=19.36 GB
Load weight end. elapsed=0.05 s, type=Qwen2ForCausalLM, avail mem=19.36 GB, mem usage=0.00 GB.
KV Cache is allocated. dtype: torch.float32, #tokens: 8192, K size: 0.00 GB, V size: 0.00 GB
Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=111.70 GB
Capture target decode CUDA graph end. bs=[1], elapsed=3.67 s, mem usage=-5.31 GB, avail mem=117.38 GB.
max_total_num_tokens=8192, chunked_prefill_size=4096, max_running_requests=8, context_len=2048
Started server process [9555]
Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00
The server is fired up and ready to roll!
Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00
SIGTERM received. signum=None frame=None. Draining requests and shutting down...
""",
}
ORDER = [
    *("device_init", "comm_init", "weights_load", "kv_alloc", "cuda_graph_capture", "http_bind", "warmup"),
    *("ready", "serving", "shutdown"),
]


@pytest.mark.parametrize("version", SGLANG)
def test_sglang_passes_its_phases(version: str) -> None:
    tracker = PhaseTracker(phase_rules("sglang"))
    for line in SGLANG[version].splitlines():
        tracker.feed(line)
    assert tracker.seen == ORDER


def test_a_draft_model_brings_phases_again() -> None:
    tracker = PhaseTracker(phase_rules("sglang"))
    tracker.feed("Capture cuda graph end. Time elapsed: 21.10 s.")
    assert tracker.feed("Load weight begin. avail mem=7.76 GB") == "weights_load"
    assert tracker.phase == "weights_load"


def test_a_ready_server_does_not_start_again() -> None:
    tracker = PhaseTracker(phase_rules("sglang"))
    tracker.feed("The server is fired up and ready to roll!")
    assert tracker.feed("Load weight begin. avail mem=7.76 GB") is None
    assert tracker.feed("Decode batch, #running-req: 1") == "serving"


def test_a_log_that_begins_late_is_serving() -> None:
    tracker = PhaseTracker(phase_rules("sglang"))
    assert tracker.feed("Decode batch, #running-req: 1") == "serving"


def test_ranks_are_not_in_step() -> None:
    tracker = PhaseTracker(phase_rules("sglang"))
    tracker.feed("Init torch distributed begin.", 0)
    tracker.feed("Init torch distributed begin.", 1)
    tracker.feed("Load weight begin. avail mem=1 GB", 0)
    assert tracker.phase == "weights_load"
    assert (tracker.of_rank(0), tracker.of_rank(1), tracker.of_rank(7)) == (
        "weights_load",
        "comm_init",
        "weights_load",
    )


def test_rules_of_an_engine_that_nobody_knows_are_the_general_ones() -> None:
    assert phase_rules("sglang-fork") == table(None).lines


def test_an_engine_may_bring_its_own_rules() -> None:
    tracker = PhaseTracker(
        [PhaseRule(phase="kv_alloc", pattern="pool"), PhaseRule(phase="ready", pattern=r"\d")]
    )
    assert (tracker.feed("the pool"), tracker.feed("7")) == ("kv_alloc", "ready")


@pytest.mark.parametrize("engine", engines())
def test_every_table_can_be_read(engine: str) -> None:
    known = table(engine)
    assert {rule.phase for rule in (*known.lines, *known.frames)} <= set(PHASES)
    assert bool(known.marks) == ("ready" in {rule.phase for rule in known.lines}), (
        "a server's log is recognised"
    )


def test_nothing_is_recognised_in_nothing() -> None:
    assert recognise([]) is None
    assert recognise(["hello"]) is None
