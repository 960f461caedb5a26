"""Prompts and lengths from a seed: the same bytes for the same seed, new prompts for every round."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import log
from random import Random
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from ..model import Lengths


@cache
def words() -> tuple[str, ...]:
    """Common words, one token each in most tokenizers."""
    return tuple((files(__package__) / "words.txt").read_text(encoding="ascii").split())


class Prompt(Struct, frozen=True):
    """What is asked. Exactly one of `ids` and `text` is given."""

    ids: list[int] | None
    text: str | None
    input_tokens: int | None
    """None when only the server can count them."""
    output_tokens: int


class Source(Protocol):
    """Where prompts come from. The same index gives the same prompt."""

    exact: bool
    """Prompts are token ids."""

    def prompt(self, index: int) -> Prompt: ...


def rng(seed: int, *path: object) -> Random:
    """A generator of its own for each use, so that adding one draw here changes nothing there."""
    return Random("/".join(map(str, (seed, *path))))


def draw(lengths: Lengths, random: Random) -> int:
    """A length in tokens, at least 1.

    `lognormal` has the mean of the distribution itself, not of its logarithm: mu = ln(mean) - sigma^2 / 2.
    """
    if lengths.kind == "uniform":
        value: float = random.randint(lengths.low, lengths.high)
    elif lengths.kind == "lognormal":
        drawn = random.lognormvariate(log(lengths.mean) - lengths.sigma**2 / 2, lengths.sigma)
        value = min(max(drawn, lengths.low), lengths.high)
    else:
        value = lengths.mean
    return max(1, round(value))


def token_ids(random: Random, low: int, high: int, count: int) -> list[int]:
    """Ids in [low, high), four random bytes each: faster than any call per id."""
    span = high - low
    return [low + value % span for value in memoryview(random.randbytes(4 * count)).cast("I")]


class Generated:
    """Random prompts of the lengths asked.

    Token prompts differ in their very first token as long as there are as many ids as requests, so that a
    prefix cache finds nothing; with `shared_prefix`, in the first token after the prefix.
    """

    def __init__(
        self,
        *,
        seed: int,
        round_index: int,
        input_tokens: Lengths,
        output_tokens: Lengths,
        shared_prefix: float,
        vocabulary: int | None,
        stride: int,
    ) -> None:
        self.exact = vocabulary is not None
        self._key = (seed, round_index)
        self._input = input_tokens
        self._output = output_tokens
        self._share = shared_prefix
        self._low = min(1000, (vocabulary or 0) // 8)
        self._high = vocabulary or 0
        self._first = round_index * stride
        self._prefix: list[int] = []

    def prompt(self, index: int, wanted: int | None = None, output: int | None = None) -> Prompt:
        """The prompt of a request; `wanted` and `output` replace the lengths that would be drawn."""
        random = rng(*self._key, index)
        drawn = draw(self._input, random), draw(self._output, random)
        wanted = drawn[0] if wanted is None else wanted
        output = drawn[1] if output is None else output
        shared = min(wanted - 1, round(wanted * self._share)) if self._share else 0
        if self.exact:
            own = [self._mark(index), *token_ids(random, self._low, self._high, wanted - shared - 1)]
            return Prompt([*self._shared(shared), *own], None, wanted, output)
        known = words()
        chosen = [known[i % len(known)] for i in self._shared(shared)]
        chosen += random.choices(known, k=wanted - shared)
        return Prompt(None, " ".join(chosen), wanted, output)

    def _mark(self, index: int) -> int:
        """The token that tells this prompt from every other: a walk over all ids, round after round.

        The step is coprime to the number of ids, so that all are met before one repeats.
        """
        ids = self._high - self._low
        step = 7919 if ids % 7919 else 7907
        return self._low + (self._key[0] + (self._first + index) * step) % ids

    def _shared(self, length: int) -> list[int]:
        if length > len(self._prefix):
            self._prefix = token_ids(
                rng(*self._key, "prefix"), self._low, self._high or 1 << 20, max(64, length * 2)
            )
        return self._prefix[:length]
