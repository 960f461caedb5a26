"""Runs the load client once and writes what it saw; `load_client.py` starts it on a core of its own.

python benchmarks/load_driver.py PORT CONCURRENCY REQUESTS TOKENS API OUT.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from pytest_gpuserve.load import client, metrics, traffic
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.load.dialects import DIALECTS
from pytest_gpuserve.model import Lengths, Workload


def main() -> None:
    port, concurrency, requests, tokens = map(int, sys.argv[1:5])
    kind, out = sys.argv[5:7]
    load = Workload(
        name="bench",
        concurrency=concurrency,
        requests=requests,
        input_tokens=Lengths(mean=32),
        output_tokens=Lengths(mean=tokens),
    )
    api = DIALECTS["sglang" if kind == "generate" else "openai"][kind]
    made = traffic.plan(load, api, seed=0, round_index=0, folder=Path())
    take = made.take

    def numbered() -> traffic.Planned | None:
        """The server notes the number, so that each token can be held against its own truth."""
        planned = take()
        if planned is not None:
            planned.body = planned.body[:-1] + b',"request_number":%d}' % planned.index
        return planned

    made.take = numbered  # type: ignore[method-assign]
    samples = client.run(Target(host="127.0.0.1", port=port), api, made, stall_s=30.0)
    result = metrics.summarise(samples, load)
    start = samples.clock_start_ns
    said = {
        "round": result,
        "requests": [
            {
                "number": s.index,
                "sent": (s.sent_ns or 0) + start,
                "stamps": [stamp + start for stamp in s.stamps],
                "failure": s.failure,
            }
            for s in samples.requests
        ],
    }
    Path(out).write_bytes(msgspec.json.encode(said))


if __name__ == "__main__":
    main()
