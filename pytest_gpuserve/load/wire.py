"""HTTP/1.1 responses, decoded incrementally: whatever a read ends in the middle of."""

from __future__ import annotations

import re
from enum import Enum

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |\Z)")
_CHUNK = re.compile(rb"\s*([0-9a-fA-F]{1,15})\s*(?:;.*)?\Z", re.DOTALL)

MAX_HEAD = 64 << 10
_CRLF_DUE = -1
_TRAILERS = -2


class ProtocolError(Exception):
    """The server does not speak HTTP/1.1."""


class EncodingRefused(ProtocolError):
    """The body is compressed although `identity` was asked for: stamps would be those of the compressor."""


class Body(Enum):
    """How the end of a body is told."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


class Response:
    """One response to one POST. `feed` raw bytes, take body bytes; `complete` when it has ended.

    After completion `leftover` holds what follows it, which for a client that does not pipeline is an error.
    """

    __slots__ = (
        "_need",
        "_pending",
        "body",
        "complete",
        "content_type",
        "keep_alive",
        "leftover",
        "status",
        "upper",
    )

    def __init__(self) -> None:
        self.status = 0
        """0 until the head is complete."""
        self.body: Body | None = None
        self.complete = False
        self.keep_alive = True
        self.content_type = b""
        self.leftover = b""
        self.upper = False
        """Chunk sizes are written in upper-case hexadecimal."""
        self._pending = b""
        self._need = 0

    @property
    def at_boundary(self) -> bool:
        """The next byte is the first of a chunk."""
        return self.body is Body.CHUNKED and self._need == 0 and not self._pending and not self.complete

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Decode up to the end of a chunk, at most: (body bytes, what has not been looked at).

        Of the other framings everything is taken at once. Raises ProtocolError.
        """
        if self._pending:
            data = self._pending + data
            self._pending = b""
        if not self.status:
            rest = self._head(data)
            if rest is None:
                return b"", b""
            data = rest
        if self.complete:
            self.leftover += data
            return b"", b""
        if self.body is Body.CHUNKED:
            return self._chunk(data)
        if self.body is Body.CLOSE:
            return data, b""
        piece = data[: self._need]
        self._need -= len(piece)
        if not self._need:
            self.complete = True
            self.leftover = data[len(piece) :]
        return piece, b""

    def eof(self) -> bool:
        """The server closed the connection; True when that ends the response properly."""
        if self.status and self.body is Body.CLOSE:
            self.complete = True
        return self.complete

    def _head(self, data: bytes) -> bytes | None:
        """Read the head, skipping interim (1xx) ones; the bytes after it, or None while it is incomplete."""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > MAX_HEAD:
                    raise ProtocolError("a head of more than 64 KiB")
                if data and not b"HTTP/1.".startswith(data[:7]):
                    raise ProtocolError(f"not an HTTP/1.1 response: {data[:40]!r}")
                self._pending = data
                return None
            head, data = data[:end], data[end + 4 :]
            line, *fields = head.split(b"\r\n")
            found = _STATUS.match(line)
            if not found:
                raise ProtocolError(f"not an HTTP/1.1 status line: {line[:40]!r}")
            status = int(found[2])
            if 100 <= status < 200 and status != 101:
                continue
            headers: dict[bytes, bytes] = {}
            for entry in fields:
                name, colon, value = entry.partition(b":")
                if not colon:
                    raise ProtocolError(f"not a header: {entry[:40]!r}")
                key = name.strip().lower()
                headers[key] = headers[key] + b"," + value.strip() if key in headers else value.strip()
            self._framing(status, headers, version=found[1])
            return data

    def _framing(self, status: int, headers: dict[bytes, bytes], *, version: bytes) -> None:
        encoding = headers.get(b"content-encoding", b"identity").lower()
        transfer = [
            c.strip() for c in headers.get(b"transfer-encoding", b"").lower().split(b",") if c.strip()
        ]
        if encoding not in (b"", b"identity") or transfer not in ([], [b"chunked"], [b"identity"]):
            raise EncodingRefused(
                f"the server sent a compressed body ({b' '.join([encoding, *transfer]).decode('latin-1')})"
            )
        connection = headers.get(b"connection", b"").lower()
        self.keep_alive = b"close" not in connection and (version == b"1" or b"keep-alive" in connection)
        self.content_type = headers.get(b"content-type", b"").lower()
        self.status = status
        if transfer == [b"chunked"]:
            self.body = Body.CHUNKED
        elif b"content-length" in headers:
            values = {v.strip() for v in headers[b"content-length"].split(b",")}
            length = values.pop()
            if values or not length.isdigit():
                raise ProtocolError("an unusable Content-Length")
            self.body = Body.LENGTH
            self._need = int(length)
            self.complete = self._need == 0
        elif status in (204, 304):
            self.body = Body.LENGTH
            self.complete = True
        else:
            self.body = Body.CLOSE
            self.keep_alive = False

    def _chunk(self, data: bytes) -> tuple[bytes, bytes]:
        piece = b""
        at, size = 0, len(data)
        while at < size:
            if self._need > 0:
                piece = data[at : at + self._need]
                at += len(piece)
                self._need = self._need - len(piece) or _CRLF_DUE
            elif self._need == _CRLF_DUE:
                if size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise ProtocolError("a chunk longer than it says")
                self._need = 0
                return piece, data[at + 2 :]
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    if size - at > MAX_HEAD:
                        raise ProtocolError("a chunk header of more than 64 KiB")
                    break
                line = data[at:end]
                at = end + 2
                if self._need == _TRAILERS:
                    if not line:
                        self.complete = True
                        self.leftover = data[at:]
                        return piece, b""
                    continue
                found = _CHUNK.match(line)
                if not found:
                    raise ProtocolError(f"not a chunk size: {line[:40]!r}")
                self.upper = self.upper or any(c in b"ABCDEF" for c in found[1])
                self._need = int(found[1], 16) or _TRAILERS
        self._pending = data[at:]
        return piece, b""


class Sizes(dict[int, bytes]):
    """How a chunk's size is written."""

    def __init__(self, upper: bool) -> None:
        super().__init__()
        self._format = b"%X" if upper else b"%x"

    def __missing__(self, size: int) -> bytes:
        self[size] = written = self._format % size
        return written


class Framing(dict[int, bytes]):
    """How a read of n bytes begins when it is exactly one chunk with one event: `<size>CRLF` and `data: `.

    The size follows from n, so that one comparison tells whether a read has the usual shape. Where no chunk
    makes n bytes the value is one that no read begins with.
    """

    def __init__(self, upper: bool) -> None:
        super().__init__()
        self._format = b"%X\r\ndata: " if upper else b"%x\r\ndata: "
        self.sizes = Sizes(upper)

    def __missing__(self, n: int) -> bytes:
        prefix = b"\0"
        for digits in range(1, 9):
            size = n - 4 - digits
            if size > 6 and len(b"%x" % size) == digits:
                prefix = self._format % size
                break
        self[n] = prefix
        return prefix


LOWER = Framing(upper=False)
UPPER = Framing(upper=True)
