"""What SGLang's clients need of HTTP/1.1: keep-alive, bodies of known length, whole or chunked answers."""

from __future__ import annotations

import json
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .loop import Loop

MAX_HEAD = 64 << 10
MAX_BODY = 64 << 20
SERVER = "uvicorn"


class Request(Struct, frozen=True):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Connection:
    """One client. `handle` gets each request and answers by `reply` or by `begin`, `chunk`, `end`."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        handle: Callable[[Connection, Request], None],
        access: Callable[[str], None],
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._handle = handle
        self._access = access
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._closing = False
        self._busy = False
        self._line = ""
        self.open = True
        self.on_close: Callable[[], None] | None = None
        peer = sock.getpeername()
        self._peer = f"{peer[0]}:{peer[1]}"
        loop.read(self._fd, self._readable)

    # --- answers ---

    def reply(self, status: int, body: bytes = b"", content_type: str = "application/json") -> None:
        self._log(status)
        self._send(self._head(status, content_type, f"content-length: {len(body)}\r\n") + body)
        self._done()

    def reply_json(self, value: Any, status: int = 200) -> None:
        self.reply(status, json.dumps(value, separators=(",", ":")).encode())

    def begin(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        """Start an answer of unknown length."""
        self._log(200)
        self._send(self._head(200, content_type, "transfer-encoding: chunked\r\n"))

    def chunk(self, data: bytes) -> None:
        self._send(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, data: bytes = b"") -> None:
        """The last chunk, and the end of the answer, in one piece."""
        last = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._send(last + b"0\r\n\r\n")
        self._done()

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        self._loop.read(self._fd, None)
        self._loop.write(self._fd, None)
        self._sock.close()
        if self.on_close is not None:
            self.on_close()

    # --- the wire ---

    def _head(self, status: int, content_type: str, length: str) -> bytes:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        return (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ndate: {date}\r\nserver: {SERVER}\r\n"
            f"content-type: {content_type}\r\n{length}\r\n"
        ).encode()

    def _log(self, status: int) -> None:
        self._access(f'INFO:     {self._peer} - "{self._line} HTTP/1.1" {status} {HTTPStatus(status).phrase}')

    def _done(self) -> None:
        self._busy = False
        if self._closing and not self._outbox:
            self.close()
        elif self._inbox:
            self._parse()

    def _send(self, data: bytes) -> None:
        if not self.open:
            return
        if not self._outbox:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
        if data:
            self._outbox += data
            self._loop.write(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            del self._outbox[: self._sock.send(self._outbox)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._outbox:
            self._loop.write(self._fd, None)
            if self._closing and not self._busy:
                self.close()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._inbox += data
        self._parse()

    def _parse(self) -> None:
        if self._busy or not self.open:
            return
        end = self._inbox.find(b"\r\n\r\n")
        if end < 0:
            if len(self._inbox) > MAX_HEAD:
                self._refuse(431)
            return
        try:
            first, *rest = self._inbox[:end].decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ")
            headers = _headers(rest)
            length = int(headers.get("content-length", 0))
        except ValueError:
            self._refuse(400)
            return
        if "transfer-encoding" in headers or not 0 <= length <= MAX_BODY:
            self._refuse(411 if "transfer-encoding" in headers else 413)
            return
        total = end + 4 + length
        if len(self._inbox) < total:
            if headers.get("expect", "").lower() == "100-continue" and len(self._inbox) == end + 4:
                self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._inbox[end + 4 : total])
        del self._inbox[:total]
        self._busy = True
        self._closing = headers.get("connection", "").lower() == "close"
        self._line = f"{method} {target}"
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self._handle(self, Request(method, parts.path, query, headers, body))

    def _refuse(self, status: int) -> None:
        self._inbox.clear()
        self._line = "? ?"
        self._busy = self._closing = True
        self.reply(status, b"Invalid HTTP request received.", "text/plain; charset=utf-8")


def _headers(lines: Iterable[str]) -> dict[str, str]:
    """By lower-case name. Raises ValueError for a line without a colon."""
    pairs = (line.split(":", 1) for line in lines)
    return {name.strip().lower(): value.strip() for name, value in pairs}
