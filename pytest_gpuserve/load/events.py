"""Server-sent events, told apart by their bytes: no JSON is decoded while the clock runs.

JSON escapes quotes inside strings, so the bytes `"text":"` followed by anything but a quote can only be a
key with a value that is not empty. What the bytes say is checked against the decoded first and last event
afterwards (`settle`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import Struct

COUNT_KEY = b'"completion_tokens":'
"""In `usage` of the OpenAI formats and in `meta_info` of `generate`."""

_COUNT = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*["{]')
_STOPPED = re.compile(rb'"finish_reason"\s*:\s*(?:"stop"|\{[^{}]*"type"\s*:\s*"stop")')
_LIST = re.compile(rb'"(?:token_ids|token_logprobs)"\s*:\s*\[([^\[\]]+)\]')
_LOGPROBS = re.compile(rb'"logprobs"\s*:\s*\{')
_CR = re.compile(rb"\r\n?")
_DONE = re.compile(rb"^data: ?\[DONE\]\s*$", re.MULTILINE)
_ANSWER = re.compile(rb'"content"\s*:\s*"(?!")|"tool_calls"\s*:\s*\[(?!\s*\])')
_NO_DATA = (b":", b"event:", b"id:", b"retry:")
"""Lines that carry nothing; an event of nothing else is none, as the standard has it."""
_FAILED = re.compile(rb"event: ?error")
_BOM = b"\xef\xbb\xbf"


class Grammar(NamedTuple):
    """What a token event of one kind of API looks like."""

    marker: bytes
    """What stands before the text in the usual spelling, opening quote included."""
    text: re.Pattern[bytes]
    """A value that is not empty, in any spelling. The group `key` holds the name when it is a string."""


GRAMMARS = {
    "generate": Grammar(b'"text":"', re.compile(rb'"(?P<key>text)"\s*:\s*"(?!")')),
    "completions": Grammar(b'"text":"', re.compile(rb'"(?P<key>text)"\s*:\s*"(?!")')),
    "chat": Grammar(
        b'"content":"',
        re.compile(
            rb'"(?P<key>content|reasoning_content|reasoning)"\s*:\s*"(?!")'
            rb'|"(?P<tools>tool_calls)"\s*:\s*\[(?!\s*\])'
        ),
    ),
}


class Event(Struct, frozen=True):
    """What the bytes of one event say."""

    done: bool = False
    """It is `data: [DONE]`."""
    text: bool = False
    """It carries text, reasoning or a tool call."""
    reasoning: bool = False
    """It carries reasoning, perhaps with the first of the answer."""
    answer: bool = False
    """It carries something that is not reasoning."""
    marker: bytes | None = None
    """The spelling in which this server writes its text, for the quick search in the events that follow."""
    count: int | None = None
    """Output tokens so far, where the event says so."""
    comment: bool = False
    """It has no data: comments, or `retry:` and the like alone."""


DONE = Event(done=True)
COMMENT = Event(comment=True)


def read(event: bytes, grammar: Grammar) -> Event:
    """Classify one event: the lines before a blank one, line ends normalised to LF."""
    if event.startswith(_NO_DATA) and _carries_nothing(event.split(b"\n")):
        return COMMENT
    if b"[DONE]" in event and _DONE.search(event):
        return DONE
    count = last_count(event)
    found = grammar.text.search(event)
    if not found:
        return Event(count=count)
    key = found["key"]
    reasoning = key is not None and key.startswith(b"reasoning")
    return Event(
        text=True,
        reasoning=reasoning,
        answer=not reasoning or answers(event),
        marker=found[0] if key is not None else None,
        count=count,
    )


def _carries_nothing(lines: list[bytes]) -> bool:
    return all(line.startswith(_NO_DATA) and not _FAILED.match(line) for line in lines)


def answers(event: bytes) -> bool:
    """An event of a stream that reasons carries something of the answer."""
    return _ANSWER.search(event) is not None


def is_usage(event: bytes) -> bool:
    """The usage at the end, which is no token event even when it counts tokens that no chunk showed."""
    return _NO_CHOICES.search(event) is not None


def begins(event: bytes) -> bool:
    """An event with a choice that has not finished."""
    return b'"choices"' in event and not _NO_CHOICES.search(event) and not _FINISHED.search(event)


def stops(event: bytes) -> bool:
    """The model ended its answer."""
    return _STOPPED.search(event) is not None


def last_count(event: bytes) -> int | None:
    """The last `completion_tokens` of an event; `usage` and `meta_info` stand at its end."""
    at = event.rfind(COUNT_KEY)
    if at >= 0:
        at += len(COUNT_KEY)
        try:
            return int(event[at : event.index(b",", at)])
        except ValueError:
            pass
    at = event.rfind(b'"completion_tokens"')
    found = _COUNT.match(event, at) if at >= 0 else None
    return int(found[1]) if found else None


def listed_tokens(event: bytes) -> int:
    """Tokens that an event lists one by one: `token_ids`, or log probabilities in either OpenAI format; 0
    where it lists none."""
    found = _LIST.search(event)
    if found:
        return found[1].count(b",") + 1
    if not _LOGPROBS.search(event):
        return 0
    return event.count(b'"top_logprobs"') or event.count(b'"logprob"')


class Splitter:
    """Cuts a byte stream into events, wherever the reads and chunks happen to end."""

    __slots__ = ("rest",)

    LIMIT = 64 << 20

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes. Raises ValueError when no event ends within `LIMIT` bytes."""
        data = self.rest + data if self.rest else data
        if b"\r" in data:
            held = data.endswith(b"\r") and not data.endswith(b"\r\r")  # the LF of it may be on its way
            data = _CR.sub(b"\n", data[:-1] if held else data) + (b"\r" if held else b"")
        *events, self.rest = data.split(b"\n\n")
        if len(self.rest) > self.LIMIT:
            raise ValueError("an event without an end")
        return [stripped for event in events if (stripped := event.strip(b"\n").removeprefix(_BOM))]

    def flush(self) -> list[bytes]:
        """What stands without its blank line when the stream ends."""
        rest, self.rest = self.rest.strip(b"\r\n").removeprefix(_BOM), b""
        return [rest] if rest else []
