"""Whether a round's numbers may be used: what was asked for must be what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from . import health

if TYPE_CHECKING:
    from .samples import Samples
    from .totals import Totals

TOGETHER_SHARE = 0.01
"""Streams whose chunks all landed together, beyond which the round is invalid."""


SATURATED = "client saturated: "
"""How the reason begins that blames the client and not the server."""
TOGETHER = "all chunks of a stream landed together"
"""How the reason begins that makes TPOT meaningless."""


class Judged(Struct):
    invalid: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def judge(samples: Samples, totals: Totals) -> Judged:
    """Reasons against a round, most serious first. `totals` are those of all its requests."""
    judged = Judged()
    if not totals.requests:
        judged.invalid.append("no request was sent")
    if totals.failed:
        reason, words = next(iter(totals.words.items()))
        judged.invalid.append(
            f"{totals.failed} of {totals.requests} requests failed: {reason}"
            + (f": {words}" if words else "")
        )
    elif samples.stalled or samples.interrupted:
        why = "a response was left open after [DONE]" if samples.stalled else "it was interrupted"
        judged.invalid.append(f"the round ended early: {why}")
    if totals.wrong_output.count:
        came, asked = totals.wrong_output.example
        judged.invalid.append(
            f"output lengths not as asked: {totals.wrong_output.count} of {totals.ok} requests, "
            f"such as {came} tokens instead of {asked}"
        )
    _prompts(totals, judged)
    if totals.workload.cache == "cold" and totals.cached_seen > totals.cached_allowed:
        judged.invalid.append(
            f"cache: cold, but {totals.cached_seen} of {totals.cached_of} prompt tokens came from the cache "
            f"(expected at most {totals.cached_allowed})"
        )
    _together(totals, judged)
    _parallel(samples, totals, judged)
    stepped = samples.health.clock_steps and samples.health.stamp_source == "kernel"
    if stepped or totals.backwards:
        judged.invalid.append("the machine's clock was set during the round")
    # Where nothing succeeded no figure suffers, and requests that fail at once leave nothing to compare with.
    if totals.ok and (reasons := health.saturated(samples)):
        late = judged.warnings if totals.workload.busy_machine else judged.invalid
        late.append(SATURATED + ", ".join(reasons))
    return judged


def _prompts(totals: Totals, judged: Judged) -> None:
    """Binding where the prompt was sent as token ids, or where the workload gives a tolerance."""
    if not totals.wrong_input.count:
        return
    came, asked = totals.wrong_input.example
    text = (
        f"prompt lengths not as asked: {totals.wrong_input.count} of {totals.ok} requests, "
        f"such as {came} tokens instead of {asked}"
    )
    if totals.exact or totals.workload.prompt_tolerance > 0:
        judged.invalid.append(text)
    else:
        judged.warnings.append(f"{text} (sent as text; `prompt_tolerance` makes it binding)")


def _together(totals: Totals, judged: Judged) -> None:
    if not totals.together:
        return
    text = f"{TOGETHER} in {totals.together} of {totals.streams} requests: TPOT refused"
    if totals.together > TOGETHER_SHARE * totals.streams and not totals.workload.busy_machine:
        judged.invalid.append(text)
    else:
        judged.warnings.append(text)


def _parallel(samples: Samples, totals: Totals, judged: Judged) -> None:
    """As many requests were in flight as the workload says."""
    if not totals.width or totals.failed or samples.stalled or samples.interrupted:
        return
    wanted = min(totals.width, totals.requests)
    if samples.peak_in_flight < wanted:
        judged.invalid.append(f"{samples.peak_in_flight} requests were in flight at most, not {wanted}")
