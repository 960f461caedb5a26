from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.failures.classes import classes
from pytest_gpuserve.failures.classify import BLOCK, Classifier, classify_file, classify_text
from pytest_gpuserve.failures.judge import redact
from pytest_gpuserve.model import PhaseRule

if TYPE_CHECKING:
    from pathlib import Path

STARTING = """\
[2026-02-01 09:11:00] server_args=ServerArgs(model_path='x')
[2026-02-01 09:11:02 TP0] Load weight begin. avail mem=94.10 GB
"""
READY = f"""\
{STARTING}[2026-02-01 09:12:00] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
[2026-02-01 09:12:02] The server is fired up and ready to roll!
"""
DECODE = (
    "[2026-02-01 09:13:00 TP0] Decode batch, #running-req: 1, #token: 428, token usage: 0.00, "
    "cuda graph: True, gen throughput (token/s): 5.25, #queue-req: 0\n"
)
SCHEDULER = """\
[2026-02-01 09:13:04 TP5] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 2677, in event_loop_overlap
    self.run_batch(batch)
ValueError: nobody has seen this before
"""
REQUEST = """\
[2026-02-01 09:13:04] ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/opt/uvicorn/protocols/http/httptools_impl.py", line 409, in run_asgi
ValueError: The input is too long
"""


def fed(log: str, **options: str) -> Classifier:
    classifier = Classifier(**options)  # type: ignore[arg-type]
    for line in log.splitlines():
        classifier.feed(line)
    return classifier


# --- how it ended -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [None, 0, -15, 143, -2, 130])
def test_a_server_that_was_stopped_has_not_failed(status: int | None) -> None:
    assert classify_text(READY + DECODE, exit_status=status) is None


@pytest.mark.parametrize(
    ("status", "told"),
    [(-9, "SIGKILL"), (137, "SIGKILL"), (-11, "SIGSEGV"), (134, "SIGABRT"), (3, "status 3")],
)
def test_a_death_without_a_word_is_unknown(status: int, told: str) -> None:
    """Not `oom_host`: SGLang kills itself like that for nearly everything."""
    failure = classify_text(READY + DECODE, exit_status=status)
    assert failure is not None
    assert (failure.failure_class, failure.phase, failure.exit_status) == ("unknown", "serving", status)
    assert told in failure.message


def test_a_killed_server_that_was_told_to_stop_has_not_failed() -> None:
    stop = "[2026-02-01 09:14:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    assert classify_text(READY + DECODE + stop, exit_status=-9) is None


def test_the_exit_status_is_kept_with_the_root_error() -> None:
    failure = classify_text(READY + SCHEDULER, exit_status=-9)
    assert failure is not None
    assert (failure.message, failure.exit_status, failure.rank) == ("nobody has seen this before", -9, 5)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (STARTING, "hang_startup"),
        (STARTING + "[2026-02-01 09:11:05 TP0] Init torch distributed begin.\n", "comm_hang"),
        (READY + DECODE, "hang_serving"),
        ("", "hang_startup"),
    ],
)
def test_what_was_ended_because_it_stood_still_hangs(log: str, expected: str) -> None:
    failure = fed(log, engine="sglang").finish(-9, timed_out=True)
    assert failure is not None
    assert failure.failure_class == expected


def test_a_root_error_is_better_than_a_hang() -> None:
    failure = fed(STARTING + SCHEDULER).finish(-9, timed_out=True)
    assert failure is not None
    assert failure.exception == "ValueError"


def test_a_collective_that_does_not_come_back_is_told_from_the_end_of_the_log() -> None:
    log = STARTING + "[2026-02-01 09:11:05 TP0] Init torch distributed begin.\n"
    failure = classify_text(log)
    assert failure is not None
    assert (failure.failure_class, failure.phase, failure.line) == ("comm_hang", "comm_init", 3)
    assert classify_text(log + "[2026-02-01 09:11:09 TP0] Load weight begin. avail mem=94.10 GB\n") is None


# --- what a server survives -------------------------------------------------------------------------


def test_an_error_of_a_request_is_survived() -> None:
    assert classify_text(READY + DECODE + REQUEST + DECODE) is None


def test_many_survived_errors_do_not_hide_the_last_one() -> None:
    failure = classify_text(READY + (REQUEST + DECODE) * 300 + SCHEDULER + DECODE)
    assert failure is not None
    assert failure.message == "nobody has seen this before"


def test_what_other_ranks_still_write_does_not_mean_survival() -> None:
    failure = classify_text(READY + SCHEDULER + DECODE * 5)
    assert failure is not None
    assert failure.rank == 5


def test_an_error_before_the_engine_says_that_it_goes_down_is_what_it_died_of() -> None:
    quit_line = (
        "[2026-02-01 09:13:05] Received sigquit from a child process. It usually means the child failed.\n"
    )
    failure = classify_text(STARTING + REQUEST + quit_line)
    assert failure is not None
    assert failure.message == "The input is too long"


def test_what_it_says_of_its_death_beats_an_error_of_a_request_just_before() -> None:
    quit_line = (
        "[2026-02-01 09:13:05] Received sigquit from a child process. It usually means the child failed.\n"
    )
    oom = SCHEDULER.replace(
        "ValueError: nobody has seen this before", "torch.OutOfMemoryError: CUDA out of memory."
    )
    failure = classify_text(READY + DECODE + REQUEST + oom + quit_line)
    assert failure is not None
    assert failure.failure_class == "oom_gpu"


# --- hopeless ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "log",
    [
        STARTING + SCHEDULER,
        STARTING
        + "[2026-02-01 09:11:05] Received sigquit from a child process. It usually means the child failed.\n",
        STARTING + "[2026-02-01 09:11:05] ERROR:    [Errno 98] error while attempting to bind on address "
        "('127.0.0.1', 1): address already in use\n",
        "usage: sglang serve [-h] --model-path X\nsglang serve: error: unrecognized arguments: --x\n",
        STARTING
        + "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
        "[2026-02-01 09:11:05] Received sigquit from a child process. It usually means the child failed.\n",
    ],
)
def test_a_start_that_cannot_succeed_is_hopeless(log: str) -> None:
    assert fed(log).hopeless


@pytest.mark.parametrize("log", ["", STARTING, STARTING + REQUEST, READY, READY + SCHEDULER])
def test_everything_else_is_not(log: str) -> None:
    """Not even a dying server that was ready: its start has succeeded."""
    assert not fed(log).hopeless


def test_it_is_hopeless_from_the_line_of_the_exception_on() -> None:
    classifier = Classifier(engine="sglang")
    seen = []
    for line in (STARTING + SCHEDULER).splitlines():
        classifier.feed(line)
        seen.append(classifier.hopeless)
    assert seen == [False, False, False, False, False, True]
    assert classifier.root is not None


# --- reading ----------------------------------------------------------------------------------------


def test_lines_may_have_their_ends() -> None:
    with_ends = Classifier(engine="sglang")
    for line in (READY + SCHEDULER).splitlines(keepends=True):
        with_ends.feed(line)
    assert with_ends.finish() == fed(READY + SCHEDULER, engine="sglang").finish()


def test_a_file_is_read_in_blocks_that_cut_lines(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    filler = DECODE * (BLOCK // len(DECODE) + 7)
    log.write_text(READY + filler + SCHEDULER.rstrip("\n"))
    failure = classify_file(log)
    assert failure is not None
    assert failure.line == (READY + filler + SCHEDULER).count("\n")
    assert failure.message == "nobody has seen this before"


def test_progress_bars_are_no_lines() -> None:
    bar = "\r".join(f"Capturing batches: {n}%" for n in range(50))
    failure = classify_text(f"{STARTING}{bar}\n{SCHEDULER}")
    assert failure is not None
    assert failure.line == 7


def test_the_engine_is_recognised_on_the_way() -> None:
    classifier = fed(READY)
    assert (classifier.engine, classifier.phase) == ("sglang", "ready")


def test_an_engine_brings_its_phases() -> None:
    classifier = Classifier([PhaseRule(phase="kv_alloc", pattern="^the pool$")])
    classifier.feed("[2026-02-01 09:11:00] the pool")
    assert (classifier.phase, classifier.engine) == ("kv_alloc", "sglang")
    for line in SCHEDULER.splitlines():
        classifier.feed(line)
    assert classifier.hopeless, "the engine's other tables are its own"


def test_an_engine_brings_its_rules(tmp_path: Path) -> None:
    rules = tmp_path / "mine.yaml"
    rules.write_text("rules:\n  - {class: numerics_nan, pattern: 'nobody has seen'}\n")
    classifier = Classifier(rules=(rules,))
    for line in (READY + SCHEDULER).splitlines():
        classifier.feed(line)
    failure = classifier.finish()
    assert failure is not None
    assert failure.failure_class == "numerics_nan"


def test_memory_is_bounded() -> None:
    """A flood of different errors and lines without end must not be kept."""
    classifier = Classifier(engine="sglang")
    for line in READY.splitlines():
        classifier.feed(line)
    tracemalloc.start()
    for number in range(3000):
        classifier.feed(f"RuntimeError: number {number}")
        classifier.feed("Traceback (most recent call last):")
        classifier.feed(f'  File "a{number}.py", line 1, in f{"x" * 2000}')
        classifier.feed(f"[2026-02-01 09:13:04 TP{number % 8}] NCCL WARN Error : {number}")
    classifier.feed("self.cur_batch.reqs=" + "128000, " * 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
    assert classifier.root is not None


def test_prompts_and_tokens_are_not_repeated() -> None:
    log = """\
[2026-02-01 09:13:04 TP5] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/x.py", line 1, in f
OSError: You are trying to access a gated repo with hf_abcdefghijklmnopqrstuvwxABCDEFGHIJ.
openai.AuthenticationError: Incorrect API key provided: sk-proj-abcdefgh12345678ijkl_MNOP.
401 Client Error. (Request ID: Root=1-00000000-000000000000000000000000;00000000)
"""
    failure = classify_text(log)
    assert failure is not None
    for secret in ("hf_abcdef", "Root=1-0", "sk-proj"):
        assert secret not in failure.message + failure.excerpt


@pytest.mark.parametrize(
    "text",
    [
        "/opt/sglang/srt/utils/hf_transformers/config.py",
        "/opt/sglang/srt/utils/hf_transformers_utils.py",
        "in hf_raise_for_status_of_everything_that_was_asked",
        "/data/sk-learn-models-of-2025-and-2026/model.gguf",
        "sk-learn-models-without-any-number",
        "/data/task-12345678901234567890",
    ],
)
def test_a_path_is_no_token(text: str) -> None:
    assert redact(text) == text


def test_every_class_says_what_to_try() -> None:
    assert len(classes()) == 34
    assert all(known.meaning and known.try_ for known in classes().values())


def test_the_machine_is_flagged() -> None:
    failure = classify_text("RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied\n")
    assert failure is not None
    assert (failure.failure_class, failure.environment) == ("gpu_busy", True)
    assert {name for name, known in classes().items() if known.environment} == {
        *("device_lost", "oom_host", "gpu_busy", "port_conflict", "environment"),
    }
