"""How fast the classifier reads a log of 200 MB, and how much memory it takes.

    python benchmarks/classifier.py [--megabytes 200] [--json FILE]

Four logs are made in the usual proportions and classified in a process of their own each: one that serves for days,
one whose requests fail now and then, one that ends in a flood of device-side assertions, and one of NCCL's chatter
before the start. Prints MB/s on one core, peak memory and the answer. The least that is asked for is 50 MB/s.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpuserve.failures.classify import classify_file

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST = 50.0
"""MB/s."""

START = """\
[2026-11-29 16:04:12] server_args=ServerArgs(model_path='/models/llama1b')
[2026-11-29 16:04:45 TP0] Init torch distributed begin.
[2026-11-29 16:04:45 TP0] Init torch distributed ends. elapsed=0.21 s, mem usage=0.09 GB
[2026-11-29 16:04:45 TP0] Ignore import error when loading sglang.srt.models.kimi_vl: No module named 'cutlass'
[2026-11-29 16:04:48 TP0] Load weight begin. avail mem=139.13 GB
[2026-11-29 16:04:49 TP0] Load weight end. elapsed=0.22 s, type=LlamaForCausalLM, avail mem=137.05 GB
[2026-11-29 16:04:52 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4048463, K size: 61.77 GB
[2026-11-29 16:04:52 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1
[2026-11-29 16:06:10 TP0] Capture target decode CUDA graph end. elapsed=77.98 s, mem usage=0.77 GB
[2026-11-29 16:06:11] INFO:     Uvicorn running on http://127.0.0.1:30010 (Press CTRL+C to quit)
[2026-11-29 16:06:13] The server is fired up and ready to roll!
"""
SERVING = """\
[2026-11-29 16:20:20] INFO:     127.0.0.1:49642 - "POST /generate HTTP/1.1" 200 OK
[2026-11-29 16:20:20 TP0] Prefill batch, #new-seq: 1, #new-token: 316, #cached-token: 0, token usage: 0.00, \
#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: True, input throughput (token/s): 13.47
[2026-11-29 16:20:21 TP0] Decode batch, #running-req: 1, #token: 428, token usage: 0.00, accept len: 3.55, \
accept rate: 0.85, cuda graph: True, gen throughput (token/s): 605.25, #queue-req: 0
[2026-11-29 16:20:22 TP0] Decode batch, #running-req: 1, #token: 568, token usage: 0.00, accept len: 3.61, \
accept rate: 0.87, cuda graph: True, gen throughput (token/s): 611.02, #queue-req: 0
[2026-11-29 16:20:22] INFO:     127.0.0.1:49650 - "GET /health HTTP/1.1" 200 OK
"""
REQUEST_ERROR = """\
[2026-11-29 16:20:23] ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/uvicorn/protocols/http/httptools_impl.py", line 409, in run_asgi
    result = await app(
             ^^^^^^^^^^
  File "/opt/sglang/sglang/srt/managers/tokenizer_manager.py", line 512, in generate_request
    raise ValueError(
ValueError: The input (9000 tokens) is longer than the model's context length (8192 tokens).
"""
ASSERTIONS = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: [64,0,0], "
    'thread: [224,0,0] Assertion `ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"` '
    "failed.\n"
)
NCCL = "node-a:801:801 [0] NCCL INFO Channel 00/08 :    0   1   2   3   4   5   6   7\n"
END = """\
[2026-11-29 17:08:58 TP5] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/sglang/srt/managers/scheduler.py", line 4320, in run_scheduler_process
    scheduler.event_loop_overlap()
torch.AcceleratorError: CUDA error: device-side assert triggered
[2026-11-29 17:08:59] Received sigquit from a child process. It usually means the child failed.
"""

LOGS = {
    "serves for days": (START, SERVING, END),
    "requests fail now and then": (START, SERVING * 20 + REQUEST_ERROR, END),
    "a flood of assertions": (START + SERVING, ASSERTIONS, END),
    "NCCL before the start": (START.splitlines(keepends=True)[0], NCCL, START + END),
}


def pieces(name: str, size: int) -> Iterator[bytes]:
    first, middle, last = (part.encode() for part in LOGS[name])
    yield first
    block = middle * max((1 << 20) // len(middle), 1)
    for _ in range(max(size // len(block), 1)):
        yield block
    yield last


def measure(path: str, queue: Any) -> None:
    """In a process of its own, so that its peak memory is its own."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    failure = classify_file(Path(path))
    seconds = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = f"{failure.failure_class}, line {failure.line:,}" if failure and failure.line else "nothing failed"
    queue.put((seconds, (after - before) / 1024, told))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=200, help="size of each log (default: 200)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    figures = []
    context = multiprocessing.get_context("spawn")
    for name in LOGS:
        with tempfile.NamedTemporaryFile(suffix=".log") as file:
            size = sum(file.write(piece) for piece in pieces(name, options.megabytes * 1_000_000))
            file.flush()
            queue = context.Queue()
            process = context.Process(target=measure, args=(file.name, queue))
            process.start()
            seconds, grown, told = queue.get()
            process.join()
        speed = size / seconds / 1e6
        figures.append({"log": name, "bytes": size, "cpu_s": seconds, "mb_per_s": speed, "peak_mib": grown})
        print(f"{name:<28} {size / 1e6:6.0f} MB {speed:7.0f} MB/s {grown:6.1f} MiB more memory  ({told})")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    slow = [one["log"] for one in figures if one["mb_per_s"] < LEAST]
    if slow:
        print(f"below {LEAST:g} MB/s: {', '.join(map(str, slow))}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
