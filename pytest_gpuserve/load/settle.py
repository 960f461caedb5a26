"""After the clock: the kept events are decoded, and each request gets its counts and its outcome."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from .sample import Sample

if TYPE_CHECKING:
    from .api import Api
    from .flight import Flight

FAILED_FINISHES = frozenset({"abort", "aborted", "error", "cancelled", "content_filter_error"})
BROKEN = frozenset({"closed_early", "connection_reset", "stalled", "interrupted"})
"""What can become of a connection whose stream had said all of it."""
SHOWN = ("text", "content", "reasoning_content", "reasoning", "tool_calls")
_strictly = msgspec.json.Decoder().decode


def _decode(raw: bytes) -> Any:
    """JSON as servers write it: also with half an emoji (a lone surrogate), a log probability of -Infinity, or
    bytes that are no UTF-8. Raises ValueError."""
    try:
        return _strictly(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(raw.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


class _Story:
    """What the decoded events of one stream say together."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.finish: str | None = None
        self.error: str | None = None
        self.unreadable: str | None = None
        self.shows = False
        """Some event carries text, reasoning, a tool call or a count of tokens."""

    def add(self, raw: bytes) -> None:
        name, payload = _payload(raw)
        if payload is None:
            if name == b"error":
                self.error = self.error or "an error event without words"
            else:
                self._not_an_event(raw)
            return
        if payload in (b"", b"[DONE]"):
            return
        try:
            said = _decode(payload)
        except ValueError as error:
            if name == b"error":
                self.error = self.error or payload.decode("utf-8", "replace")[:300]
                return
            self.unreadable = self.unreadable or f"{error}: {payload[:80]!r}"
            return
        if not isinstance(said, dict):
            self.unreadable = self.unreadable or f"not an object: {payload[:80]!r}"
            return
        if name == b"error" or _is_error(said):
            self.error = self.error or error_text(said)
            return
        self.shows = self.shows or _shows(said)
        usage = said.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        meta = said.get("meta_info")
        if isinstance(meta, dict):
            self.meta = meta
            self._finished(meta.get("finish_reason"))
        for choice in _choices(said):
            self._finished(choice.get("finish_reason"))

    def _not_an_event(self, raw: bytes) -> None:
        """Some servers put an error as it is where a stream is due."""
        try:
            said = _decode(raw)
        except ValueError:
            said = None
        if isinstance(said, dict) and _is_error(said):
            self.error = self.error or error_text(said)
        else:
            self.unreadable = self.unreadable or f"not an event: {raw[:80]!r}"

    def _finished(self, reason: Any) -> None:
        if isinstance(reason, dict):
            if reason.get("type") == "abort" and reason.get("message"):
                self.error = self.error or str(reason["message"])[:300]
            reason = reason.get("type")
        if isinstance(reason, str) and reason:
            self.finish = reason


def _is_error(said: dict[str, Any]) -> bool:
    return bool(said.get("error")) or said.get("object") == "error"


def _shows(said: dict[str, Any]) -> bool:
    counted = said.get("meta_info") or said.get("usage")
    if isinstance(counted, dict) and counted.get("completion_tokens"):
        return True
    if said.get("text"):
        return True
    for choice in _choices(said):
        if choice.get("token_ids") or choice.get("logprobs"):
            return True
        shown = choice.get("delta", choice)
        if isinstance(shown, dict) and any(shown.get(key) for key in SHOWN):
            return True
    return False


def _choices(said: dict[str, Any]) -> list[dict[str, Any]]:
    choices = said.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def error_text(said: dict[str, Any]) -> str:
    """The words of an error object, in any of the shapes that engines use."""
    inner = said.get("error", said)
    if isinstance(inner, dict):
        message = inner.get("message") or inner.get("detail") or inner
        return str(message)[:300]
    return str(said.get("message") or inner)[:300]


def _payload(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """(event name, data); data is None when there is no data line."""
    name: bytes | None = None
    lines: list[bytes] = []
    for line in raw.split(b"\n"):
        key, _, value = line.partition(b":")
        if key == b"event":
            name = value.strip()
        elif key in (b"data", b"error"):
            lines.append(value.removeprefix(b" "))
            name = b"error" if key == b"error" else name
    return name, b"\n".join(lines).strip() if lines else None


def _unframed(raw: bytes) -> bytes:
    """An event without the chunk framing that a whole read still has."""
    if raw.startswith((b"data:", b"event:", b"id:", b":")):
        return raw
    head, _, rest = raw.partition(b"\r\n")
    return rest.strip() if head.isalnum() else raw


def settle(flight: Flight, api: Api) -> Sample:
    """The outcome of a finished flight."""
    story = _Story()
    for raw in flight.held if flight.suspect is None else [*flight.held, flight.suspect]:
        story.add(raw)
    misread = False
    if flight.first_event is not None:
        first = _Story()
        first.add(flight.first_event)
        misread = not first.shows and first.error is None and first.unreadable is None
        story.unreadable = story.unreadable or first.unreadable
    if flight.last is not None:
        final = _Story()
        final.add(_unframed(flight.last))
        misread = misread or (not final.shows and final.error is None and final.unreadable is None)
        story.unreadable = story.unreadable or final.unreadable
        story.error = story.error or final.error
        story.finish = story.finish or final.finish
        story.usage = max(story.usage, final.usage, key=_so_far)
        story.meta = max(story.meta, final.meta, key=_so_far)
    if flight.answer_from is None and flight.turned:
        flight.answer_from = len(flight.stamps) - 1
    failure, detail = _outcome(flight, api, story)
    if misread and failure is None:
        failure, detail = "misread", "the client took an event for a token that is none"
    counts = {**story.usage, **story.meta}
    stamps = flight.stamps
    known = [c for c in flight.counts or () if c >= 0]
    return Sample(
        index=flight.index,
        due_ns=flight.due,
        sent_ns=flight.sent,
        first_ns=stamps[0] if stamps else None,
        answer_ns=None if flight.answer_from is None else stamps[flight.answer_from],
        last_ns=stamps[-1] if stamps else None,
        end_ns=flight.end,
        stamps=stamps,
        counts=flight.counts,
        input_asked=flight.input_asked,
        output_asked=flight.output_asked,
        input_tokens=_count(counts, "prompt_tokens"),
        output_tokens=_count(counts, "completion_tokens")
        if counts
        else (max(known) if known and not failure else None),
        cached_tokens=_cached(counts),
        verify_passes=_count(counts, "spec_verify_ct"),
        reasoning_events=_reasoning_events(flight),
        finish_reason=story.finish,
        failure=failure,
        detail=detail,
    )


def _outcome(flight: Flight, api: Api, story: _Story) -> tuple[str | None, str]:
    """The failure's name and words, the most telling first; (None, '') for success."""
    response = flight.response
    if response.status and not 200 <= response.status < 300:
        return f"http_{response.status}", _body_text(flight.body)
    if flight.body:
        said = _Story()
        said.add(b"data: " + flight.body)
        if said.error is not None:
            return "in_band_error", said.error
        return "not_a_stream", flight.body[:200].decode("utf-8", "replace")
    if story.error is not None and story.finish not in FAILED_FINISHES:
        return "in_band_error", story.error
    ended = flight.done and story.finish is not None
    if flight.failure is not None and not (flight.failure in BROKEN and ended):
        return flight.failure, flight.detail
    if story.finish in FAILED_FINISHES:
        return "aborted", story.error or f"finish_reason {story.finish}"
    if not flight.stamps:
        return ("no_token_events", story.unreadable or "the stream ended without a token")
    if story.unreadable is not None:
        return "unreadable", story.unreadable
    if story.finish is None:
        return "no_finish_reason", "the stream ended without a finish_reason"
    if api.promises_done and not flight.done:
        return "no_done", "the stream ended without [DONE]"
    return None, ""


def _reasoning_events(flight: Flight) -> int:
    """Token events from the first that is reasoning to the first that is not."""
    if flight.reasoning_from is None:
        return 0
    end = len(flight.stamps) if flight.answer_from is None else flight.answer_from
    return max(0, end - flight.reasoning_from)


def _body_text(body: bytes) -> str:
    try:
        said = _decode(body)
    except ValueError:
        said = None
    return error_text(said) if isinstance(said, dict) else body[:300].decode("utf-8", "replace")


def _count(counts: dict[str, Any], key: str) -> int | None:
    value = counts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _so_far(counts: dict[str, Any]) -> int:
    return _count(counts, "completion_tokens") or 0


def _cached(counts: dict[str, Any]) -> int | None:
    """`cached_tokens` of meta_info, or in `prompt_tokens_details` of usage."""
    details = counts.get("prompt_tokens_details")
    if isinstance(details, dict):
        return _count(details, "cached_tokens")
    return _count(counts, "cached_tokens")
