"""One connection to the server: opened ahead, never blocking, stamped by the kernel where that can be had."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import ssl
import sys
import time
from errno import EINPROGRESS
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import Target
    from .flight import Flight

SO_TIMESTAMPNS = 35
"""Linux, all common architectures; Python does not name it."""
READ_BYTES = 16 << 10
CONNECT_S = 10.0
WAVE = 128
"""Connections opened at a time, so that a short accept queue does not overflow."""
SPARE_FILES = 64
OPEN_LOOP = 65_536
"""Connections that an open loop without a number of requests is given room for: nobody knows how many are in
flight when a server falls behind."""


class Unreachable(Exception):
    """No connection: `reason` is the outcome of the requests that needed it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def allow_files(connections: int, *, wanted: int = 0) -> None:
    """Raise the soft limit of open files to what so many connections need, or to what `wanted` ones do as
    far as it may. Raises InputError when it may not be raised to what is needed."""
    needed = connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        most = wanted + SPARE_FILES
        needed = max(needed, most if hard == resource.RLIM_INFINITY else min(hard, most))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"{connections} connections need {needed} open files, and this process may have {hard} "
            f"(raise the hard limit: `ulimit -Hn`, or LimitNOFILE= of a service)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Address:
    """A target, resolved once before the clock starts."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.tls: ssl.SSLContext | None = None
        if target.tls:
            self.tls = ssl.create_default_context(cafile=target.ca_file)
            if not target.verify:
                self.tls.check_hostname = False
                self.tls.verify_mode = ssl.CERT_NONE
        try:
            self.found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unreachable("unresolved", f"{target.host}: {error.strerror or error}") from None
        except UnicodeError:
            raise Unreachable("unresolved", f"{target.host}: no name of a host") from None

    def settle(self) -> None:
        """Keep the first address that accepts a connection (`localhost` may be IPv6 first, the server
        IPv4)."""
        if len(self.found) > 1:
            for entry in self.found:
                with socket.socket(entry[0], entry[1]) as probe:
                    probe.settimeout(CONNECT_S)
                    if probe.connect_ex(entry[4]) == 0:
                        self.found = [entry]
                        return


def await_stamps(limit_s: float = 0.5) -> bool:
    """Wait until the kernel stamps what it receives; False when it does not within the limit.

    The first socket that asks for stamps switches them on for the machine, and the kernel does that a
    moment later. Only TCP tells: for UDP it makes up a stamp on reading. The answer holds while a socket
    that asked is open.
    """
    deadline = time.monotonic() + limit_s
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=limit_s) as probe,
        ):
            other, _ = server.accept()
            with other:
                probe.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                while time.monotonic() < deadline:
                    other.send(b"?")
                    if probe.recvmsg(1, 64)[1]:
                        return True
                    time.sleep(1e-3)
    except OSError:
        return False
    return False


class Connection:
    """A socket and the request that is on it, if any."""

    __slots__ = ("_address", "fd", "flight", "kernel_stamps", "out", "ready", "receive", "sock", "writing")

    def __init__(self, address: Address) -> None:
        self._address = address
        family, kind, proto, _, place = address.found[0]
        sock = socket.socket(family, kind, proto)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.kernel_stamps = False
        if address.tls is None and sys.platform == "linux":
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self.kernel_stamps = True
        self.flight: Flight | None = None
        self.out: memoryview | None = None
        """What is left of the request to send."""
        self.ready = False
        """Connected, and over TLS shaken hands."""
        self.writing = False
        """The poller looks for writability."""
        error = sock.connect_ex(place)
        if error not in (0, EINPROGRESS):
            sock.close()
            raise _unreachable(error)
        if address.tls is not None:
            sock = address.tls.wrap_socket(
                sock,
                server_hostname=address.target.host,
                do_handshake_on_connect=False,
            )
        self.sock = sock
        self.fd = sock.fileno()
        self.receive: Callable[[int, int], tuple[bytes, Any, int, Any]] = (
            sock.recvmsg if address.tls is None else self._receive_tls
        )

    def advance(self) -> bool:
        """Go on connecting; True when requests can be sent. Raises Unreachable."""
        if self.ready:
            return True
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise _unreachable(error)
        try:
            self.sock.getpeername()
        except OSError:
            return False
        if isinstance(self.sock, ssl.SSLSocket):
            try:
                self.sock.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            except (ssl.SSLError, OSError) as failed:
                raise Unreachable("tls_failed", str(failed)) from None
        self.ready = True
        return True

    def send(self) -> bool:
        """Send what is left of the request; True when nothing is. Raises OSError."""
        while self.out is not None:
            try:
                sent = self.sock.send(self.out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            self.out = self.out[sent:] if sent < len(self.out) else None
        return True

    def close(self) -> None:
        self.sock.close()

    def _receive_tls(self, size: int, _: int) -> tuple[bytes, Any, int, Any]:
        """As `recvmsg`, without a stamp. All that was decrypted is taken, for the poller cannot see it."""
        try:
            data = self.sock.recv(size)
            while isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
                data += self.sock.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            data = b""
        return data, None, 0, None


def _unreachable(error: int) -> Unreachable:
    import errno
    import os

    reasons = {errno.ECONNREFUSED: "connect_refused", errno.ETIMEDOUT: "connect_timeout"}
    return Unreachable(reasons.get(error, "connect_failed"), os.strerror(error))


def open_ahead(address: Address, count: int) -> list[Connection]:
    """`count` connections, ready for requests. Raises Unreachable when one cannot be had within 10 s."""
    opened: list[Connection] = []
    try:
        while len(opened) < count:
            wave = [Connection(address) for _ in range(min(WAVE, count - len(opened)))]
            opened += wave
            _await(wave)
    except BaseException:
        for connection in opened:
            connection.close()
        raise
    return opened


def _await(wave: list[Connection]) -> None:
    deadline = time.monotonic() + CONNECT_S
    poller = select.poll()
    waiting = {c.fd: c for c in wave}
    for fd in waiting:
        poller.register(fd, select.POLLIN | select.POLLOUT)
    while waiting:
        for fd, _ in poller.poll(100):
            if waiting[fd].advance():
                poller.unregister(fd)
                del waiting[fd]
        if time.monotonic() > deadline:
            raise Unreachable("connect_timeout", f"no connection within {CONNECT_S:g} s")
