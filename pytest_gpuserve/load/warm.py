"""Keeps at hand what a round needs rarely.

The host of a virtual machine may take away memory that was not touched for a second. The first of many streams
to end was then seen to take 5 ms instead of 15 us, and the others lost stamps in that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .flight import Flight

if TYPE_CHECKING:
    from ..model import ApiKind

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_COMPLETIONS = (
    b'{"choices":[{"index":0,"text":" a","finish_reason":null}]}',
    b'{"choices":[{"index":0,"text":" a","finish_reason":"length"}]}',
    b'{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2}}',
)
_CHAT = (
    b'{"choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null}]}',
    b'{"choices":[{"index":0,"delta":{"content":" a"},"finish_reason":"length"}]}',
    b'{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2}}',
)
_GENERATE = (
    b'{"text":" a","meta_info":{"finish_reason":null,"completion_tokens":1}}',
    b'{"text":" a a","meta_info":{"finish_reason":{"type":"length","length":2},"completion_tokens":2}}',
)


def _reads(first: bytes, *later: bytes) -> tuple[bytes, bytes]:
    """The beginning of a stream and all the rest of it, as two reads from a socket."""
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in map(_event, (first, *later, b"[DONE]"))]
    return _HEAD + chunks[0], b"".join(chunks[1:]) + b"0\r\n\r\n"


def _event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


_STREAMS: dict[ApiKind, tuple[bytes, bytes]] = {
    "completions": _reads(*_COMPLETIONS),
    "chat": _reads(*_CHAT),
    "generate": _reads(*_GENERATE),
}


def keep_warm(kind: ApiKind) -> Flight:
    """Read a stream's beginning and end as they come from such an API; some 50 us. The flight is for
    nobody."""
    flight = Flight(0, 0, None, 2, kind, counted=kind == "generate")
    for stamp, data in enumerate(_STREAMS[kind]):
        flight.read(data, stamp)
    return flight
