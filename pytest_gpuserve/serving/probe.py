"""One greedy request to a ready server, whose answer is looked at: a silent kernel that gives zeros, or a
draft model that changes the text, is fast all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import Crashed, Garbage
from ..load.prompts import Prompt
from ..load.traffic import BODIES
from ..record import Failure, ProbeAnswer

if TYPE_CHECKING:
    from ..load.api import Api
    from ..model import Probe
    from .measure import Running

PATIENCE_S = 300.0
SHORT = 16
"""Letters of text below which nothing can be said to run in circles."""
LONGEST_UNIT = 48
CIRCLING = 0.9
"""Share of a text that must repeat itself; some repetition is normal in greedy text of small models."""
UNREADABLE = 0.2
"""Share of replacement characters, which stand for bytes that are no text."""


def ask(server: Running, api: Api, probe: Probe) -> ProbeAnswer:
    """The server's answer. Raises Crashed when it has none."""
    import requests

    body = BODIES[api.kind](Prompt(None, probe.prompt, None, probe.output_tokens), api, {"temperature": 0.0})
    body |= {"stream": False}
    body.pop("stream_options", None)
    target = server.target
    try:
        with requests.Session() as session:
            session.trust_env = False  # never through a proxy
            answer = session.post(
                target.url + api.path, json=body, headers=target.headers, timeout=PATIENCE_S, verify=False
            )
            said = answer.json() if answer.ok else None
    except (requests.RequestException, ValueError) as error:
        if server.failed():
            raise server.crash() from error
        raise Crashed(f"the probe has no answer: {error}") from error
    if not isinstance(said, dict):
        if server.failed():
            raise server.crash()
        raise Crashed(f"the probe was answered with {answer.status_code}: {answer.text[:300]}")
    text, tokens = _read(said)
    return ProbeAnswer(text=text, output_tokens=tokens, degenerate=degenerate(text))


def _read(said: dict[str, Any]) -> tuple[str, int | None]:
    """Text and token count of an answer, whichever API it is from."""
    counts = said.get("usage") or said.get("meta_info") or {}
    tokens = counts.get("completion_tokens")
    choices = said.get("choices")
    if not choices:
        return str(said.get("text") or ""), tokens
    message = choices[0].get("message")
    if message is None:
        return str(choices[0].get("text") or ""), tokens
    parts = (message.get("reasoning_content"), message.get("reasoning"), message.get("content"))
    return "".join(part for part in parts if isinstance(part, str)), tokens


def degenerate(text: str) -> str:
    """Why a text is no answer; empty when it may be one.

    It runs in circles when, for some unit of up to 48 letters, nine letters in ten are the ones a unit
    before: the token 0 again and again (NaN logits) shows as `!!!!`.
    """
    seen = text.strip()
    if not seen:
        return "no text at all"
    if text.count("\ufffd") >= max(1.0, UNREADABLE * len(text)):
        return "bytes that are no text"
    if len(seen) < SHORT:
        return ""
    for unit in range(1, min(LONGEST_UNIT, len(seen) // 4) + 1):
        pairs = len(seen) - unit
        if sum(seen[i] == seen[i + unit] for i in range(pairs)) >= CIRCLING * pairs:
            return f"runs in circles: {seen[-unit:]!r} again and again"
    return ""


def compare(answer: ProbeAnswer, partner: str, other: ProbeAnswer) -> ProbeAnswer:
    """The answer, with what it has in common with the partner's."""
    longest = max(len(answer.text), len(other.text))
    common = next(
        (i for i, (a, b) in enumerate(zip(answer.text, other.text, strict=False)) if a != b),
        min(len(answer.text), len(other.text)),
    )
    return msgspec.structs.replace(answer, same_as=partner, same_share=common / longest if longest else 1.0)


def demand(probe: Probe, answer: ProbeAnswer, other: ProbeAnswer | None) -> None:
    """Raise Garbage when the answer is not what the suite demands."""
    if probe.demand == "record":
        return
    if answer.degenerate:
        raise _garbage(f"its answer to the probe is {answer.degenerate}", answer)
    if probe.demand == "same" and other is not None and answer.same_share != 1.0:
        at = round((answer.same_share or 0.0) * max(len(answer.text), len(other.text)))
        text = f"its answer to the probe differs from that of {answer.same_as} after {at} letters"
        raise _garbage(text, answer, f"{answer.same_as}: {other.text!r}")


def _garbage(text: str, answer: ProbeAnswer, *more: str) -> Garbage:
    lines = (text, f"it said: {answer.text!r}", *more)
    failure = Failure(
        failure_class="silent_wrong_output", phase="serving", message=text, excerpt="\n".join(lines[1:])
    )
    return Garbage("\n".join(lines), failure=failure)
