from __future__ import annotations

import pytest

from pytest_gpuserve.failures.prefix import MAX_LINE, Line, strip


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("[2026-11-29 16:51:05 DP0 TP1 EP1] Load weight", Line("Load weight", 1, None, None, True)),
        ("[2026-11-29 16:51:05.123 TP3] Load weight", Line("Load weight", 3, None, None, True)),
        ("[2026-11-29 16:51:05] INFO:     Uvicorn", Line("Uvicorn", None, None, "info", True)),
        (
            '(Worker_TP4_EP4 pid=2532) ERROR 12-29 15:21:11 [multiproc_executor.py:751]   File "x"',
            Line('  File "x"', 4, "2532", "error", True),
        ),
        (
            "ERROR:    (Worker_TP1 pid=3534) ERROR 10-11 22:28:17 [multiproc_executor.py:694] RuntimeError: x",
            Line("RuntimeError: x", 1, "3534", "error", True),
        ),
        ("[multiproc_executor.py:492] ValueError: x", Line("ValueError: x", None, None, None, True)),
        ("(SGLangWorker pid=38135) ", Line("", None, "38135", None, True)),
        ("(RayWorker pid=7, ip=10.0.0.2) x", Line("x", None, "7", None, True)),
        (
            "[rank3]:[E1129 15:58:51.428253401 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog",
            Line("Watchdog", 3, "rank3", "error", True),
        ),
        ("[06/29/2025-18:02:11] [TRT-LLM] [E] Failed", Line("Failed", None, None, "error", True)),
        ("[TensorRT-LLM][WARNING] Fall back", Line("Fall back", None, None, "warning", True)),
        ("0.00.009.516 E gguf_init: x", Line("gguf_init: x", None, None, "error", True)),
        (
            "[2026-11-29 16:53:00] host:2303:2303 [1] enqueue.cc:1859 NCCL WARN Error",
            Line("enqueue.cc:1859 NCCL WARN Error", None, None, None, True),
        ),
        (
            "2026-11-29T15:00:00.123456789Z stderr F [2026-11-29 15:00:00 TP2] x",
            Line("x", 2, None, None, True),
        ),
        ("sglang-1  | [2026-11-29 15:00:00] x", Line("x", None, None, None, True)),
        ("Nov 29 15:00:00 node-a sglang[123]: x", Line("x", None, None, None, True)),
        ("[1,5]<stderr>:x", Line("x", 5, "rank5", None, True)),
        ("2026-11-29 15:00:00,123 - root - WARNING - x", Line("x", None, None, "warning", True)),
        ('  File "a.py", line 1, in f', Line('  File "a.py", line 1, in f')),
        ("nothing to take off", Line("nothing to take off")),
        (
            "Capturing batches (bs=8):   0%|    | 0/4 [00:00<?, ?it/s][2026-11-29 16:53:00 TP1] glued",
            Line("glued", 1, None, None, True),
        ),
    ],
)
def test_prefixes_are_taken_off(raw: str, expected: Line) -> None:
    assert strip(raw) == expected
    assert strip(raw + "\n") == expected


def test_of_a_huge_line_only_the_beginning_is_looked_at() -> None:
    assert len(strip("x" * 10_000_000).text) == MAX_LINE
