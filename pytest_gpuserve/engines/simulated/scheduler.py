"""What the GPUs would do: steps at the moments at which the profile says that tokens come."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from .log import Log
    from .loop import Loop
    from .perturb import Change
    from .profile import Profile, Serve, Serving

DECODE_LOG_INTERVAL = 40
CACHED_PROMPTS = 64
MOST_CREDIT_S = 0.05
WORDS = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
)


class Refused(Exception):
    """A request of which the profile cannot say how long it would take."""


class Sink(Protocol):
    """Where a generation's tokens go, in the format of one API."""

    def step(self, generation: Generation, piece: str, ids: Sequence[int], last: bool) -> None:
        """Tokens have come; the generation has counted them already."""


class Generation:
    """One request while it runs. Times are moments of `time.monotonic()`."""

    def __init__(self, prompt: Sequence[Hashable], wanted: int, sink: Sink, cached: int) -> None:
        self.id = uuid.uuid4().hex
        self.prompt = prompt
        self.prompt_tokens = len(prompt)
        self.wanted = wanted
        self.cached = cached
        self.sink = sink
        self.tokens = 0
        self.output: list[int] = []
        self.arrived = time.monotonic()
        self.arrived_wall = time.time()
        self.first_token = 0.0
        self.due = 0.0
        self.passes = 0
        self.histogram: list[int] = []
        """Verify passes by the number of drafts that they accepted."""
        self.aborted = False
        self.state = 12345 + len(prompt)


class Counters:
    """Totals since the start, as /metrics tells them."""

    def __init__(self) -> None:
        self.prompt = self.generated = self.cached = self.requests = self.passes = self.steps = 0
        self.prefills = 0
        self.throughput = 0.0
        self.accept_length = self.accept_rate = 0.0


class Scheduler:
    """Keeps to absolute deadlines: after a hiccup it catches up, so that throughput stays right."""

    def __init__(
        self,
        loop: Loop,
        log: Log,
        profile: Profile,
        serving: Serving,
        serve: Serve,
        *,
        change: Change,
        open_speedup: float,
        time_scale: float,
        pool_tokens: int,
    ) -> None:
        self._loop = loop
        self._log = log
        self._serving = serving
        self._serve = serve
        self._most = max(serving.known_for.concurrency)
        self._vocabulary = profile.vocabulary
        self._scale = time_scale
        speed = (1 - change.slowdown) * open_speedup
        self._real_ms = time_scale / 1000 / speed
        """Real seconds of a simulated millisecond."""
        self._step_s = serving.step_ms * self._real_ms
        self._pool = pool_tokens
        self._action = change.action
        self._ended = self._late = 0.0
        self._cache: list[tuple[Hashable, ...]] = []
        self._interval_started = time.monotonic()
        self._interval = [0, 0, 0]
        """Steps, tokens and verify passes since the last decode line."""
        self.counters = Counters()
        self.running: list[Generation] = []
        self.frozen = False
        """Nothing that needs the scheduler is answered any more."""
        self.on_crash: Callable[[], None] = lambda: None

    @property
    def drafts(self) -> int:
        """Draft tokens of a verify pass; 0 without speculation."""
        return max(self._serving.passes) - 1

    @property
    def speculative(self) -> bool:
        return self._serving.accept_length is not None

    def submit(self, prompt: Sequence[Hashable], wanted: int, sink: Sink) -> Generation:
        """Run a request of `wanted` tokens. Raises Refused for what the profile does not know."""
        shape = self._serving.known_for
        if len(self.running) >= self._most:
            raise Refused(f"the simulated host's profile knows at most {self._most} requests at once")
        for what, tokens, (low, high) in (
            ("prompts", len(prompt), shape.input_tokens),
            ("answers", wanted, shape.output_tokens),
        ):
            if not low <= tokens <= high:
                raise Refused(
                    f"the simulated host's profile knows {what} of {low} to {high} tokens, not {tokens}"
                )
        generation = Generation(prompt, wanted, sink, self._cached(prompt))
        self.running.append(generation)
        self.counters.requests += 1
        self.counters.prefills += 1
        self.counters.prompt += generation.prompt_tokens
        self.counters.cached += generation.cached
        new = generation.prompt_tokens - generation.cached
        took = self._serving.first_ms(new) * self._real_ms
        self._log_prefill(new, generation.cached, new / took * self._scale)
        first_due = generation.arrived + took
        generation.due = first_due - self._credit(generation.arrived)
        self._loop.at(first_due, lambda: self._advance(generation))
        return generation

    def _credit(self, now: float) -> float:
        """By how much a request is decoded earlier, because the one just before it ended too late."""
        late, self._late = self._late, 0.0
        return min(late, MOST_CREDIT_S) if now - self._ended < MOST_CREDIT_S else 0.0

    def abort(self, generation: Generation) -> None:
        """Its client is gone."""
        generation.aborted = True
        if generation in self.running:
            self.running.remove(generation)

    def forget(self) -> None:
        """Begin anew after the server's own warm-up, which is no request of its users."""
        self._cache.clear()
        self.counters = Counters()
        self._interval_started = time.monotonic()
        self._interval = [0, 0, 0]

    def flush(self) -> bool:
        """Empty the prompt cache; False while something runs."""
        if self.running:
            return False
        self._cache.clear()
        self._log.ranks("Cache flushed successfully!")
        return True

    def _cached(self, prompt: Sequence[Hashable]) -> int:
        """Length of the longest prefix that was seen before; the last token is always computed."""
        longest = 0
        for seen in self._cache:
            same = sum(
                1
                for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(seen, prompt, strict=False))
            )
            longest = max(longest, same)
        return min(longest, len(prompt) - 1)

    def _advance(self, generation: Generation) -> None:
        """One step of one request: its first token, a decoded one, or what a verify pass accepted."""
        if generation.aborted or self.frozen:
            return
        count = self._count(generation)
        ids = self._ids(generation, count)
        generation.tokens += count
        generation.output += ids
        last = generation.tokens >= generation.wanted
        if last:
            self.running.remove(generation)
            self._remember(generation)
            self._ended = time.monotonic()
            self._late = self._ended - generation.due
        piece = "".join([f"{WORDS[token % len(WORDS)]} " for token in ids])
        generation.sink.step(generation, piece, ids, last)
        self._measure(generation, count)
        if last:
            return
        if self._breaks(generation):
            return
        generation.due += self._step_s
        self._loop.at(generation.due, lambda: self._advance(generation))

    def _count(self, generation: Generation) -> int:
        if generation.tokens == 0:
            generation.first_token = time.monotonic()
            return 1
        passes = self._serving.passes
        count = min(passes[generation.passes % len(passes)], generation.wanted - generation.tokens)
        if self.speculative:
            generation.histogram += [0] * (count - len(generation.histogram))
            generation.histogram[count - 1] += 1
        generation.passes += 1
        return count

    def _ids(self, generation: Generation, count: int) -> list[int]:
        """Token ids that look drawn, from a congruential generator that each request starts anew."""
        ids = []
        for _ in range(count):
            generation.state = generation.state * 48271 % 2147483647
            ids.append(1000 + generation.state % (self._vocabulary - 2000))
        return ids

    def _breaks(self, generation: Generation) -> bool:
        """Whether a perturbed server gives up now: half way through the second request."""
        if self._action not in ("crash", "hang") or self.counters.requests < 2:
            return False
        if 2 * generation.tokens < generation.wanted:
            return False
        self.frozen = True
        if self._action == "crash":
            self.on_crash()
        return True

    def _remember(self, generation: Generation) -> None:
        self._cache.append((*generation.prompt, *generation.output))
        del self._cache[:-CACHED_PROMPTS]

    def _measure(self, generation: Generation, count: int) -> None:
        counters, interval = self.counters, self._interval
        counters.generated += count
        if generation.tokens == count:
            return  # the first token belongs to the prefill
        counters.steps += 1
        counters.passes += self.speculative
        interval[0] += 1
        interval[1] += count
        interval[2] += self.speculative
        if interval[0] == DECODE_LOG_INTERVAL:
            self._log_decode(generation)

    def _log_prefill(self, new: int, cached: int, throughput: float) -> None:
        words = {"new": str(new), "cached": str(cached), "throughput": f"{throughput:.2f}"}
        self._log.words |= words
        self._log.ranks(self._serve.prefill, (0,))

    def _log_decode(self, generation: Generation) -> None:
        now = time.monotonic()
        _, tokens, passes = self._interval
        counters = self.counters
        counters.throughput = tokens / (now - self._interval_started) * self._scale
        speculative = ""
        if passes:
            length = counters.accept_length = tokens / passes
            drafts = self.drafts
            with_bonus = self._serve.accept_rate == "with bonus"
            rate = counters.accept_rate = length / (drafts + 1) if with_bonus else (length - 1) / drafts
            speculative = f"accept len: {length:.2f}, accept rate: {rate:.2f}, "
        used = generation.prompt_tokens + generation.tokens
        self._log.words |= {
            "running": str(max(len(self.running), 1)),
            "tokens": str(used),
            "usage": f"{used / self._pool:.2f}",
            "speculative": speculative,
            "throughput": f"{counters.throughput:.2f}",
        }
        self._log.ranks(self._serve.decode, (0,))
        self._interval_started = now
        self._interval = [0, 0, 0]
