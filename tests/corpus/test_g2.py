"""The G2 cases, replayed over a real socket through the real client. `g2/CONVENTIONS.md` defines the figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gpuserve.load import metrics
from pytest_gpuserve.load.api import Api
from pytest_gpuserve.load.figures import figures
from pytest_gpuserve.load.samples import Sample, Samples

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("load_loopback", HERE.parent / "unit/load/conftest.py")
assert _spec is not None and _spec.loader is not None
loop = importlib.util.module_from_spec(_spec)
sys.modules["load_loopback"] = loop
_spec.loader.exec_module(loop)

CASES = {
    case["id"]: case
    for path in sorted((HERE / "g2").glob("*.yaml"))
    if "stream" in (case := yaml.safe_load(path.read_text()))
}
MARGIN_MS = 8.0
"""For the transit and the wake-up of the server's thread, beyond how late the server itself was."""


def items(case: dict[str, Any]) -> list[tuple[float, bytes]]:
    return [
        (item["t_ms"], (item["line"] + "\n\n").encode() if "line" in item else item["bytes"].encode())
        for item in case["stream"]
    ]


def whole_chunks(parts: list[tuple[float, bytes]]) -> list[Any]:
    """One HTTP chunk an item, as the engines send them."""
    steps = [loop.Step(0.001, loop.CHUNKED)]
    steps += [loop.Step(t / 1e3, loop.chunk(data)) for t, data in parts]
    return [*steps, loop.Step(parts[-1][0] / 1e3, b"0\r\n\r\n")]


def torn(parts: list[tuple[float, bytes]]) -> list[Any]:
    """Chunks of 7 bytes, and writes that end in the middle of chunk headers."""
    steps = [loop.Step(0.001, loop.CHUNKED[:30]), loop.Step(0.002, loop.CHUNKED[30:])]
    for t, data in parts:
        framed = b"".join(loop.chunk(data[i : i + 7]) for i in range(0, len(data), 7))
        steps += [loop.Step(t / 1e3, framed[:11]), loop.Step(t / 1e3, framed[11:])]
    return [*steps, loop.Step(parts[-1][0] / 1e3, b"0\r\n\r\n")]


def until_close(parts: list[tuple[float, bytes]]) -> list[Any]:
    """No length at all: the body ends with the connection."""
    steps = [loop.Step(0.001, loop.HEAD + b"connection: close\r\n\r\n")]
    steps += [loop.Step(t / 1e3, data) for t, data in parts]
    return [*steps, loop.Step(0, None)]


FRAMINGS = {"chunked": whole_chunks, "torn": torn, "close": until_close}


def api_of(case: dict[str, Any]) -> Api:
    first = next(iter(items(case)))[1]
    return loop.APIS["completions" if b"text_completion" in first else "chat"]


def replay(case: dict[str, Any], framing: str) -> tuple[Samples, float]:
    """The samples of one request, and the tolerance in ms that the server's own lateness asks for."""
    steps = FRAMINGS[framing](items(case))
    with loop.Loopback(lambda _: steps) as server:
        samples = loop.measure(server.target, api=api_of(case))
    return samples, MARGIN_MS + server.late * 1e3


def carries_counts(case: dict[str, Any]) -> bool:
    """A client that sees only the wire can know the tokens of each chunk."""
    tokens = [item.get("tokens") for item in case["stream"] if item.get("tokens")]
    return all(n == 1 for n in tokens) or any(
        b'"completion_tokens":0' in data or b'"completion_tokens":1,' in data for _, data in items(case)
    )


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_case(case: dict[str, Any], framing: str) -> None:
    expected = case["expected"]
    samples, margin = replay(case, framing)
    (sample,) = samples.requests
    assert sample.ok is expected["success"], sample.failure
    assert sample.failure == expected.get("failure")
    assert sample.output_tokens == expected.get("output_tokens")
    if "prompt_tokens" in expected:
        assert sample.input_tokens == expected["prompt_tokens"]
    if "partial_tokens" in expected:
        assert len(sample.stamps) == expected["partial_tokens"]
    check_times(sample, wire_only(case, expected), margin)
    check_aggregates(samples, expected)


def wire_only(case: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What of the expectation a client can know that sees the wire and not the tokens behind it."""
    known = dict(expected)
    if not expected["success"]:
        for name in ("tpot_ms", "itl_ms", "tokens_in_first_chunk", "tpot_ms_naive_n_minus_1"):
            known.pop(name, None)
    if not carries_counts(case):
        known |= expected.get("without_per_chunk_token_counts", {})
        known["tpot_ms"] = None
    return known


def check_times(sample: Sample, expected: dict[str, Any], margin: float) -> None:
    found = figures(sample)
    for name in ("ttft_ms", "ttfot_ms", "e2e_ms", "stream_end_ms"):
        if name in expected:
            near(getattr(found, name), expected[name], margin, name)
    for name in ("tpot_ms", "tpot_ms_naive_n_minus_1"):
        if name in expected:
            near(getattr(found, name), expected[name], 2 * margin, name)
    if "tokens_in_first_chunk" in expected:
        assert found.tokens_in_first_chunk == expected["tokens_in_first_chunk"]
    if "reasoning_tokens" in expected:
        assert sample.reasoning_events == expected["reasoning_tokens"]
    for name in ("itl_ms", "chunk_gap_ms"):
        if name not in expected:
            continue
        wanted, got = expected[name], getattr(found, name)
        if not wanted:
            assert not got
            continue
        assert got is not None and len(got) == len(wanted), name
        for a, b in zip(got, wanted, strict=True):
            near(a, b, 2 * margin, name)


def near(value: float | None, wanted: float | None, margin: float, name: str) -> None:
    if wanted is None:
        assert value is None, name
    else:
        assert value is not None and abs(value - wanted) <= margin, f"{name}: {value} instead of {wanted}"


def check_aggregates(samples: Samples, expected: dict[str, Any]) -> None:
    """A request that failed is in no distribution; whatever is unknown is None."""
    result = metrics.summarise(samples, loop.workload(ignore_eos=False))
    assert result.requests.ok == int(expected["success"])
    assert result.failures == ({} if expected["success"] else {expected["failure"]: 1})
    if expected["success"]:
        assert result.metrics.ttft_ms is not None and result.metrics.ttft_ms.n == 1
        assert (result.metrics.peak_output_throughput or 0) >= (result.metrics.output_throughput or 0)
    else:
        assert result.invalid
        assert result.metrics.ttft_ms is None and result.metrics.e2e_ms is None
        assert result.metrics.output_throughput is None
