"""The events of a stream, as servers write them, and what a stream made of them is expected to give."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DONE = "data: [DONE]"


def sse(said: dict[str, Any]) -> str:
    return "data: " + json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def chat(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> str:
    return sse({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def plain(text: str, finish: str | None = None, **more: Any) -> str:
    return sse({"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more})


def generated(text: str, count: int, finish: dict[str, Any] | None = None, **more: Any) -> str:
    meta = {"finish_reason": finish, "prompt_tokens": 8, "completion_tokens": count, **more}
    return sse({"text": text, "meta_info": meta})


def used(completion: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 8, "completion_tokens": completion, "total_tokens": 8 + completion, **more}


def usage(completion: int, **more: Any) -> str:
    return sse({"choices": [], "usage": used(completion, **more)})


ROLE = chat({"role": "assistant", "content": ""})
A, B = chat({"content": "a"}), chat({"content": "b"})
END = chat({"content": "b"}, "stop")
TAIL = ((91, usage(2)), (91, DONE))
SPECULATED = {"out": 8, "tokens_in_first_chunk": 4, "tpot_ms": 20, "itl_ms": [40 / 3] * 3 + [40]}
"""Four tokens at 40 ms, three at 80, one at 120."""


def ids(text: str, tokens: int, finish: str | None = None, **more: Any) -> str:
    choice = {"text": text, "token_ids": list(range(tokens)), "logprobs": None, "finish_reason": finish}
    return sse({"choices": [choice], **more})


def chances(text: str, tops: list[int], finish: str | None = None) -> str:
    """A token for each of `tops`, with so many alternatives beside it; texts are made to mislead."""
    said = {"token": '"logprob":[', "logprob": -0.1, "bytes": [93, 44]}
    content = [{**said, "top_logprobs": [said] * top} for top in tops]
    choice = {"delta": {"content": text}, "logprobs": {"content": content}, "finish_reason": finish}
    return sse({"choices": [choice]})


SMILE = chat({"content": "\U0001f600"}).encode()
Items = list[tuple[float, str | bytes]]


class Relative(NamedTuple):
    kind: str
    items: Items
    expected: dict[str, Any]
    """Figures; `out`, `prompt`, `cached`; `failure`, where there is one; `partial` token events of it."""
    engine: str = "openai"


TWO = {"out": 2, "ttft_ms": 60, "e2e_ms": 90, "tpot_ms": 30, "itl_ms": [30], "chunk_gap_ms": [30]}
"""Two tokens at 60 and 90 ms."""
UNKNOWN = {"tpot_ms": None, "itl_ms": None, "tokens_in_first_chunk": None}
