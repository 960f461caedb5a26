"""Whether a round's numbers may be used: what was asked for must be what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from . import health
from .figures import TOGETHER_EVENTS, landed_together

if TYPE_CHECKING:
    from ..model import Workload
    from .samples import Sample, Samples

TOGETHER_SHARE = 0.01
"""Streams whose chunks all landed together, beyond which the round is invalid."""
TEXT_SLACK = 4
"""Tokens that text prompts of a round may share by chance, each."""


class Judged(Struct):
    invalid: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def judge(samples: Samples, workload: Workload) -> Judged:
    """Reasons against a round, most serious first."""
    judged = Judged()
    ok = [s for s in samples.requests if s.ok]
    failed = [s for s in samples.requests if not s.ok]
    if not samples.requests:
        judged.invalid.append("no request was sent")
    if failed:
        first = failed[0]
        judged.invalid.append(
            f"{len(failed)} of {len(samples.requests)} requests failed, the first: {samples.first_failure}"
            if first.detail
            else f"{len(failed)} of {len(samples.requests)} requests failed: {first.failure}"
        )
    for check in (_outputs, _prompts, _cached, _together, _parallel):
        check(samples, workload, ok, judged)
    if samples.health.clock_steps and samples.health.stamp_source == "kernel":
        judged.invalid.append("the machine's clock was set during the round")
    if reasons := health.saturated(samples):
        judged.invalid.append("client saturated: " + ", ".join(reasons))
    return judged


def _outputs(_: Samples, workload: Workload, ok: list[Sample], judged: Judged) -> None:
    if not workload.ignore_eos:
        return
    wrong = [s for s in ok if s.output_tokens is not None and s.output_tokens != s.output_asked]
    if wrong:
        judged.invalid.append(
            f"output lengths not as asked: {len(wrong)} of {len(ok)} requests, "
            f"such as {wrong[0].output_tokens} tokens instead of {wrong[0].output_asked}"
        )


def _prompts(samples: Samples, workload: Workload, ok: list[Sample], judged: Judged) -> None:
    known = [(s.input_tokens, s.input_asked) for s in ok if s.input_tokens is not None and s.input_asked]
    wrong = [(n, asked) for n, asked in known if abs(n - asked) > workload.prompt_tolerance * asked]
    if not wrong:
        return
    text = (
        f"prompt lengths not as asked: {len(wrong)} of {len(ok)} requests, "
        f"such as {wrong[0][0]} tokens instead of {wrong[0][1]}"
    )
    if samples.exact_prompts or workload.prompt_tolerance > 0:
        judged.invalid.append(text)
    else:
        judged.warnings.append(f"{text} (sent as text; `prompt_tolerance` makes it binding)")


def _cached(samples: Samples, workload: Workload, ok: list[Sample], judged: Judged) -> None:
    """Under `cache: cold` only the shared prefix, and what a template puts before every prompt, may be
    cached."""
    if workload.cache != "cold":
        return
    cached = allowed = prompt = 0
    for s in ok:
        if s.cached_tokens is None or s.input_tokens is None:
            continue
        asked = s.input_asked if s.input_asked is not None else s.input_tokens
        cached += s.cached_tokens
        prompt += s.input_tokens
        allowed += round(asked * workload.shared_prefix) + max(0, s.input_tokens - asked)
        allowed += 0 if samples.exact_prompts else TEXT_SLACK
    if cached > allowed:
        judged.invalid.append(
            f"cache: cold, but {cached} of {prompt} prompt tokens came from the cache "
            f"(expected at most {allowed})"
        )


def _together(_: Samples, __: Workload, ok: list[Sample], judged: Judged) -> None:
    streams = [s for s in ok if (s.output_tokens or len(s.stamps)) >= TOGETHER_EVENTS]
    together = [s for s in streams if landed_together(s) or len(s.stamps) == 1]
    if not together:
        return
    text = (
        f"all chunks of a stream landed together in {len(together)} of {len(streams)} requests: TPOT refused"
    )
    if len(together) > TOGETHER_SHARE * len(streams):
        judged.invalid.append(text)
    else:
        judged.warnings.append(text)


def _parallel(samples: Samples, _: Workload, ok: list[Sample], judged: Judged) -> None:
    """As many requests were in flight as the workload says."""
    if samples.mode == "open" or samples.concurrency is None or samples.stalled or samples.interrupted:
        return
    wanted = min(samples.concurrency, len(samples.requests))
    if samples.peak_in_flight < wanted and len(ok) == len(samples.requests):
        judged.invalid.append(f"{samples.peak_in_flight} requests were in flight at most, not {wanted}")
