"""The load of a round: which requests, with which bytes, and when each is due."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, structs

from ..errors import InputError
from ..model import Lengths, Workload
from .prompts import Generated, Prompt, Source, rng

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .api import Api

Mode = Literal["closed", "open", "burst"]

AHEAD_BYTES = 8 << 20
"""Bodies prepared ahead; beyond it they are made in the client's idle moments."""
AHEAD_ENDLESS = 256
"""Requests prepared ahead when nobody knows how many it will be."""
STRIDE = 4096
"""Distinct first tokens set apart for a round whose number of requests nobody knows."""


class Planned(Struct):
    """A request before it is sent."""

    index: int
    body: bytes
    input_tokens: int | None
    output_tokens: int
    due_ns: int
    """Real ns after the start of the clock; 0 in a closed loop, where the one before decides."""


class Traffic:
    """The requests of one round in the order in which they are due.

    mode
        `closed`: `concurrency` requests in flight; `open`: each at its own time; `burst`: all at once.
    requests, duration_ns
        How many, or for how long requests are sent (real ns); at least one is given.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        source: Source,
        api: Api,
        mode: Mode,
        concurrency: int | None,
        requests: int | None,
        duration_ns: int | None,
        arrivals_ns: Iterator[int] | None,
        body_options: dict[str, Any],
        time_scale: float,
        seed: int,
    ) -> None:
        self.workload = workload
        self.api = api
        self.mode: Mode = mode
        self.concurrency = concurrency
        self.requests = requests
        self.duration_ns = duration_ns
        self.time_scale = time_scale
        self.seed = seed
        self.exact_prompts = source.exact
        self._source = source
        self._arrivals = arrivals_ns
        self._body_options = body_options
        self._ready: deque[Planned] = deque()
        self.ready_bytes = 0
        self._next = 0
        ahead = requests if requests is not None else AHEAD_ENDLESS + 4 * (concurrency or 0)
        while self.ready_bytes < AHEAD_BYTES and len(self._ready) < ahead and self.prepare():
            pass

    @property
    def exhausted(self) -> bool:
        """Nothing is left to take."""
        return not self._ready and not self.prepare()

    @property
    def hungry(self) -> bool:
        """Fewer requests are ready than there is room for."""
        if self.requests is None:
            return self.ready_bytes < AHEAD_BYTES // 2 and len(self._ready) < AHEAD_ENDLESS
        return self.ready_bytes < AHEAD_BYTES // 2 and self._next < self.requests

    def prepare(self) -> bool:
        """Make one more request ready; False when there is none left."""
        index = self._next
        if self.requests is not None and index >= self.requests:
            return False
        due = next(self._arrivals) if self._arrivals is not None else 0
        if self.duration_ns is not None and due >= self.duration_ns:
            self.requests = index
            return False
        self._next = index + 1
        prompt = self._source.prompt(index)
        body = self._body(prompt)
        self._ready.append(Planned(index, body, prompt.input_tokens, prompt.output_tokens, due))
        self.ready_bytes += len(body)
        return True

    def peek_due_ns(self) -> int | None:
        """When the next request is due; None when there is none."""
        if not self._ready and not self.prepare():
            return None
        return self._ready[0].due_ns

    def take(self) -> Planned | None:
        """The next request, or None when there is none."""
        if not self._ready and not self.prepare():
            return None
        planned = self._ready.popleft()
        self.ready_bytes -= len(planned.body)
        return planned

    def _body(self, prompt: Prompt) -> bytes:
        return msgspec.json.encode(BODIES[self.api.kind](prompt, self.api, self._body_options))


def _generate(prompt: Prompt, api: Api, options: dict[str, Any]) -> dict[str, Any]:
    sampling: dict[str, Any] = {"temperature": options["temperature"], "max_new_tokens": prompt.output_tokens}
    if "ignore_eos" in options:
        sampling["ignore_eos"] = options["ignore_eos"]
    extra: dict[str, Any] = dict(api.extra)
    sampling |= extra.pop("sampling_params", {})
    asked = {"input_ids": prompt.ids} if prompt.ids is not None else {"text": prompt.text}
    return {**asked, "sampling_params": sampling, "stream": True, **extra}


def _openai(prompt: Prompt, api: Api, options: dict[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": api.model}
    if api.kind == "chat":
        asked["messages"] = [{"role": "user", "content": prompt.text}]
    else:
        asked["prompt"] = prompt.ids if prompt.ids is not None else prompt.text
    usage = {"include_usage": True}
    if api.chunk_usage:
        usage["continuous_usage_stats"] = True
    return {
        **asked,
        "max_tokens": prompt.output_tokens,
        **options,
        "stream": True,
        "stream_options": usage,
        **api.extra,
    }


BODIES = {"generate": _generate, "completions": _openai, "chat": _openai}
"""How each kind of API is asked for a prompt."""


def _arrivals(workload: Workload, seed: int, round_index: int, time_scale: float) -> Iterator[int]:
    """Due times in real ns. Poisson: gaps are exponential with mean 1/rate; the first request is due at 0."""
    assert workload.request_rate is not None
    gap = 1e9 * time_scale / workload.request_rate
    random = rng(seed, round_index, "arrivals")
    at = 0.0
    count = 0
    while True:
        yield int(at)
        count += 1
        at = count * gap if workload.arrival == "constant" else at + random.expovariate(1 / gap)


def plan(
    workload: Workload,
    api: Api,
    *,
    seed: int,
    round_index: int,
    folder: Path,
    time_scale: float = 1.0,
) -> Traffic:
    """All requests of a round, prepared as far as memory allows.

    The same arguments give the same bytes; another `round_index` (any integer, also below 0 for warm-up)
    gives other prompts. `folder` is what `workload.dataset` is relative to. `time_scale` is the real
    seconds per second of the workload: due times and the duration are multiplied by it. Raises InputError
    when the workload cannot be sent.
    """
    if workload.concurrency is not None:
        mode: Mode = "closed"
    elif workload.request_rate is not None:
        mode = "open"
    else:
        mode = "closed" if workload.requests is None else "burst"
    if workload.requests is None and workload.duration is None:
        raise InputError(f"workload {workload.name}: neither requests nor a duration says when it ends")
    exact = api.token_ids and api.kind != "chat"
    stride = workload.requests or STRIDE
    source: Source
    if workload.dataset is not None:
        from .dataset import Dataset

        source = Dataset.load(
            folder / workload.dataset, workload, api, seed=seed, round_index=round_index, stride=stride
        )
    else:
        source = Generated(
            seed=seed,
            round_index=round_index,
            input_tokens=workload.input_tokens,
            output_tokens=workload.output_tokens,
            shared_prefix=workload.shared_prefix,
            vocabulary=api.vocabulary if exact else None,
            stride=stride,
        )
    if not api.ignore_eos:
        workload = structs.replace(workload, ignore_eos=False)  # lengths are a cap: nobody can demand them
    options: dict[str, Any] = {"temperature": workload.temperature}
    if workload.ignore_eos:
        options["ignore_eos"] = True
    return Traffic(
        workload,
        source=source,
        api=api,
        mode=mode,
        concurrency=_concurrency(workload, mode),
        requests=workload.requests,
        duration_ns=None if workload.duration is None else int(workload.duration * 1e9 * time_scale),
        arrivals_ns=_arrivals(workload, seed, round_index, time_scale) if mode == "open" else None,
        body_options=options,
        time_scale=time_scale,
        seed=seed,
    )


def _concurrency(workload: Workload, mode: Mode) -> int | None:
    """Requests in flight that are aimed at; None in an open loop. For a time and nothing else, one after
    another."""
    return {"closed": workload.concurrency or 1, "open": None, "burst": workload.requests}[mode]


def warmup(workload: Workload) -> Workload | None:
    """What to send before the first round of a launch, as a workload of its own; None when nothing is asked
    for.

    Send it with a `round_index` below 0, so that its prompts are none of the measured ones.
    """
    if workload.warmup <= 0 and workload.warmup_seconds <= 0:
        return None
    changes: dict[str, Any] = {"slo": None}
    if workload.warmup_seconds > 0:
        changes |= {"requests": None, "duration": workload.warmup_seconds}
    else:
        changes |= {"requests": workload.warmup, "duration": None}
    if workload.concurrency is None and workload.request_rate is None:
        changes["concurrency"] = workload.warmup or workload.requests
    return structs.replace(workload, **changes)


__all__ = ["Lengths", "Planned", "Traffic", "plan", "warmup"]
