"""Streams drawn at random, whose answer is known because they are drawn from it: whatever the spelling, the framing
and the reads, the figures must follow."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from pytest_gpuserve.load.dialects import DIALECTS
from pytest_gpuserve.load.figures import figures
from pytest_gpuserve.load.flight import Flight
from pytest_gpuserve.load.settle import settle

from .conftest import CHUNKED, HEAD, chunk

TEXTS = ("a", " ", "\n", "\u4f60", "\U0001f600", '"text":"', '"content":""', "data: [DONE]", '\\"', "error")
NOTHING = (": ping", "retry: 10", "event: ping\ndata:")
MS = 1_000_000


class Drawn:
    """A stream of 1 to 12 token events: `items` of (ms, event), and what they say."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.kind = random.choice(("chat", "completions"))
        self.counted = random.random() < 0.4
        self.items: list[tuple[int, str]] = []
        self.stamps: list[int] = []
        self.tokens: list[int] = []
        self.answer: int | None = None
        self.separators = random.choice(((",", ":"), (", ", ": ")))
        self.usage_at = random.choice(("own", "finish") if self.counted else ("own", "finish", "never"))
        events = random.randint(1, 12)
        self.reasoning = random.randint(0, events) if self.kind == "chat" and random.random() < 0.4 else 0
        self.reasoning_key = random.choice(("reasoning", "reasoning_content"))
        self.finishes_last = random.random() < 0.4
        self.at = 10
        if self.kind == "chat":
            self.put(
                {"role": "assistant", "content": random.choice(("", None))}, "", 0 if self.counted else None
            )
        for index in range(events):
            self.token(index, last=index == events - 1)
        self.end()

    def put(self, delta: dict[str, Any], text: str, count: int | None, finish: str | None = None) -> None:
        shown: dict[str, Any] = {"delta": delta} if self.kind == "chat" else {"text": text}
        said: dict[str, Any] = {"choices": [{"index": 0, **shown, "finish_reason": finish, "logprobs": None}]}
        said["usage"] = None if count is None else {"prompt_tokens": 7, "completion_tokens": count}
        self.write(said)

    def write(self, said: dict[str, Any]) -> None:
        text = json.dumps(said, separators=self.separators, ensure_ascii=self.random.random() < 0.5)
        self.items.append((self.at, self.random.choice(("data: ", "data:")) + text))

    def token(self, index: int, *, last: bool) -> None:
        random = self.random
        self.at += random.randint(1, 30)
        several = self.counted or random.random() < 0.2
        self.tokens.append(random.choice((1, 1, 2, 4)) if several else 1)
        self.stamps.append(self.at)
        text = random.choice(TEXTS)
        seen = last or not (self.counted and random.random() < 0.2)
        reasons = index < self.reasoning
        delta: dict[str, Any] = {self.reasoning_key if reasons else "content": text}
        if not reasons and random.random() < 0.2:
            delta = {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        finish = "length" if last and self.finishes_last else None
        counts = self.counted or (finish and self.usage_at == "finish")
        self.put(delta if seen else {}, text if seen else "", sum(self.tokens) if counts else None, finish)
        if self.answer is None and not reasons and (seen or self.kind != "chat"):
            self.answer = self.at
        if random.random() < 0.2:
            self.items.append((self.at, random.choice(NOTHING)))

    def end(self) -> None:
        total = sum(self.tokens)
        self.at += self.random.randint(0, 5)
        if not self.finishes_last:
            counts = self.counted or self.usage_at == "finish"
            self.put({}, "", total if counts else None, self.random.choice(("stop", "length")))
        if self.usage_at == "own":
            self.write({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": total}})
        self.items.append((self.at, "data: [DONE]"))

    @property
    def expected(self) -> dict[str, Any]:
        """By the definitions in docs/metrics.md."""
        total, gaps = sum(self.tokens), [b - a for a, b in pairwise(self.stamps)]
        output = total if self.counted or self.usage_at != "never" else None
        one_chunk = len(self.stamps) == 1 and self.usage_at == "finish" and self.finishes_last
        known = output is not None and (self.counted or total == len(self.stamps) or one_chunk)
        rest = total - self.tokens[0]
        return {
            "output_tokens": output,
            "ttft_ms": self.stamps[0],
            "ttfot_ms": self.answer,
            "e2e_ms": self.stamps[-1],
            "chunk_gap_ms": gaps,
            "tpot_ms": sum(gaps) / rest if known and rest else None,
            "itl_ms": [gap / n for gap, n in zip(gaps, self.tokens[1:], strict=True) for _ in range(n)]
            if known
            else None,
        }


def reads(drawn: Drawn) -> list[tuple[int, bytes]]:
    """The stream as it is read: one of the framings, one of the line ends, torn or not."""
    random = drawn.random
    newline = random.choice((b"\n", b"\r\n", b"\r"))
    size = random.choice((1 << 20, 9))
    data = [(at, event.encode().replace(b"\n", newline) + 2 * newline) for at, event in drawn.items]
    if random.random() < 0.3:
        found = [(0, HEAD + b"content-length: %d\r\n\r\n" % sum(len(part) for _, part in data)), *data]
    else:
        framed = [
            (at, b"".join(chunk(part[i : i + size]) for i in range(0, len(part), size))) for at, part in data
        ]
        found = [(0, CHUNKED), *framed, (drawn.at, b"0\r\n\r\n")]
    torn = []
    for at, part in found:
        while part:
            cut = random.choice((1, 2, 7, 40, 200)) if random.random() < 0.5 else len(part)
            torn.append((at, part[:cut]))
            part = part[cut:]
    return torn


@pytest.mark.parametrize("seed", range(10))
def test_the_figures_of_a_random_stream(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        drawn = Drawn(random)
        api = DIALECTS[random.choice(("vllm", "openai"))][drawn.kind]  # type: ignore[index]
        flight = Flight(0, 0, None, 8, api.kind, api.chunk_usage)
        flight.sent = 0
        for at, data in reads(drawn):
            flight.read(data, at * MS)
        sample = settle(flight, api)
        assert sample.failure is None, (sample.detail, drawn.items)
        found = figures(sample)
        for name, value in drawn.expected.items():
            got = sample.output_tokens if name == "output_tokens" else getattr(found, name)
            assert got == (value if value is None else pytest.approx(value)), (name, drawn.items)
