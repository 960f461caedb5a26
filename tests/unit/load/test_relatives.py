"""Relatives of the G2 cases: what other servers make of the same fault, with answers worked out by hand.

Each stream is a list of (ms, event) and is read with exactly those stamps, so the figures are exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.load.dialects import DIALECTS
from pytest_gpuserve.load.figures import figures
from pytest_gpuserve.load.flight import Flight
from pytest_gpuserve.load.settle import settle

from .conftest import CHUNKED, HEAD, chunk
from .relatives_ends import ENDS
from .relatives_tokens import TOKENS

if TYPE_CHECKING:
    from .wire_events import Items

RELATIVES = TOKENS | ENDS


def written(items: Items, newline: bytes = b"\n") -> list[tuple[int, bytes]]:
    return [
        (
            int(ms * 1e6),
            item if isinstance(item, bytes) else item.encode().replace(b"\n", newline) + 2 * newline,
        )
        for ms, item in items
    ]


def chunked(items: Items) -> list[tuple[int, bytes]]:
    return [(0, CHUNKED), *((at, chunk(data)) for at, data in written(items)), (0, b"0\r\n\r\n")]


def torn(items: Items) -> list[tuple[int, bytes]]:
    """Chunks of five bytes, each read in two parts that end within its size or its bytes."""
    reads = [(0, CHUNKED[:30]), (0, CHUNKED[30:])]
    for at, data in written(items):
        for start in range(0, len(data), 5):
            part = chunk(data[start : start + 5])
            cut = 1 + start % (len(part) - 1)
            reads += [(at, part[:cut]), (at, part[cut:])]
    return [*reads, (0, b"0\r\n\r\n")]


def with_crlf(items: Items) -> list[tuple[int, bytes]]:
    """Until the connection closes, lines ended by CRLF."""
    return [(0, HEAD + b"connection: close\r\n\r\n"), *written(items, b"\r\n")]


@pytest.mark.parametrize("framing", [chunked, torn, with_crlf])
@pytest.mark.parametrize("name", RELATIVES)
def test_relative(name: str, framing: Any) -> None:
    relative = RELATIVES[name]
    api = DIALECTS[relative.engine][relative.kind]  # type: ignore[index]
    flight = Flight(0, 0, None, 8, api.kind, api.kind == "generate" or api.chunk_usage)
    flight.sent = 0
    for at, data in framing(relative.items):
        flight.read(data, at)
    if framing is with_crlf:
        flight.close(int(relative.items[-1][0] * 1e6))
        assert flight.response.eof()
    assert flight.response.complete
    flight.end = int(relative.items[-1][0] * 1e6)
    sample = settle(flight, api)
    assert all(a <= b for a, b in pairwise(sample.stamps))
    expected = dict(relative.expected)
    assert sample.failure == expected.pop("failure", None), sample.detail
    if "partial" in expected:
        assert len(sample.stamps) == expected.pop("partial")
    for key, value in (
        ("out", sample.output_tokens),
        ("prompt", sample.input_tokens),
        ("cached", sample.cached_tokens),
    ):
        if key in expected:
            assert value == expected.pop(key), key
    found = figures(sample)
    for key, value in expected.items():
        assert getattr(found, key) == (value if value is None else pytest.approx(value)), key


def test_a_page_of_another_server_is_no_stream() -> None:
    flight = Flight(0, 0, None, 8, "chat", counted=False)
    flight.read(HEAD + b"connection: close\r\n\r\n<html>login</html>", 1)
    flight.close(2)
    assert settle(flight, DIALECTS["openai"]["chat"]).failure == "no_token_events"
