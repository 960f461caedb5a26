"""What a profile knows of a configuration: the route that its settings take, or that nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .arguments import defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...model import Lengths, Workload
    from .profile import Profile, Route, Serving, Version

ANY = "*"


class Unknown(Struct, frozen=True):
    """Nothing is known, and why."""

    reason: str


def route(
    profile: Profile,
    version: Version,
    fields: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    starting: bool = False,
) -> Route | Unknown:
    """The route of a server with these `ServerArgs` fields and these variables of its own.

    Settings combine in ways that nobody has reported, so they must be exactly those of a known route. `starting`:
    only how the start ends is asked, which random weights and fewer layers do not change.
    """
    base = profile.base
    if fields["model_path"] != base.model_path:
        return Unknown(f"the profile knows {base.model_path}, and nothing of {fields['model_path']}")
    for name, value in base.args.items():
        if fields.get(name) != value:
            return Unknown(f"the profile knows {_flag(name)} {value}, and nothing of {fields.get(name)}")
    usual = defaults(version.flags)
    skipped = {"model_path", *base.args, *base.neutral_args, *(base.start_args if starting else ())}
    args = {n: v for n, v in fields.items() if n not in skipped and v != usual.get(n)}
    variables = {n: v for n, v in env.items() if n not in base.neutral_env}
    for one in version.routes:
        if _fits(args, one.args, one.optional) and _fits(variables, one.env, {}):
            return one
    told = [f"{_flag(name)} {value}" for name, value in args.items()]
    told += [f"{name}={value}" for name, value in variables.items()]
    return Unknown(f"the profile knows nothing of {', '.join(told)}")


def _fits(given: Mapping[str, Any], wanted: Mapping[str, Any], optional: Mapping[str, Any]) -> bool:
    """Everything wanted is given, and nothing is given that is neither wanted nor optional."""
    allowed = {**optional, **wanted}
    return wanted.keys() <= given.keys() and all(
        name in allowed and allowed[name] in (ANY, value) for name, value in given.items()
    )


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def load(serving: Serving, workload: Workload) -> Unknown | None:
    """None when the figure holds for a workload, else what of it is unknown."""
    shape = serving.known_for
    if workload.concurrency not in shape.concurrency:
        asked = (
            f"{workload.concurrency} requests at once"
            if workload.concurrency
            else "requests that arrive at a rate or all at once"
        )
        known = " or ".join(map(str, shape.concurrency))
        return Unknown(f"the profile knows concurrency {known}, and nothing of {asked}")
    if workload.dataset is not None:
        return Unknown("the profile knows generated prompts, and nothing of those of a dataset")
    for what, lengths, (low, high) in (
        ("prompts", workload.input_tokens, shape.input_tokens),
        ("answers", workload.output_tokens, shape.output_tokens),
    ):
        least, most = _range(lengths)
        if least < low or most > high:
            beyond = least if least < low else most
            return Unknown(f"the profile knows {what} of {low} to {high} tokens, and nothing of {beyond:g}")
    return None


def _range(lengths: Lengths) -> tuple[float, float]:
    return (lengths.mean, lengths.mean) if lengths.kind == "fixed" else (lengths.low, lengths.high)
