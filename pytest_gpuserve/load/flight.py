"""A request on its way, and the slow, general reading of its answer.

The client reads the usual chunk itself (`client`); whatever is not usual comes here: heads, split or merged
chunks, first tokens, finish, usage and error events, comments.
"""

from __future__ import annotations

import re
from array import array

from .events import GRAMMARS, Event, Grammar, Splitter, read
from .wire import LOWER, UPPER, Framing, ProtocolError, Response

HELD = 64
"""Unusual events kept whole; of more than that the first and the last are kept."""
ERROR_BODY = 64 << 10
"""Bytes kept of a body that is not a stream."""


_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
"""The usage at the end, which is no token event even when it counts tokens that no chunk showed."""


class Flight:
    """One request and what has come of it. Stamps are monotonic ns."""

    __slots__ = (
        "answer_from",
        "body",
        "count",
        "counts",
        "cumulative",
        "detail",
        "done",
        "due",
        "end",
        "failure",
        "fast",
        "first_event",
        "framing",
        "grammar",
        "held",
        "index",
        "input_asked",
        "last",
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
        self.fast = False
        """The next read may be one usual chunk: the stream stands at a chunk and event boundary, tokens
        have begun."""
        self.response = Response()
        self.splitter = Splitter()
        self.stamps = array("q")
        self.counts: array[int] | None = array("q") if counted else None
        """Tokens up to each token event; None where the events do not say, which the first one shows."""
        self.count = 0
        """Output tokens so far, as the engine says."""
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
        self.prior = 0
        """Stamp of the read before."""
        self.sent: int | None = None
        self.end = 0
        self.failure: str | None = None
        self.detail = ""

    def feed(self, data: bytes, stamp: int) -> int:
        """Read anything; the number of token events in it. Raises ProtocolError."""
        response = self.response
        pieces = response.feed(data)
        tokens = 0
        if pieces:
            if 200 <= response.status < 300 and b"application/json" not in response.content_type:
                try:
                    for event in self.splitter.feed(pieces[0] if len(pieces) == 1 else b"".join(pieces)):
                        tokens += self._event(event, stamp)
                except ValueError as error:
                    raise ProtocolError(str(error)) from None
            elif len(self.body) < ERROR_BODY:
                self.body += b"".join(pieces)
        if response.complete:
            tokens += self.flush(stamp)
            if response.leftover:
                raise ProtocolError("bytes after the end of the response")
        self.fast = bool(self.stamps) and response.at_boundary and not self.splitter.rest
        if response.upper:
            self.framing = UPPER
        return tokens

    def flush(self, stamp: int) -> int:
        """The stream has ended: an event without its blank line counts with the last byte."""
        return sum(self._event(event, stamp) for event in self.splitter.flush())

    def _event(self, raw: bytes, stamp: int) -> int:
        event = read(raw, self.grammar)
        if event.comment:
            return 0
        if event.done:
            self.done = True
            return 0
        if not self._is_token(event, raw):
            self._hold(raw)
            return 0
        if event.reasoning:
            if self.reasoning_from is None:
                self.reasoning_from = len(self.stamps)
        elif self.answer_from is None and event.text:
            self.answer_from = len(self.stamps)
        if event.marker is not None:
            self.marker = event.marker
        if self.first_event is None:
            self.first_event = raw
            if event.count is None:
                self.counts = None
            elif self.counts is None:
                self.counts = array("q")
        if self.counts is not None:
            self.counts.append(-1 if event.count is None else event.count)
            self.count = event.count or self.count
        self.stamps.append(stamp)
        self.last = raw
        return 1

    def _is_token(self, event: Event, raw: bytes) -> bool:
        """By the count where there is one, for a parser may hold its text back; else by the text."""
        if event.count is None:
            return event.text
        if event.count == 0 and not self.stamps and self.counts is None:
            self.counts = array("q")  # a count of nothing: it will be on every chunk
        if self.counts is not None and event.count > self.count:
            return event.text or not _NO_CHOICES.search(raw)
        return event.text and not self.cumulative

    def _hold(self, raw: bytes) -> None:
        if self.suspect is None and b"error" in raw:
            self.suspect = raw
        self.held.append(raw)
        if len(self.held) > HELD:
            del self.held[HELD // 4]
