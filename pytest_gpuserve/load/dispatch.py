"""Requests onto connections, and how each ends. Times are ns since the round's clock started."""

from __future__ import annotations

import select
import time
from collections import deque
from typing import TYPE_CHECKING

from .connection import Address, Connection, Unreachable, await_stamps, open_ahead
from .flight import Flight
from .ledger import Ledger
from .samples import Health
from .totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import Api, Target
    from .sample import Sample
    from .traffic import Planned, Traffic

READ, WRITE = 1, 4
"""EPOLLIN and EPOLLOUT, which are POLLIN and POLLOUT."""
AHEAD = 16
"""Idle connections that an open loop keeps ahead of its requests."""
GONE = 100
"""Connections refused in a row after which the server counts as gone and nothing more is sent."""

GRACE_NS = 50_000_000
"""How long a server is watched after a response before it counts as one that keeps connections."""

_keeps: dict[tuple[str, int], bool] = {}
"""What was found out, by address, for the rounds that follow."""

_now = time.monotonic_ns


class Poll:
    """What of epoll is used here, on platforms that have only poll."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, seconds: float, _: int) -> list[tuple[int, int]]:
        return self._poll.poll(seconds * 1e3)

    def close(self) -> None: ...


class Dispatch:
    """The sending half of a round: which request goes when, on which connection, and what becomes of it."""

    def __init__(
        self, target: Target, api: Api, traffic: Traffic, sink: Callable[[Sample], None] | None
    ) -> None:
        self.target = target
        self.api = api
        self.traffic = traffic
        self.health = Health()
        self.start = 0
        """Monotonic ns of the start of the clock."""
        self.sending = True
        self.in_flight = 0
        self.peak = 0
        self.sent = 0
        self.last_sent = 0
        self.ended = 0
        """End of the request that ended last."""
        self.quiet_since = 0
        """Since when no token has come although requests are in flight."""
        self.ledger = Ledger(api, totals_of(traffic), seed=traffic.seed, sink=sink)
        self.connections: dict[int, Connection] = {}
        self.poller: select.epoll | Poll = select.epoll() if hasattr(select, "epoll") else Poll()
        self._address: Address | None = None
        self._idle: deque[Connection] = deque()
        self._opening: deque[Connection] = deque()
        """Begun ahead of a request, and not ready yet."""
        self._watched: deque[tuple[int, Connection]] = deque()
        """Used connections, and until when they are watched."""
        self._keeps = api.keep_alive
        """Whether the server keeps a connection after a response that does not say otherwise. A request
        sent on one that it is about to close is lost, and none is sent twice: while this is None, a used
        one is not used again.
        """
        if self._keeps is None:
            self._keeps = _keeps.get((target.host, target.port))
        self._refused = 0
        self._head = request_head(target, api)
        self._counted = api.kind == "generate" or api.chunk_usage

    # --- connections -----------------------------------------------------------------------------

    def open(self) -> None:
        """Open what the round needs before its clock starts. Raises Unreachable."""
        self._address = Address(self.target)
        self._address.settle()
        traffic = self.traffic
        count = traffic.concurrency if traffic.concurrency is not None else AHEAD
        if self._keeps is False:
            count += self._spares
        if traffic.requests is not None:
            count = min(count, traffic.requests)
        for connection in open_ahead(self._address, count):
            self._watch(connection, READ)
            self._idle.append(connection)
        if all(c.kernel_stamps for c in self._idle) and await_stamps():
            self.health.stamp_source = "kernel"

    @property
    def _spares(self) -> int:
        """Connections ahead of a closed loop whose server closes each after one response."""
        return 1 + (self.traffic.concurrency or 0) // 8

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.poller.close()

    def writable(self, connection: Connection) -> None:
        """A connection opened while the clock runs is ready, or takes more of a long request."""
        if not connection.ready:
            try:
                if not connection.advance():
                    return
            except Unreachable as reason:
                self.lost(connection, reason.reason, str(reason))
                return
            self._refused = 0
            if connection.flight is None:
                self._opening.remove(connection)
                self._idle.appendleft(connection)
        if connection.flight is not None and connection.out is not None:
            self._send(connection, connection.flight)
        elif connection.writing:
            connection.writing = False
            self.poller.modify(connection.fd, READ)

    def hung_up(self, connection: Connection) -> None:
        """The server closed a connection that carries nothing, or spoke on it unasked."""
        if any(connection is watched for _, watched in self._watched):
            self._found(keeps=False)
        self.drop(connection)

    def watch_over(self, now: int) -> None:
        """A server that has kept a used connection for the grace keeps them.

        The watched ones are let go all the same: a server of one thread serves no other while they are open.
        """
        if self._watched and self._watched[0][0] <= now:
            self._found(keeps=True)

    def find_out(self) -> None:
        """After the last response: watch for the rest of the grace, so that the next round knows."""
        while self._keeps is None and self._watched:
            left = self._watched[0][0] - (_now() - self.start)
            for fd, _ in self.poller.poll(max(0.0, left * 1e-9), len(self.connections) + 1):
                if fd in self.connections:
                    self.hung_up(self.connections[fd])
            self.watch_over(_now() - self.start)

    def _found(self, *, keeps: bool) -> None:
        self._keeps = _keeps[self.target.host, self.target.port] = keeps
        watched, self._watched = self._watched, deque()
        for _, connection in watched:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close it; it carries nothing."""
        if self.connections.pop(connection.fd, None) is None:
            return
        for waiting in (self._idle, self._opening):
            if connection in waiting:
                waiting.remove(connection)
        self.poller.unregister(connection.fd)
        connection.close()

    def _watch(self, connection: Connection, events: int) -> None:
        self.connections[connection.fd] = connection
        self.poller.register(connection.fd, events)

    def _connect(self) -> Connection:
        """A connection begun while the clock runs. Raises Unreachable."""
        assert self._address is not None
        connection = Connection(self._address)
        self._watch(connection, READ | WRITE)
        connection.writing = True
        return connection

    # --- sending ---------------------------------------------------------------------------------

    def send_due(self, now: int) -> None:
        """Send what is due: what a closed loop has room for, or what an open loop has scheduled."""
        traffic = self.traffic
        if traffic.mode == "open":
            while (due := traffic.peek_due_ns()) is not None and due <= _now() - self.start:
                self._next(due)
            if due is None:
                self.sending = False
            elif len(self._idle) + len(self._opening) < AHEAD // 2:
                self._spare()
            return
        if traffic.duration_ns is not None and now >= traffic.duration_ns:
            self.sending = False
        while self.sending and self.in_flight < (traffic.concurrency or 1):
            self._next(now)

    def _stock(self) -> None:
        """Open one ahead for the next request. After the one of this request: a server of one thread takes
        them in order."""
        if len(self._idle) + len(self._opening) < self._spares and self.sending:
            self._spare()

    def _spare(self) -> None:
        try:
            self._opening.append(self._connect())
        except (Unreachable, OSError):
            return  # the request that needs it will say so

    def _next(self, due: int) -> None:
        planned = self.traffic.take()
        if planned is None:
            self.sending = False
            return
        flight = self._flight(planned, due)
        if self._idle:
            connection = self._idle.pop()
        elif self._opening:
            connection = self._opening.popleft()
        else:
            try:
                connection = self._connect()
            except Unreachable as reason:
                self._unsent(flight, reason.reason, str(reason))
                return
            except OSError as error:
                self._unsent(flight, "connect_failed", error.strerror or str(error))
                return
        if not self.in_flight:
            self.quiet_since = _now() - self.start
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        connection.flight = flight
        connection.out = memoryview(b"%b%d\r\n\r\n%b" % (self._head, len(planned.body), planned.body))
        if connection.ready:
            self._send(connection, flight)

    def _flight(self, planned: Planned, due: int) -> Flight:
        return Flight(
            planned.index, due, planned.input_tokens, planned.output_tokens, self.api.kind, self._counted
        )

    def _send(self, connection: Connection, flight: Flight) -> None:
        began = _now() - self.start
        if flight.sent is None:
            flight.sent = self.last_sent = began
            self.sent += 1
            self.health.delay.add(began - flight.due)
            self.health.delay_ns += began - flight.due
        try:
            all_sent = connection.send()
        except OSError as error:
            self.lost(connection, "connection_reset", error.strerror or str(error))
            return
        self.health.handover.add(_now() - self.start - began)
        if all_sent == connection.writing:
            connection.writing = not all_sent
            self.poller.modify(connection.fd, READ if all_sent else READ | WRITE)

    # --- endings ---------------------------------------------------------------------------------

    def finish(self, connection: Connection, stamp: int) -> None:
        """The response is complete: the connection is free, and a closed loop sends the next request."""
        flight = connection.flight
        assert flight is not None
        connection.flight = None
        self.in_flight -= 1
        self._end(flight, stamp)
        if self._keeps is False or not flight.response.keep_alive or connection.out is not None:
            self.drop(connection)
        elif self._keeps is None:
            self._watched.append((_now() - self.start + GRACE_NS, connection))
        else:
            self._idle.append(connection)
        traffic = self.traffic
        if self.sending and traffic.mode == "closed":
            if traffic.duration_ns is not None and _now() - self.start >= traffic.duration_ns:
                self.sending = False
            else:
                self._next(stamp)
                if not flight.response.keep_alive or self._keeps is False:
                    self._stock()

    def lost(self, connection: Connection, reason: str, detail: str, stamp: int | None = None) -> None:
        """The connection failed, and its request with it."""
        flight, connection.flight = connection.flight, None
        self.drop(connection)
        if flight is None:
            return
        self.in_flight -= 1
        if flight.sent is None:
            self._unsent(flight, reason, detail)
            return
        flight.failure, flight.detail = reason, detail
        self._end(flight, _now() - self.start if stamp is None else stamp)

    def fail_all(self, reason: Unreachable) -> None:
        """Nothing listens: all requests fail, or of an endless round those that would have been in flight."""
        for _ in range(self.traffic.requests or self.traffic.concurrency or 1):
            planned = self.traffic.take()
            if planned is None:
                break
            self._unsent(self._flight(planned, 0), reason.reason, str(reason))

    def abandon(self, reason: str, detail: str) -> None:
        """The round ends with requests in flight."""
        for connection in list(self.connections.values()):
            if connection.flight is not None:
                self.lost(connection, reason, detail)

    def _unsent(self, flight: Flight, reason: str, detail: str) -> None:
        """No connection was to be had for it."""
        flight.failure, flight.detail = reason, detail
        self._end(flight, _now() - self.start)
        self._refused += 1
        if self._refused >= GONE and self.traffic.requests is None:
            self.sending = False

    def _end(self, flight: Flight, at: int) -> None:
        flight.end = at
        self.health.busy_ns += at - flight.due
        self.ended = max(self.ended, at)
        self.ledger.add(flight)


def totals_of(traffic: Traffic) -> Totals:
    return Totals(
        traffic.workload,
        scheduled=traffic.mode == "open",
        width=traffic.concurrency or 0,
        scale=traffic.time_scale,
        exact=traffic.exact_prompts,
    )


def request_head(target: Target, api: Api) -> bytes:
    """The request up to the value of Content-Length. No proxy is ever used, whatever the environment says."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    headers = {
        "Host": f"{host}:{target.port}",
        "User-Agent": "gpuserve",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **target.headers,
    }
    lines = [f"POST {api.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1")
