"""How tokens look on the wire: SGLang's own API and OpenAI's two, as streams and in one piece."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .http import Connection
    from .profile import Serve
    from .scheduler import Generation, Scheduler

DONE = b"data: [DONE]\n\n"


def encode(value: Any) -> bytes:
    """As SGLang's orjson writes it, without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def event(value: bytes) -> bytes:
    return b"data: %b\n\n" % value


class Native:
    """`/generate`: text and ids of all tokens so far in each event, and the counts in `meta_info`.

    The parts of an event that stay the same are kept as bytes, because an event is written for every token.
    """

    def __init__(
        self, connection: Connection, scheduler: Scheduler, serve: Serve, *, stream: bool, timed: bool
    ) -> None:
        self._connection = connection
        self._scheduler = scheduler
        self._serve = serve
        self._stream = stream
        self._timed = timed
        self._text = bytearray()
        self._ids = bytearray()
        self._head = self._tail = b""

    def step(self, generation: Generation, piece: str, ids: Sequence[int], last: bool) -> None:
        first = not self._text
        self._text += piece.encode()
        self._ids += b"".join([b",%d" % token for token in ids])
        if not self._stream and not last:
            return
        if not self._head:
            self._prepare(generation)
        if first or last:
            meta = encode(self._meta(generation, first=first, last=last))
        else:
            meta = b"%b%d%b" % (self._head, generation.tokens, self._tail)
        body = b'{"text":"%b","output_ids":[%b],"meta_info":%b}' % (
            bytes(self._text),
            bytes(self._ids[1:]),
            meta,
        )
        if not self._stream:
            self._connection.reply(200, body)
        elif last:
            self._connection.end(event(body) + DONE)
        else:
            self._connection.chunk(event(body))

    def _prepare(self, generation: Generation) -> None:
        """Split `meta_info` around the count of tokens, which alone changes."""
        whole = encode(self._meta(generation, first=False, last=False))
        key = b'"completion_tokens":'
        before, _, after = whole.partition(key)
        self._head = before + key
        self._tail = after[after.index(b",") :]

    def _meta(self, generation: Generation, *, first: bool, last: bool) -> dict[str, Any]:
        serve, timed = self._serve, self._serve.timed
        cached = generation.cached
        meta: dict[str, Any] = {
            "id": generation.id,
            "finish_reason": {"type": "length", "length": generation.wanted} if last else None,
            "prompt_tokens": generation.prompt_tokens,
            "weight_version": "default",
            serve.retractions: 0,
        }
        times = times_of(generation) if self._timed else {}
        meta |= {name: times[name] for name in timed.each if name in times}
        meta |= {
            "reasoning_tokens": 0,
            "completion_tokens": generation.tokens,
            "cached_tokens": cached,
            "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
            "dp_rank": None,
        }
        if last:
            meta["e2e_latency"] = time.monotonic() - generation.arrived
            if generation.histogram:
                figures = acceptance(generation, self._scheduler.drafts)
                meta |= {name: figures[name] for name in serve.speculative}
        names = timed.last if last else timed.first if first else ()
        return meta | {name: times[name] for name in names if name in times}


def times_of(generation: Generation) -> dict[str, float]:
    """What SGLang tells of a request's times with --enable-metrics, in real seconds."""
    wall = generation.arrived_wall
    first = max(generation.first_token - generation.arrived, 0.0)
    decoding = max(time.monotonic() - generation.first_token, 1e-9)
    return {
        "queue_time": 0.0,
        "prefill_waiting_latency": 0.0,
        "prefill_launch_latency": 0.0,
        "request_received_ts": wall,
        "api_server_dispatch_finish_ts": wall,
        "response_sent_to_client_ts": wall + first,
        "request_finished_ts": wall + first + decoding,
        "decode_throughput": max(generation.tokens - 1, 1) / decoding,
    }


def acceptance(generation: Generation, drafts: int) -> dict[str, Any]:
    """What speculation yielded for one request, under every name that some version gives it."""
    passes = sum(generation.histogram)
    correct = sum(index * count for index, count in enumerate(generation.histogram))
    proposed = passes * drafts
    return {
        "spec_accept_rate": correct / proposed,
        "spec_accept_length": generation.tokens / passes,
        "spec_accept_token_num": correct,
        "spec_draft_token_num": proposed,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed,
        "spec_accepted_drafts": correct,
        "spec_proposed_drafts": proposed,
        "spec_verify_ct": passes,
        "spec_correct_drafts_histogram": generation.histogram,
        "spec_accept_histogram": generation.histogram,
    }


class OpenAI:
    """`/v1/completions` and `/v1/chat/completions`; only the shape of a choice differs between them."""

    def __init__(
        self, connection: Connection, model: str, *, chat: bool, stream: bool, usage: bool, each_usage: bool
    ) -> None:
        self._connection = connection
        self._model = model
        self._chat = chat
        self._stream = stream
        self._usage = usage
        self._each = each_usage
        self._created = int(time.time())
        self._text = ""

    def step(self, generation: Generation, piece: str, ids: Sequence[int], last: bool) -> None:
        first = not self._text
        self._text += piece
        if not self._stream:
            if last:
                self._connection.reply(200, encode(self._whole(generation)))
            return
        events = bytearray()
        if self._chat and first:
            events += self._event(
                generation, {"reasoning_content": None, "role": "assistant", "content": ""}, None
            )
        if self._chat:
            events += self._event(generation, {"reasoning_content": None, "content": piece}, None)
            if last:
                events += self._event(generation, {"reasoning_content": None}, "length")
        else:
            events += self._event(generation, piece, "length" if last else None)
        if last:
            if self._usage:
                events += event(
                    encode(self._envelope(generation) | {"choices": [], "usage": self._count(generation)})
                )
            self._connection.end(bytes(events) + DONE)
        else:
            self._connection.chunk(bytes(events))

    def _event(self, generation: Generation, content: str | dict[str, Any], finish: str | None) -> bytes:
        choice = {
            "index": 0,
            ("delta" if self._chat else "text"): content,
            "logprobs": None,
            "finish_reason": finish,
            "matched_stop": None,
        }
        whole = self._envelope(generation) | {"choices": [choice]}
        if self._each:
            whole["usage"] = self._count(generation)
        elif not self._chat:
            whole["usage"] = None
        return event(encode(whole))

    def _envelope(self, generation: Generation, kind: str = ".chunk") -> dict[str, Any]:
        return {
            "id": generation.id,
            "object": f"chat.completion{kind}" if self._chat else "text_completion",
            "created": self._created,
            "model": self._model,
        }

    def _count(self, generation: Generation) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "prompt_tokens": generation.prompt_tokens,
            "total_tokens": generation.prompt_tokens + generation.tokens,
            "completion_tokens": generation.tokens,
        }
        if self._chat:
            usage["prompt_tokens_details"] = None
        return usage | {"reasoning_tokens": 0}

    def _whole(self, generation: Generation) -> dict[str, Any]:
        said: dict[str, Any] = (
            {
                "message": {
                    "role": "assistant",
                    "content": self._text,
                    "reasoning_content": None,
                    "tool_calls": None,
                }
            }
            if self._chat
            else {"text": self._text}
        )
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": "length", "matched_stop": None}
        return self._envelope(generation, "") | {"choices": [choice], "usage": self._count(generation)}


class Internal:
    """For requests that the server makes to itself: the answer is thrown away."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done

    def step(self, generation: Generation, piece: str, ids: Sequence[int], last: bool) -> None:
        if last:
            self._done()
