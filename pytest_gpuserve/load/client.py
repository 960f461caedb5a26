"""The client: sends a round's requests and stamps what comes back, on one thread and one epoll.

While the clock runs a usual chunk (one HTTP chunk, one event, one token event) costs one `recvmsg`, a few
byte comparisons and one append; everything else goes through `flight`. Stamps are the kernel's
(SO_TIMESTAMPNS), so they do not depend on when this process gets to run. docs/load-client.md has the
measurements.
"""

from __future__ import annotations

import gc
import select
import time
from struct import Struct as Layout
from typing import TYPE_CHECKING

from msgspec import Struct

from .clock import STEP_NS, RunDelay, read_offset
from .connection import OPEN_LOOP, READ_BYTES, Connection, Unreachable, allow_files
from .dispatch import AHEAD, WRITE, Dispatch, Poll
from .events import COUNT_KEY
from .flight import CLEAN, Flight
from .samples import Samples
from .warm import keep_warm
from .wire import EncodingRefused, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import Api, Target
    from .sample import Sample
    from .traffic import Traffic

TICK_NS = 50_000_000
"""How often the interrupt is asked, the stall limit looked at and the clock offset read again."""
POLL_NS = 1_000_000
"""The resolution of epoll's timeout: what is due sooner is waited for in another way."""
FD_SETSIZE = 1024
"""`select` takes no descriptor beyond it; then the last millisecond is polled for without sleeping."""
BLOCKED_NS = 50_000
"""A poll that took longer than this had nothing to return at first."""
LATE_NS = 500_000
"""A stamp lost by more than this to a client that was busy counts as lost late."""
NAP_S = 1e-3
"""The longest nap."""
NAP_STREAMS = 4
"""Fewer streams in flight are not worth one."""
NAP_CHUNKS = 32
"""Fewer chunks to a request on average: the end of one must be seen at once."""
AWAKE_TICKS = 20
"""How long there are no naps after a stamp was lost."""
SETTLE = 8
"""Requests settled in an idle moment of a very long round."""

_stamp = Layout("qq").unpack
_now = time.monotonic_ns


class Progress(Struct):
    """What a live display shows."""

    elapsed_s: float
    """Seconds of the workload."""
    sent: int
    in_flight: int
    finished: int
    chunks: int
    """Token events so far."""


def run(
    target: Target,
    api: Api,
    traffic: Traffic,
    *,
    stall_s: float,
    interrupt: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
    sink: Callable[[Sample], None] | None = None,
) -> Samples:
    """Send the traffic and return what was seen; failures of requests are in the samples, never raised.

    stall_s
        Real seconds without a token on any connection, while requests are in flight, after which they fail as
        `stalled` and the round ends.
    interrupt, progress
        Asked about every 50 ms. True from `interrupt` ends the round at once: requests in flight fail as
        `interrupted`.
    sink
        Gets every sample once, in the order in which requests ended, after the clock has stopped; of a very
        long round (see `ledger`) also while it runs.

    Raises InputError when the connections need more open files than the process may have.
    """
    return Round(target, api, traffic, stall_s, interrupt, progress, sink).run()


class Round(Dispatch):
    """The reading half, and the loop."""

    def __init__(
        self,
        target: Target,
        api: Api,
        traffic: Traffic,
        stall_s: float,
        interrupt: Callable[[], bool] | None,
        progress: Callable[[Progress], None] | None,
        sink: Callable[[Sample], None] | None,
    ) -> None:
        super().__init__(target, api, traffic, sink)
        self.stalled = False
        self.interrupted = False
        self._stall_ns = int(stall_s * 1e9)
        self._interrupt = interrupt
        self._progress = progress
        self._nap_s = 0.0
        self._chunks_before = self._merged_before = self._awake_ticks = 0
        self._run_delay = RunDelay()
        self._blocked = False
        """The poll seems to have found nothing at first: it took long."""
        self._before = self._entered = self._returned = 0
        """When the poll before this one ended, and when this one began and ended."""
        self._offset = 0
        """What a kernel stamp has to lose to count from the start."""

    def run(self) -> Samples:
        traffic = self.traffic
        wanted = (traffic.requests or OPEN_LOOP) if traffic.mode == "open" else 0
        allow_files((traffic.concurrency or AHEAD) + AHEAD, wanted=wanted)
        started = time.time()
        collecting = gc.isenabled()
        cpu = time.thread_time_ns()
        try:
            try:
                self.open()
            except Unreachable as reason:
                self.start = _now()
                self.fail_all(reason)
            else:
                gc.disable()
                self._run_delay.take_ns()
                offset, self.health.clock_uncertainty_ns = read_offset()
                cpu = time.thread_time_ns()
                self.start = _now()
                self._offset = offset + self.start
                self._loop()
            self.health.clock_cpu_ns = time.thread_time_ns() - cpu
        finally:
            if collecting:
                gc.enable()
            self.close()
            self._run_delay.close()
        requests = self.ledger.close()
        self.health.cpu_ns = time.thread_time_ns() - cpu
        return self._samples(requests, started)

    def _samples(self, requests: list[Sample], started: float) -> Samples:
        traffic, ledger = self.traffic, self.ledger
        return Samples(
            requests=requests,
            started=started,
            clock_start_ns=self.start,
            duration_ns=self.ended,
            let_go=ledger.totals,
            bins=dict(ledger.bins),
            kept_share=ledger.share,
            mode=traffic.mode,
            concurrency=traffic.concurrency,
            sending_ended_ns=self.last_sent if self.sent else None,
            peak_in_flight=self.peak,
            time_scale=traffic.time_scale,
            seed=traffic.seed,
            stalled=self.stalled,
            interrupted=self.interrupted,
            health=self.health,
        )

    def _loop(self) -> None:
        health, connections, lag = self.health, self.connections, self.health.lag
        poll = self.poller.poll
        start, kernel = self.start, health.stamp_source == "kernel"
        chunks = entered = returned = 0
        tick = TICK_NS
        self.send_due(0)
        blocked = False
        while self.in_flight or self.sending:
            if blocked and self._nap_s and not self._due_within(entered, self._nap_s):
                time.sleep(self._nap_s)
            wait = self._wait(entered, tick)
            before = returned
            entered = _now() - start
            ready = poll(wait, len(connections) + 1)
            returned = _now() - start
            blocked = returned - entered > BLOCKED_NS
            self._blocked, self._before, self._entered, self._returned = blocked, before, entered, returned
            stamp = 0
            arrived = chunks
            for fd, events in ready:
                connection = connections.get(fd)
                if connection is None:
                    continue
                if events & WRITE:
                    self.writable(connection)
                    if events == WRITE:
                        continue
                try:
                    data, ancillary, _, _ = connection.receive(READ_BYTES, 32)
                except BlockingIOError:
                    continue
                except OSError as error:
                    self.lost(connection, "connection_reset", error.strerror or str(error))
                    continue
                if ancillary:
                    seconds, ns = _stamp(ancillary[0][2])
                    stamp = seconds * 1_000_000_000 + ns - self._offset
                else:
                    stamp = _now() - start
                    if connection.kernel_stamps and data:
                        health.unstamped += 1
                flight = connection.flight
                if flight is not None and flight.fast == CLEAN:
                    size = len(data)
                    prefix = flight.framing[size]
                    if (
                        data.startswith(prefix)
                        and data.find(b"\n", len(prefix)) == size - 4
                        and data[-3] == 10
                    ):
                        if flight.counts is None:
                            marker = flight.marker
                            at = data.find(marker)
                            if at >= 0 and data[at + len(marker)] != 34:
                                flight.stamps.append(stamp)
                                flight.last = data
                                chunks += 1
                                continue
                        else:
                            at = data.rfind(COUNT_KEY) + 20
                            if at > 19:
                                try:
                                    count = int(data[at : data.find(b",", at)])
                                except ValueError:
                                    count = 0
                                if count > flight.count and (flight.cumulative or flight.shows(data)):
                                    flight.count = count
                                    flight.counts.append(count)
                                    flight.stamps.append(stamp)
                                    flight.last = data
                                    chunks += 1
                                    continue
                chunks += self._unusual(connection, flight, data, stamp)
            entered = _now() - start
            if stamp:
                lag.add(entered - (stamp if kernel else returned), len(ready))
            if chunks != arrived:
                self.quiet_since = entered
            if self.sending:
                self.send_due(entered)
            if entered >= tick:
                health.chunks = chunks
                if self._tick(entered):
                    break
                tick = entered + TICK_NS
                self._nap_s = self._nap(chunks)
            elif not ready:
                self._idle_moment()
        health.chunks = chunks
        if not (self.stalled or self.interrupted):
            self.find_out()
        if self.stalled:
            self.abandon("stalled", "no token on any connection")
        else:
            self.abandon("interrupted", "the round was ended")

    def _merged(self, flight: Flight, lost: int, stamp: int, prior: int, *, first: bool) -> None:
        """Token events without a stamp of their own: how far off can they be, and is it the client's doing?

        They came after the read before, and after the poll before, unless that read left them behind. When
        this poll found nothing at first, they most likely came together just before it ended, or as much
        earlier as this thread was kept from running; but a machine that held up all of it does not count
        that, so the bound reaches back to where the poll began.
        """
        health = self.health
        kept = self._run_delay.take_ns()
        # A poll may also have taken long because this thread was interrupted in it: what arrived before it began
        # was there at first.
        waited = self._blocked and stamp >= self._entered
        looked = self._entered if waited else self._before
        reach = max(0, stamp - (prior if flight.filled else max(prior, looked)))
        health.merged += lost
        health.lost.add(reach, lost)
        if first:
            health.lost_first.add(reach)
        since = self._returned if waited else looked
        if stamp - max(prior, since - kept) > LATE_NS:
            health.late_merged += lost

    def _unusual(self, connection: Connection, flight: Flight | None, data: bytes, stamp: int) -> int:
        """Whatever is not one usual chunk; the number of token events in it."""
        if flight is None:
            self.hung_up(connection)
            return 0
        before = len(flight.stamps)
        try:
            if data:
                flight.read(data, stamp)
                complete = flight.over
            else:
                last = max(flight.prior, flight.stamps[-1] if before else 0)
                flight.close(last or stamp)
                complete = flight.response.eof()
                stamp = last if complete and last else stamp  # a closed connection has no stamp of its own
        except EncodingRefused as error:
            self.lost(connection, "content_encoding", str(error), stamp)
            return 0
        except ProtocolError as error:
            self.lost(connection, "protocol_error", str(error), stamp)
            return 0
        tokens = len(flight.stamps) - before
        if tokens > 1:
            prior = max(flight.prior, flight.sent or 0, flight.stamps[before - 1] if before else 0)
            self._merged(flight, tokens - 1, stamp, prior, first=not before)
        flight.prior = stamp
        flight.filled = len(data) == READ_BYTES
        if complete:
            self.finish(connection, stamp)
        elif not data:
            self.lost(connection, "closed_early", "the server closed the connection", stamp)
        return tokens

    def _wait(self, now: int, tick: int) -> float:
        """Seconds to poll for.

        epoll counts whole milliseconds, so the last one before a request is due is waited for in `select`.
        """
        until = tick
        if self.sending and self.traffic.mode == "open":
            due = self.traffic.peek_due_ns()
            if due is not None:
                until = min(until, due)
        left = until - now
        if left <= 0:
            return 0.0
        if until == tick or left > 2 * POLL_NS:
            return max(1, left // POLL_NS) * 1e-3
        if isinstance(self.poller, Poll):
            time.sleep(left * 1e-9)
        elif self.poller.fileno() < FD_SETSIZE:
            select.select([self.poller], [], [], left * 1e-9)
        return 0.0

    def _idle_moment(self) -> None:
        """Nothing is there to read: prepare requests, and in a very long round settle some."""
        if self.traffic.hungry:
            self.traffic.prepare()
        if self.ledger.crowded:
            self.ledger.relieve(SETTLE)

    def _due_within(self, now: int, seconds: float) -> bool:
        """Whether an open loop has to send something before a nap would be over."""
        if not self.sending or self.traffic.mode != "open":
            return False
        due = self.traffic.peek_due_ns()
        return due is not None and due < now + seconds * 1e9 + POLL_NS

    def _nap(self, chunks: int) -> float:
        """Seconds to sleep after the first chunk of a burst, so that one pass reads all of it; 0 for not at
        all.

        The streams of a batch tick together, and each wake-up costs more than reading a chunk. Kernel
        stamps do not care when they are read, as long as no stream has its next chunk before: a nap is a
        tenth of the mean gap at most, none where stamps were lost in the last second, and none where
        requests are so short that it would hold up a closed loop.
        """
        arrived = chunks - self._chunks_before
        self._chunks_before = chunks
        if self.health.merged > self._merged_before:
            self._merged_before = self.health.merged
            self._awake_ticks = AWAKE_TICKS
        elif self._awake_ticks:
            self._awake_ticks -= 1
        if (
            self._awake_ticks
            or self.health.stamp_source != "kernel"
            or self.in_flight < NAP_STREAMS
            or arrived < NAP_STREAMS
            or chunks < NAP_CHUNKS * self.sent
        ):
            return 0.0
        gap_s = TICK_NS * 1e-9 * self.in_flight / arrived
        return min(NAP_S, gap_s / 10)

    def _tick(self, now: int) -> bool:
        """Every 50 ms; True when the round is to end."""
        health = self.health
        self.watch_over(now)
        keep_warm(self.api.kind)
        self._run_delay.take_ns()
        if health.stamp_source == "kernel":
            offset = read_offset(10)
            moved = abs(offset.ns + self.start - self._offset)
            if moved > STEP_NS:
                health.clock_steps += 1
            if moved > offset.uncertainty_ns + health.clock_uncertainty_ns:
                self._offset = offset.ns + self.start
        if self._progress is not None:
            elapsed = now / 1e9 / self.traffic.time_scale
            self._progress(Progress(elapsed, self.sent, self.in_flight, self.ledger.finished, health.chunks))
        if self._interrupt is not None and self._interrupt():
            self.interrupted = True
        elif self.in_flight and now - self.quiet_since > self._stall_ns:
            self.stalled = True
        return self.interrupted or self.stalled


__all__ = ["Progress", "Samples", "run"]
