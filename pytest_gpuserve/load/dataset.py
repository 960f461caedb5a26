"""Prompts from a JSONL file: conversations in the shape of ShareGPT, or nothing but lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ..errors import InputError
from ..model import Lengths, Place, Workload
from .prompts import Generated, Prompt, draw, rng, words

if TYPE_CHECKING:
    from pathlib import Path

    from .api import Api

TOKENS_PER_WORD = 4 / 3
"""Of English text in common tokenizers; used only where a dataset gives the length of an answer as text."""


class Line(Struct, frozen=True):
    """One usable line: a text, or the length of a prompt to be generated."""

    text: str | None
    input_tokens: int | None
    output_tokens: int | None


class Dataset:
    """Lines in an order drawn from the seed; each round takes the next ones.

    When a line comes a second time, its text gets a few words in front, so that no prefix cache knows it.
    """

    def __init__(
        self, lines: list[Line], output_tokens: Lengths, generated: Generated, *, seed: int, first: int
    ) -> None:
        self.exact = False
        self._lines = lines
        self._output = output_tokens
        self._generated = generated
        self._seed = seed
        self._first = first
        self._order = list(range(len(lines)))
        rng(seed, "order").shuffle(self._order)

    @classmethod
    def load(
        cls, path: Path, workload: Workload, api: Api, *, seed: int, round_index: int, stride: int
    ) -> Dataset:
        """Read `path`. Raises InputError naming file and line."""
        try:
            rows = path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"dataset {path}: {error.strerror}") from None
        needed = workload.output_tokens.kind == "fixed" and not workload.output_tokens.mean
        lines = []
        for n, row in enumerate(rows, 1):
            if row.strip():
                lines.append(line := _line(row, place := Place(str(path), n)))
                if needed and line.output_tokens is None:
                    raise InputError("no answer says how many output tokens to ask for: give them", place)
        if not lines:
            raise InputError(f"dataset {path}: no line in it")
        generated = Generated(
            seed=seed,
            round_index=round_index,
            input_tokens=workload.input_tokens,
            output_tokens=workload.output_tokens,
            shared_prefix=workload.shared_prefix,
            vocabulary=api.vocabulary if api.token_ids and api.kind != "chat" else None,
            stride=stride,
        )
        return cls(lines, workload.output_tokens, generated, seed=seed, first=round_index * stride)

    def prompt(self, index: int) -> Prompt:
        place = self._first + index
        again, at = divmod(place, len(self._lines))
        line = self._lines[self._order[at]]
        random = rng(self._seed, "dataset", place)
        output = line.output_tokens
        if self._output.kind != "fixed" or self._output.mean > 0 or output is None:
            output = draw(self._output, random)
        if line.text is None:
            assert line.input_tokens is not None
            return self._generated.prompt(index, line.input_tokens, output)
        text = line.text
        if again:
            text = " ".join([*random.choices(words(), k=4), text])
        return Prompt(None, text, None, output)


def _line(row: bytes, place: Place) -> Line:
    try:
        said = msgspec.json.decode(row)
    except msgspec.DecodeError as error:
        raise InputError(f"not JSON: {error}", place) from None
    if not isinstance(said, dict):
        raise InputError("not an object: JSONL has one in each line", place)
    turns = said.get("conversations", said.get("conversation"))
    if isinstance(turns, list):
        texts = [t for turn in turns if isinstance(turn, dict) and isinstance(t := _text(turn), str)]
        if not texts:
            raise InputError("`conversations` holds no text", place)
        answer = round(len(texts[1].split()) * TOKENS_PER_WORD) if len(texts) > 1 else None
        return Line(texts[0], None, max(1, answer) if answer is not None else None)
    output = _number(said, place, "output_tokens", "output_length")
    if isinstance(said.get("prompt"), str):
        return Line(said["prompt"], None, output)
    prompt_tokens = _number(said, place, "input_tokens", "input_length")
    if prompt_tokens is None:
        raise InputError("neither `conversations`, `prompt` nor `input_tokens`", place)
    return Line(None, prompt_tokens, output)


def _text(turn: dict[str, Any]) -> Any:
    return turn.get("value", turn.get("content"))


def _number(said: dict[str, Any], place: Place, *names: str) -> int | None:
    for name in names:
        value = said.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"`{name}`: {value!r} is not a whole number of 1 or more", place)
        return value
    return None
