"""The client: sends a round's requests and stamps what comes back, on one thread and one epoll.

While the clock runs a usual chunk (one HTTP chunk, one event, one token event) costs one `recvmsg`, a few
byte comparisons and one append; everything else goes through `flight`. Stamps are the kernel's
(SO_TIMESTAMPNS), so that they do not depend on when this process gets to run. docs/load-client.md has the
measurements.
"""

from __future__ import annotations

import gc
import select
import time
from collections import deque
from select import EPOLLIN, EPOLLOUT
from struct import Struct as Layout
from typing import TYPE_CHECKING

from msgspec import Struct

from .clock import STEP_NS, read_offset
from .connection import READ_BYTES, Address, Connection, Unreachable, allow_files, open_ahead
from .events import COUNT_KEY
from .flight import CLEAN, Flight
from .samples import Health, Sample, Samples
from .settle import settle
from .wire import EncodingRefused, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import Api, Target
    from .traffic import Planned, Traffic

TICK_NS = 50_000_000
"""How often the interrupt is asked, the stall limit looked at and the clock offset read again."""
POLL_NS = 1_000_000
"""The resolution of epoll's timeout: what is due sooner is waited for in another way."""
BLOCKED_NS = 50_000
"""A poll that took longer than this had nothing to return at first."""
LATE_NS = 500_000
"""A stamp lost by more than this to a client that was busy counts as lost late."""
AHEAD = 16
"""Idle connections that an open loop keeps, and the most it opens before the clock starts beyond what it
needs."""
GONE = 100
"""Connections refused in a row after which the server counts as gone and nothing more is sent."""

_stamp = Layout("qq").unpack
_now = time.monotonic_ns


class Progress(Struct):
    """What a live display shows; times in real ns since the clock started."""

    elapsed_ns: int = 0
    sent: int = 0
    in_flight: int = 0
    finished: int = 0
    tokens: int = 0
    """Token events so far, not yet tokens."""


def run(
    target: Target,
    api: Api,
    traffic: Traffic,
    *,
    stall_s: float,
    interrupt: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Samples:
    """Send the traffic and return what was seen; failures of requests are in the samples, never raised.

    stall_s
        Real seconds without a token on any connection, while requests are in flight, after which they fail as
        `stalled` and the round ends.
    interrupt, progress
        Asked about every 50 ms. True from `interrupt` ends the round at once: requests in flight fail as
        `interrupted`.

    Raises InputError when the connections need more open files than the process may have.
    """
    return _Round(target, api, traffic, stall_s, interrupt, progress).run()


class _Round:
    def __init__(
        self,
        target: Target,
        api: Api,
        traffic: Traffic,
        stall_s: float,
        interrupt: Callable[[], bool] | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.target = target
        self.api = api
        self.traffic = traffic
        self.stall_ns = int(stall_s * 1e9)
        self.interrupt = interrupt
        self.progress = progress
        self.head = _head(target, api)
        self.counted = api.kind == "generate" or api.chunk_usage
        self.health = Health()
        self.poller = select.epoll()
        self.connections: dict[int, Connection] = {}
        self.idle: deque[Connection] = deque()
        self.finished: list[Flight] = []
        self.in_flight = 0
        self.peak = 0
        self.sent = 0
        self.last_sent = 0
        self.refused = 0
        self.sending = True
        self.stalled = False
        self.interrupted = False
        self.start = 0
        """Monotonic ns; every other time here counts from it."""
        self.offset = 0
        """What a kernel stamp has to lose to count from the start as well."""
        self.quiet_since = 0
        """Since when no token has come although requests are in flight."""

    # --- the life of a round ---------------------------------------------------------------------

    def run(self) -> Samples:
        traffic = self.traffic
        allow_files((traffic.concurrency or AHEAD) + AHEAD)
        started = time.time()
        collecting = gc.isenabled()
        address = None
        cpu = time.thread_time_ns()
        gc.disable()
        try:
            try:
                address = self._open()
            except Unreachable as reason:
                self.start = _now()
                self._fail_all(reason)
            else:
                offset, self.health.clock_uncertainty_ns = read_offset()
                cpu = time.thread_time_ns()
                self.start = _now()
                self.offset = offset + self.start
                self._loop(address)
            self.health.clock_cpu_ns = time.thread_time_ns() - cpu
            return self._samples(started, cpu)
        finally:
            if collecting:
                gc.enable()
            for connection in self.connections.values():
                connection.close()
            self.poller.close()

    def _open(self) -> Address:
        address = Address(self.target)
        address.settle()
        traffic = self.traffic
        count = traffic.concurrency if traffic.concurrency is not None else AHEAD
        if traffic.requests is not None:
            count = min(count, traffic.requests)
        for connection in open_ahead(address, count):
            self._watch(connection, EPOLLIN)
            self.idle.append(connection)
        if all(c.kernel_stamps for c in self.idle):
            self.health.stamp_source = "kernel"
        return address

    def _samples(self, started: float, cpu: int) -> Samples:
        traffic = self.traffic
        requests = [settle(flight, self.api) for flight in self.finished]
        requests.sort(key=lambda sample: sample.index)
        self.health.cpu_ns = time.thread_time_ns() - cpu
        return Samples(
            requests=requests,
            started=started,
            clock_start_ns=self.start,
            duration_ns=max((s.end_ns for s in requests if s.end_ns is not None), default=0),
            mode=traffic.mode,
            concurrency=traffic.concurrency,
            requests_planned=traffic.requests,
            sending_ended_ns=self.last_sent if self.sent else None,
            peak_in_flight=self.peak,
            time_scale=traffic.time_scale,
            seed=traffic.seed,
            exact_prompts=traffic.exact_prompts,
            stalled=self.stalled,
            interrupted=self.interrupted,
            health=self.health,
        )

    # --- the loop --------------------------------------------------------------------------------

    def _loop(self, address: Address) -> None:
        self.address = address
        health, connections, lag = self.health, self.connections, self.health.lag
        poll = self.poller.poll
        chunks = 0
        start = self.start
        entered = returned = 0
        tick = TICK_NS
        self._send_due(0)
        while self.in_flight or self.sending:
            wait = self._wait(entered, tick)
            before = returned
            ready = poll(wait, len(connections) + 1)
            returned = _now() - start
            floor = returned if returned - entered > BLOCKED_NS else before
            stamp = 0
            arrived = chunks
            for fd, events in ready:
                connection = connections.get(fd)
                if connection is None:
                    continue
                if events & EPOLLOUT:
                    self._writable(connection)
                    if events == EPOLLOUT:
                        continue
                try:
                    data, ancillary, _, _ = connection.receive(READ_BYTES, 32)
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._lost(connection, "connection_reset", error.strerror or str(error))
                    continue
                if ancillary:
                    seconds, ns = _stamp(ancillary[0][2])
                    stamp = seconds * 1_000_000_000 + ns - self.offset
                else:
                    stamp = _now() - start
                    if connection.kernel_stamps:
                        health.unstamped += 1
                flight = connection.flight
                if flight is not None and flight.fast == CLEAN:
                    size = len(data)
                    prefix = flight.framing[size]
                    if data.startswith(prefix) and data.find(b"\n", len(prefix)) == size - 4:
                        if flight.counts is None:
                            marker = flight.marker
                            at = data.find(marker)
                            if at >= 0 and data[at + len(marker)] != 34:
                                flight.stamps.append(stamp)
                                flight.last = data
                                flight.prior = stamp
                                chunks += 1
                                continue
                        else:
                            at = data.rfind(COUNT_KEY) + 20
                            if at > 19:
                                try:
                                    count = int(data[at : data.find(b",", at)])
                                except ValueError:
                                    count = 0
                                if count > flight.count and (flight.cumulative or self._shows(data, flight)):
                                    flight.count = count
                                    flight.counts.append(count)
                                    flight.stamps.append(stamp)
                                    flight.last = data
                                    flight.prior = stamp
                                    chunks += 1
                                    continue
                chunks += self._unusual(connection, flight, data, stamp, floor)
            entered = _now() - start
            if stamp:
                lag.add(entered - stamp, len(ready))
            if chunks != arrived:
                self.quiet_since = entered
            if self.sending:
                self._send_due(entered)
            if entered >= tick:
                health.chunks = chunks
                if self._tick(entered):
                    break
                tick = entered + TICK_NS
        health.chunks = chunks
        self._abandon()

    @staticmethod
    def _shows(data: bytes, flight: Flight) -> bool:
        at = data.find(flight.marker)
        return at >= 0 and data[at + len(flight.marker)] != 34

    def _unusual(
        self, connection: Connection, flight: Flight | None, data: bytes, stamp: int, floor: int
    ) -> int:
        """Whatever is not one usual chunk; the number of token events in it."""
        if flight is None:
            self._drop(connection)  # closed by the server while idle, or speaking unasked
            return 0
        if not data:
            try:
                tokens = flight.close(stamp)
            except ProtocolError as error:
                self._lost(connection, "protocol_error", str(error), stamp)
                return 0
            if flight.response.eof():
                self._finish(connection, stamp)
            else:
                self._lost(connection, "closed_early", "the server closed the connection", stamp)
            return tokens
        try:
            tokens = flight.read(data, stamp)
        except EncodingRefused as error:
            self._lost(connection, "content_encoding", str(error), stamp)
            return 0
        except ProtocolError as error:
            self._lost(connection, "protocol_error", str(error), stamp)
            return 0
        if tokens > 1:
            health = self.health
            lost = min(stamp - (flight.prior or flight.sent or stamp), max(0, stamp - floor))
            health.merged += tokens - 1
            if lost > LATE_NS:
                health.late_merged += tokens - 1
            health.lost.add(lost, tokens - 1)
        flight.prior = stamp
        if flight.response.complete:
            self._finish(connection, stamp)
        return tokens

    def _wait(self, now: int, tick: int) -> float:
        """Seconds to poll for. epoll counts whole milliseconds: the last one before a due time is slept
        through."""
        until = tick
        if self.sending and self.traffic.mode == "open":
            due = self.traffic.peek_due_ns()
            if due is not None:
                until = min(until, due)
        left = until - now
        if left <= 0:
            return 0.0
        if left > 2 * POLL_NS or until == tick:
            return left // POLL_NS * 1e-3 if left > POLL_NS else 1e-3
        select.select([self.poller], [], [], max(0, left - 20_000) * 1e-9)
        return 0.0

    def _tick(self, now: int) -> bool:
        """Every 50 ms; True when the round is to end."""
        health = self.health
        if health.stamp_source == "kernel":
            offset = read_offset(10)
            moved = abs(offset.ns + self.start - self.offset)
            if moved > STEP_NS:
                health.clock_steps += 1
            if moved > offset.uncertainty_ns + health.clock_uncertainty_ns:
                self.offset = offset.ns + self.start
        if self.progress is not None:
            self.progress(Progress(now, self.sent, self.in_flight, len(self.finished), health.chunks))
        if self.interrupt is not None and self.interrupt():
            self.interrupted = True
            return True
        if self.in_flight and now - self.quiet_since > self.stall_ns:
            self.stalled = True
            return True
        return False

    # --- sending ---------------------------------------------------------------------------------

    def _send_due(self, now: int) -> None:
        """Send what is due now: what the slots of a closed loop have room for, or what an open loop has
        scheduled."""
        traffic = self.traffic
        if traffic.mode == "open":
            while (due := traffic.peek_due_ns()) is not None and due <= _now() - self.start:
                self._next(due)
            if due is None:
                self.sending = False
            return
        if traffic.duration_ns is not None and now >= traffic.duration_ns:
            self.sending = False
            return
        while self.sending and self.in_flight < (traffic.concurrency or 1):
            self._next(now)

    def _next(self, due: int) -> None:
        """Send the next request, due at `due`."""
        planned = self.traffic.take()
        if planned is None:
            self.sending = False
            return
        flight = Flight(
            planned.index, due, planned.input_tokens, planned.output_tokens, self.api.kind, self.counted
        )
        if self.idle:
            connection = self.idle.pop()
        else:
            try:
                connection = Connection(self.address)
            except Unreachable as reason:
                self._refused(flight, reason)
                return
            self._watch(connection, EPOLLIN | EPOLLOUT)
            connection.writing = True
        if not self.in_flight:
            self.quiet_since = _now() - self.start
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        connection.flight = flight
        connection.out = memoryview(self._request(planned))
        if connection.ready:
            self._send(connection, flight)

    def _request(self, planned: Planned) -> bytes:
        return b"%b%d\r\n\r\n%b" % (self.head, len(planned.body), planned.body)

    def _send(self, connection: Connection, flight: Flight) -> None:
        began = _now() - self.start
        if flight.sent is None:
            flight.sent = self.last_sent = began
            self.sent += 1
            self.health.delay.add(began - flight.due)
        try:
            all_sent = connection.send()
        except OSError as error:
            self._lost(connection, "connection_reset", error.strerror or str(error))
            return
        self.health.handover.add(_now() - self.start - began)
        if all_sent == connection.writing:
            connection.writing = not all_sent
            self.poller.modify(connection.fd, EPOLLIN if all_sent else EPOLLIN | EPOLLOUT)

    def _writable(self, connection: Connection) -> None:
        """A connection opened while the clock runs is ready, or takes more of a long request."""
        if not connection.ready:
            try:
                if not connection.advance():
                    return
            except Unreachable as reason:
                self._lost(connection, reason.reason, str(reason))
                return
            self.refused = 0
        if connection.flight is not None and connection.out is not None:
            self._send(connection, connection.flight)
        elif connection.writing:
            connection.writing = False
            self.poller.modify(connection.fd, EPOLLIN)

    # --- endings ---------------------------------------------------------------------------------

    def _watch(self, connection: Connection, events: int) -> None:
        self.connections[connection.fd] = connection
        self.poller.register(connection.fd, events)

    def _drop(self, connection: Connection) -> None:
        if self.connections.pop(connection.fd, None) is not None:
            if connection in self.idle:
                self.idle.remove(connection)
            connection.close()

    def _end(self, flight: Flight, at: int) -> None:
        flight.end = at
        self.finished.append(flight)

    def _finish(self, connection: Connection, stamp: int) -> None:
        """The response is complete: the connection is free for the next request."""
        flight = connection.flight
        assert flight is not None
        connection.flight = None
        self.in_flight -= 1
        self._end(flight, stamp)
        if flight.response.keep_alive and connection.out is None:
            self.idle.append(connection)
        else:
            self._drop(connection)
        if self.sending and self.traffic.mode == "closed" and self._time_left():
            self._next(stamp)

    def _time_left(self) -> bool:
        return self.traffic.duration_ns is None or _now() - self.start < self.traffic.duration_ns

    def _lost(self, connection: Connection, reason: str, detail: str, stamp: int | None = None) -> None:
        """The connection failed, and its request with it."""
        flight, connection.flight = connection.flight, None
        unsent = flight is not None and flight.sent is None
        self._drop(connection)
        if flight is None:
            return
        self.in_flight -= 1
        if unsent:
            self._refused(flight, Unreachable(reason, detail))
            return
        flight.failure, flight.detail = reason, detail
        self._end(flight, _now() - self.start if stamp is None else stamp)

    def _refused(self, flight: Flight, reason: Unreachable) -> None:
        flight.failure, flight.detail = reason.reason, str(reason)
        self._end(flight, _now() - self.start)
        self.refused += 1
        if self.refused >= GONE and self.traffic.requests is None:
            self.sending = False

    def _fail_all(self, reason: Unreachable) -> None:
        """Nothing listens: every request of the round fails, of an endless one those that would be in
        flight."""
        count = self.traffic.requests or self.traffic.concurrency or 1
        for _ in range(count):
            planned = self.traffic.take()
            if planned is None:
                break
            flight = Flight(
                planned.index,
                0,
                planned.input_tokens,
                planned.output_tokens,
                self.api.kind,
                self.counted,
            )
            self._refused(flight, reason)

    def _abandon(self) -> None:
        """Requests still in flight when the round ends early."""
        reason = "stalled" if self.stalled else "interrupted"
        text = "no token on any connection" if self.stalled else "the round was ended"
        for connection in list(self.connections.values()):
            if connection.flight is not None:
                self._lost(connection, reason, text)


def _head(target: Target, api: Api) -> bytes:
    """The request up to the value of Content-Length."""
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


__all__ = ["Progress", "Sample", "Samples", "run"]
