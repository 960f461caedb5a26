"""What can be summed over requests, one at a time: counts, outcomes, and what speaks against a round.

It is exact for every request of a round, also for those of a long round whose token times were let go
(`ledger`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING

from .figures import TOGETHER_EVENTS, landed_together, start_ns, tpot_ns

if TYPE_CHECKING:
    from ..model import Slo, Workload
    from .sample import Sample

BIN_S = 0.1
"""Width of the bins (in seconds of the workload) that tokens are counted in when their times are let go."""
TEXT_SLACK = 4
"""Tokens that text prompts of a round may have in common by chance, each."""


class Sum:
    """A sum of counts that is unknown once one of them is."""

    __slots__ = ("missing", "n", "value")

    def __init__(self) -> None:
        self.value = 0
        self.n = 0
        self.missing = 0

    def add(self, count: int | None) -> None:
        self.n += 1
        if count is None:
            self.missing += 1
        else:
            self.value += count

    @property
    def known(self) -> int | None:
        return self.value if self.n and not self.missing else None


class Wrong:
    """Requests that were not as asked, and the first of them: (what came, what was asked)."""

    __slots__ = ("count", "example")

    def __init__(self) -> None:
        self.count = 0
        self.example: tuple[int, int] = (0, 0)

    def add(self, came: int, asked: int) -> None:
        if not self.count:
            self.example = (came, asked)
        self.count += 1


class Totals:
    """Sums over the requests of a round.

    scheduled
        Latency counts from the time a request was due (open loop).
    width
        Requests in flight that are aimed at; 0 in an open loop.
    """

    def __init__(self, workload: Workload, *, scheduled: bool, width: int, scale: float, exact: bool) -> None:
        self.workload = workload
        self.scheduled = scheduled
        self.width = width
        self.scale = scale
        self.exact = exact
        """Prompts are token ids."""
        self.requests = 0
        self.ok = 0
        self.failures: Counter[str] = Counter()
        self.words: dict[str, str] = {}
        """What the first failure of each reason said."""
        self.tokens = 0
        """Output tokens of all requests, as far as they got; token events where nothing was counted."""
        self.input, self.output, self.cached = Sum(), Sum(), Sum()
        """Tokens of the requests that succeeded."""
        self.unknown_chunks = 0
        """Requests whose tokens per chunk are unknown."""
        self.verified = [0, 0]
        """Output tokens and verify passes of the requests whose stream tells both."""
        self.good = 0
        self.wrong_output, self.wrong_input = Wrong(), Wrong()
        self.cached_seen = self.cached_allowed = self.cached_of = 0
        self.streams = self.together = 0
        self.backwards = 0
        """Requests whose first token was stamped before they were sent."""
        self.first_sent: int | None = None
        self.first_end: int | None = None
        self.last_end = 0
        self.ramp_end = 0
        """When the first `width` requests had their first token, or had failed."""
        self._last_ends: list[int] = []

    def add(self, sample: Sample) -> None:
        self.requests += 1
        self.tokens += sample.output_tokens or len(sample.stamps)
        self._times(sample)
        if sample.failure is not None:
            self.failures[sample.failure] += 1
            self.words.setdefault(sample.failure, sample.detail)
            return
        self.ok += 1
        self.input.add(sample.input_tokens)
        self.output.add(sample.output_tokens)
        self.cached.add(sample.cached_tokens)
        self.unknown_chunks += sample.tokens is None
        if sample.output_tokens and sample.verify_passes:
            self.verified[0] += sample.output_tokens
            self.verified[1] += sample.verify_passes
        if self.workload.slo is not None:
            self.good += self._met(sample, self.workload.slo)
        self._check(sample)

    @property
    def failed(self) -> int:
        return self.requests - self.ok

    @property
    def accept_length(self) -> float | None:
        """Output tokens by verify passes; None where no stream tells."""
        tokens, passes = self.verified
        return tokens / passes if passes else None

    @property
    def drain_start(self) -> int | None:
        """The first end that no new request followed: the `width`th from the last."""
        if not self._last_ends:
            return None
        return self._last_ends[0] if len(self._last_ends) >= self.width else None

    def _times(self, sample: Sample) -> None:
        if sample.end_ns is None:
            return
        self.last_end = max(self.last_end, sample.end_ns)
        if sample.sent_ns is None:
            return
        if self.first_end is None or sample.end_ns < self.first_end:
            self.first_end = sample.end_ns
        if sample.index < self.width:
            begun = sample.first_ns if sample.first_ns is not None else sample.end_ns
            self.ramp_end = max(self.ramp_end, begun)
        if len(self._last_ends) < self.width:
            heapq.heappush(self._last_ends, sample.end_ns)
        elif self._last_ends and sample.end_ns > self._last_ends[0]:
            heapq.heapreplace(self._last_ends, sample.end_ns)

    def _met(self, sample: Sample, slo: Slo) -> bool:
        """Every limit given is met. An unknown figure meets none; a single token has no TPOT to miss."""
        start = start_ns(sample, scheduled=self.scheduled) or 0
        figures = (
            (slo.ttft_ms, None if sample.first_ns is None else sample.first_ns - start),
            (slo.tpot_ms, 0.0 if sample.output_tokens == 1 else tpot_ns(sample)),
            (slo.e2e_ms, None if sample.last_ns is None else sample.last_ns - start),
        )
        ms = 1e6 * self.scale
        return all(limit is None or (ns is not None and ns / ms <= limit) for limit, ns in figures)

    def _check(self, sample: Sample) -> None:
        if sample.first_ns is not None and sample.sent_ns is not None:
            self.backwards += sample.first_ns < sample.sent_ns
        workload, got, asked = self.workload, sample.output_tokens, sample.output_asked
        if workload.ignore_eos and got is not None and asked is not None and got != asked:
            self.wrong_output.add(got, asked)
        prompt, wanted = sample.input_tokens, sample.input_asked
        if prompt is not None:
            if wanted is not None and abs(prompt - wanted) > workload.prompt_tolerance * wanted:
                self.wrong_input.add(prompt, wanted)
            if sample.cached_tokens is not None:
                expected = wanted if wanted is not None else prompt
                self.cached_seen += sample.cached_tokens
                self.cached_of += prompt
                self.cached_allowed += round(expected * workload.shared_prefix) + max(0, prompt - expected)
                self.cached_allowed += 0 if self.exact else TEXT_SLACK
        if (got or len(sample.stamps)) >= TOGETHER_EVENTS:
            self.streams += 1
            self.together += len(sample.stamps) == 1 or landed_together(sample)
