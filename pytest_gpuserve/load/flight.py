"""A request on its way, and the slow, general reading of its answer.

The client reads the usual chunk itself (`client`); whatever is not usual comes here: heads, split or merged
chunks, first tokens, finish, usage and error events, comments.
"""

from __future__ import annotations

from array import array

from .events import (
    GRAMMARS,
    Event,
    Grammar,
    Splitter,
    answers,
    begins,
    is_usage,
    last_count,
    listed_tokens,
    read,
    stops,
)
from .wire import LOWER, UPPER, Body, Framing, ProtocolError, Response

HELD = 64
"""Unusual events kept whole; of more than that the first and the last are kept."""
ERROR_BODY = 64 << 10
"""Bytes kept of a body that is not a stream."""


CHAT = GRAMMARS["chat"]
"""The one that tells reasoning from the answer."""

GENERAL, CLEAN, PART = range(3)
"""How the next read may be taken. `CLEAN`: tokens have begun and it starts at a chunk's and an event's first
byte. `PART`: so it would with `carry` before it. `GENERAL`: it may be anything."""


class Flight:
    """One request and what has come of it. Times are ns since the round's clock started."""

    __slots__ = (
        "answer_from",
        "body",
        "carry",
        "count",
        "counts",
        "cumulative",
        "detail",
        "done",
        "due",
        "end",
        "failure",
        "fast",
        "filled",
        "first_event",
        "framing",
        "grammar",
        "held",
        "index",
        "input_asked",
        "last",
        "listed",
        "marker",
        "output_asked",
        "prior",
        "reasoning_from",
        "response",
        "sent",
        "splitter",
        "stamps",
        "suspect",
    )

    def __init__(
        self, index: int, due: int, input_asked: int | None, output_asked: int, kind: str, counted: bool
    ) -> None:
        self.index = index
        self.due = due
        self.input_asked = input_asked
        self.output_asked = output_asked
        self.grammar: Grammar = GRAMMARS[kind]
        self.cumulative = kind == "generate"
        """Each event repeats all of the text: only a count that grew makes it a token event."""
        self.marker = self.grammar.marker
        self.framing: Framing = LOWER
        self.fast = GENERAL
        self.carry = b""
        """The beginning of a chunk, raw, under `PART`."""
        self.response = Response()
        self.splitter = Splitter()
        self.stamps = array("q")
        self.counts: array[int] | None = array("q") if counted else None
        """Tokens up to each token event; None where the events do not say, which the first one shows."""
        self.count = 0
        """Output tokens so far, as the engine says."""
        self.listed: int | None = 0
        """Tokens so far that the events list one by one; None once it is known that they do not."""
        self.first_event: bytes | None = None
        self.last: bytes | None = None
        """The bytes of the last token event, its chunk framing perhaps still around it."""
        self.held: list[bytes] = []
        self.suspect: bytes | None = None
        """The first event that mentions an error."""
        self.body = b""
        """What came instead of a stream."""
        self.reasoning_from: int | None = None
        """Index of the first token event that is reasoning."""
        self.answer_from: int | None = None
        """Index of the first one that is not."""
        self.done = False
        self.filled = False
        """The read before took all that one takes, and may have left something behind."""
        self.prior = 0
        """Stamp of the read before."""
        self.sent: int | None = None
        self.end = 0
        self.failure: str | None = None
        self.detail = ""

    def read(self, data: bytes, stamp: int) -> int:
        """Read what is not one usual chunk; the number of token events in it. Raises ProtocolError."""
        before = len(self.stamps)
        while data:
            data = self._several(data, stamp) if self.fast else self._one(data, stamp)
        response = self.response
        if response.complete:
            self.flush(stamp)
            if response.leftover:
                raise ProtocolError("bytes after the end of the response")
        return len(self.stamps) - before

    def _several(self, data: bytes, stamp: int) -> bytes:
        """Whole chunks of whole events in any number, and perhaps a part of one, which waits; the rest.

        JSON holds no raw CRLF, so splitting there gives size, event, size, event, ..., and what is left.
        """
        parts = (self.carry + data if self.carry else data).split(b"\r\n")
        sizes, stamps = self.framing.sizes, self.stamps
        at, left = 0, len(parts) - 1
        while at + 1 < left:
            event = parts[at + 1]
            size = len(event)
            if parts[at] != sizes[size]:
                break
            if event.find(b"\n") == size - 2 and event[-1:] == b"\n" and self._usual(event):
                stamps.append(stamp)
                self.last = event
            elif event.endswith(b"\n\n"):
                for each in event.split(b"\n\n"):
                    if each:
                        self._event(each, stamp)
            else:
                break
            at += 2
        rest = b"\r\n".join(parts[at:])
        if at + 1 >= left:
            self.carry = rest
            self.fast = PART if rest else CLEAN
            return b""
        self.carry = b""
        self.fast = GENERAL
        return rest

    def _usual(self, event: bytes) -> bool:
        """A single event that is a token event beyond doubt; takes its count."""
        if self.counts is None or not self.cumulative:
            found = event.find(self.marker)
            if found < 0 or event[found + len(self.marker)] == 34:
                return False
        if self.counts is not None:
            count = last_count(event) or 0
            if count <= self.count:
                return False
            self.count = count
            self.counts.append(count)
        return True

    def _one(self, data: bytes, stamp: int) -> bytes:
        """Anything, up to the end of a chunk; what follows it."""
        response = self.response
        piece, rest = response.feed(data)
        if piece:
            if 200 <= response.status < 300 and b"application/json" not in response.content_type:
                try:
                    for event in self.splitter.feed(piece):
                        self._event(event, stamp)
                except ValueError as error:
                    raise ProtocolError(str(error)) from None
            elif len(self.body) < ERROR_BODY:
                self.body += piece
        if response.upper:
            self.framing = UPPER
        if self._settled and response.at_boundary and not self.splitter.rest:
            self.fast = CLEAN
        return rest

    @property
    def _settled(self) -> bool:
        """What the quick search does not look for is known: the first that is seen, and that no event lists its
        tokens."""
        return (self.answer_from is not None or self.reasoning_from is not None) and self.listed is None

    @property
    def over(self) -> bool:
        """The response has ended. One that only its connection ends is over with `[DONE]`: some servers leave
        it open."""
        return self.response.complete or (self.done and self.response.body is Body.CLOSE)

    @property
    def turned(self) -> bool:
        """The last token event so far is reasoning and answer in one, which the quick search takes for
        reasoning."""
        return self.reasoning_from is not None and self.last is not None and answers(self.last)

    def shows(self, data: bytes) -> bool:
        """Whether the event has visible text, in the usual spelling."""
        at = data.find(self.marker)
        return at >= 0 and data[at + len(self.marker)] != 34

    def close(self, stamp: int) -> int:
        """The connection has ended; the number of token events that come of what waited. Raises
        ProtocolError."""
        carry, self.carry, self.fast = self.carry, b"", GENERAL
        tokens = self.read(carry, stamp) if carry else 0
        return tokens + (self.flush(stamp) if self.response.status else 0)

    def flush(self, stamp: int) -> int:
        """The stream has ended: an event without its blank line counts with the last byte."""
        before = len(self.stamps)
        for event in self.splitter.flush():
            self._event(event, stamp)
        return len(self.stamps) - before

    def _event(self, raw: bytes, stamp: int) -> None:
        event = read(raw, self.grammar)
        if event.comment:
            return
        if event.done:
            self.done = True
            return
        count = event.count
        if self.listed is not None and not self.cumulative:
            self.listed += listed_tokens(raw)
            if count is None and self.listed:
                count = self.listed
        if not self._is_token(event, count, raw):
            self._hold(raw)
            return
        if not self.listed or event.count is not None:
            self.listed = None
        if event.reasoning and self.reasoning_from is None:
            self.reasoning_from = len(self.stamps)
        if self.answer_from is None and (event.answer or self.grammar is not CHAT):
            self.answer_from = len(self.stamps) - self.turned
        if event.marker is not None:
            self.marker = event.marker
        if self.first_event is None:
            self.first_event = raw
            if count is None:
                self.counts = None
            elif self.counts is None:
                self.counts = array("q")
        if self.counts is not None:
            self.counts.append(-1 if count is None else count)
            self.count = count or self.count
        self.stamps.append(stamp)
        self.last = raw

    def _is_token(self, event: Event, count: int | None, raw: bytes) -> bool:
        """By the count where there is one, for a parser may hold its text back; else by the text."""
        if count is None:
            return event.text
        if not self.stamps and not event.text:
            if self.counts is None and (count == 0 or begins(raw)):
                self.counts = array("q")  # a count before the end: it will be on every chunk
            if stops(raw):
                return False  # it ended at once: counted, and nothing was ever to be seen
        if self.counts is not None and count > self.count:
            return event.text or not is_usage(raw)
        return event.text and not self.cumulative

    def _hold(self, raw: bytes) -> None:
        if self.suspect is None and b"error" in raw:
            self.suspect = raw
        self.held.append(raw)
        if len(self.held) > HELD:
            del self.held[HELD // 4]
