"""Our figures beside those of SGLang's own tool, taken in turn from the same server.

    python benchmarks/crosscheck.py --url http://127.0.0.1:30000 --python ~/venvs/sglang/bin/python --model FOLDER

The server must run already (SGLang, any version that has `sglang.bench_serving`); `--model` names its model's folder.
Both send prompts of the same lengths as text or token ids through `/generate`, as many at a time, and empty the
cache before each round. The first round of each is thrown away. Exits with 1 when the throughputs over the whole
round differ by more than `--within`; on a busy machine they do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.openai import target_of
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.load import client, metrics, traffic
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload

ROWS = (
    (
        "output throughput, whole round (tok/s)",
        "output_throughput_total",
        "output_throughput",
        "tokens / (first request sent .. last stream ended)",
        "tokens / (before the first task .. all gathered)",
    ),
    (
        "output throughput, steady (tok/s)",
        "output_throughput",
        None,
        "tokens while all slots are busy / that time",
        "has none",
    ),
    (
        "TTFT, median (ms)",
        "ttft_ms",
        "median_ttft_ms",
        "request on the wire .. first token's packet in the kernel",
        "before the call .. first chunk seen by the event loop",
    ),
    (
        "TPOT, median (ms)",
        "tpot_ms",
        "median_tpot_ms",
        "(last - first token) / (tokens - those of the first chunk)",
        "(last chunk - first chunk) / (tokens - 1)",
    ),
    (
        "ITL, median (ms)",
        "itl_ms",
        "median_itl_ms",
        "each gap, split over the tokens of the chunk after it",
        "the same, from `completion_tokens` of the chunks",
    ),
)
"""Figure, its name in our record and in their file, and what each of the two takes it for."""


def ours(arguments: argparse.Namespace, turn: int) -> dict[str, float | None]:
    """One round of our client."""
    target, engine = target_of(arguments.url), SGLang()
    workload = Workload(
        name="crosscheck",
        concurrency=arguments.concurrency,
        requests=arguments.requests,
        input_tokens=Lengths(mean=arguments.input_tokens),
        output_tokens=Lengths(mean=arguments.output_tokens),
    )
    config = Config(
        id="crosscheck",
        place=Place(__file__, 1),
        engine=engine.name,
        model=ModelRef(id=str(arguments.model)),
        args={},
    )
    api = engine.api(config, workload, Site(python=arguments.python))
    engine.flush(target)
    planned = traffic.plan(workload, api, seed=turn, round_index=0, folder=Path())
    found = metrics.summarise(client.run(target, api, planned, stall_s=120.0), workload)
    for reason in found.invalid:
        print(f"  our round {turn} is invalid: {reason}", file=sys.stderr)
    return {name: found.metrics.value(name) for _, name, *_ in ROWS}


def theirs(arguments: argparse.Namespace, turn: int) -> dict[str, float | None]:
    """One run of sglang.bench_serving, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.jsonl"
        options = {
            "backend": "sglang",
            "base-url": arguments.url,
            "model": arguments.model,
            "tokenizer": arguments.model,
            "dataset-name": "random-ids",
            "random-input-len": arguments.input_tokens,
            "random-output-len": arguments.output_tokens,
            "random-range-ratio": 1.0,
            "num-prompts": arguments.requests,
            "max-concurrency": arguments.concurrency,
            "seed": 1000 + turn,
            "output-file": file,
        }
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        command = [arguments.python, "-m", "sglang.bench_serving", *words, "--flush-cache", "--disable-tqdm"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if not file.is_file():
            sys.exit(f"sglang.bench_serving gave no result:\n{(done.stderr or done.stdout)[-2000:]}")
        said: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
    return {name: said.get(key) if key else None for _, name, key, *_ in ROWS}


def median(turns: list[dict[str, float | None]], name: str) -> float | None:
    values = [value for turn in turns if (value := turn[name]) is not None]
    return statistics.median(values) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--python", required=True, help="interpreter that has sglang")
    parser.add_argument("--model", required=True, type=Path, help="folder of the server's model")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--within", type=float, default=0.02, help="share by which throughputs may differ")
    arguments = parser.parse_args()
    taken: dict[str, list[dict[str, float | None]]] = {"ours": [], "theirs": []}
    for turn in range(arguments.turns + 1):
        for name, take in (("ours", ours), ("theirs", theirs)):
            found = take(arguments, turn)
            speed = found["output_throughput_total"] or 0.0
            print(f"turn {turn}, {name}: {speed:.1f} tok/s", flush=True)
            if turn:  # the first warms up
                taken[name].append(found)
    table = []
    for title, name, *definitions in ROWS:
        one, other = median(taken["ours"], name), median(taken["theirs"], name)
        ratio = f"{one / other:.3f}" if one and other else "-"
        table.append([title, one, other, ratio, *definitions[1:]])
    print()
    print(
        tabulate(
            table,
            headers=["", "ours", "bench_serving", "ratio", "ours counts", "bench_serving counts"],
            floatfmt=".2f",
            missingval="-",
        )
    )
    one, other = (median(turns, "output_throughput_total") for turns in taken.values())
    if not one or not other or abs(one / other - 1) > arguments.within:
        sys.exit(f"the throughputs differ by more than {arguments.within:.0%}")


if __name__ == "__main__":
    main()
