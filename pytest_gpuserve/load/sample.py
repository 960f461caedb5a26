"""One request of a round, as far as it got: before any statistics.

Times are integers in nanoseconds of real time since the round's clock started. Unknown is None.
"""

from __future__ import annotations

from array import array

from msgspec import Struct, field


class Sample(Struct, kw_only=True):
    """One request, as far as it got."""

    index: int
    due_ns: int
    """When it should have been sent: its arrival time in an open loop, else the end of the one before it."""
    sent_ns: int | None = None
    """When its first byte was handed to the socket."""
    first_ns: int | None = None
    """First token event."""
    answer_ns: int | None = None
    """First token event that is not reasoning."""
    last_ns: int | None = None
    """Last token event."""
    end_ns: int | None = None
    """Last byte, or the moment of failure."""
    stamps: array[int] = field(default_factory=lambda: array("q"))
    """When each token event arrived."""
    counts: array[int] | None = None
    """Output tokens up to and including each token event, where the engine says so."""
    input_asked: int | None = None
    output_asked: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    """As the engine counted them."""
    cached_tokens: int | None = None
    verify_passes: int | None = None
    reasoning_events: int = 0
    finish_reason: str | None = None
    failure: str | None = None
    """None for success, else one of the reasons in docs/load-client.md."""
    detail: str = ""
    """What the server or the system said, for people."""

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def tokens(self) -> array[int] | None:
        """Output tokens up to and including each token event, exactly; None when that is not known.

        Known where the engine counts in every event, and where there are as many token events as tokens.
        """
        if not self.stamps or self.output_tokens is None:
            return None
        if self.counts is not None and self.counts[-1] == self.output_tokens and min(self.counts) >= 0:
            return self.counts
        if len(self.stamps) == self.output_tokens:
            return array("q", range(1, self.output_tokens + 1))
        return None
