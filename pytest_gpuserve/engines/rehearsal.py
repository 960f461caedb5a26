"""A config made cheap to start with the two flags that SGLang and vLLM have for it: random weights, few layers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from .base import Rehearsal
from .few_layers import COUNT, FewLayers, few_layers
from .flags import given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model import ArgValue, Config

WEIGHTS = "load-format"
"""The same flag, and `dummy` the same value, in SGLang and vLLM."""


class Overrides(Struct, frozen=True, kw_only=True):
    """How an engine changes what a model's config.json says."""

    flag: str
    """Without dashes; it takes a JSON object."""
    nested_since: str
    """The first version known to merge an object within into the model's own; others may replace all of it."""


def why_whole(*, memory: bool, draft: bool) -> str:
    """Why every layer must stay: what is asked is about memory, or a draft model hangs on them. Empty: it need not."""
    if memory:
        return "what is documented is about memory"
    return "a draft model reads from certain ones" if draft else ""


def cheap(
    config: Config,
    settings: Mapping[str, Any] | None,
    version: str,
    overrides: Overrides,
    *,
    all_layers: str = "",
) -> Rehearsal:
    """The config with what makes its start cheap: random weights, and few layers where they can be cut.

    `settings` is the model's config.json, None where it is not on this host; `version` the engine's.
    `all_layers` says why every layer must stay; empty: they need not.
    """
    own = {flag for flag in given(config) if flag in config.own_args or flag not in config.args}
    changes, args = [], dict(config.args)
    if WEIGHTS in own:
        changes.append(f"--{WEIGHTS} stays as the config sets it")
    else:
        args[WEIGHTS] = "dummy"
        changes.append(f"--{WEIGHTS} dummy: random weights, none are read")
    few, why = _fewer(config, settings, version, overrides)
    suite = _object(args.get(overrides.flag))
    if overrides.flag in own or suite is None:
        changes.append(f"all layers, unless the --{overrides.flag} of the config says otherwise, which stays")
    elif all_layers or few is None:
        changes.append(f"all layers: {all_layers or why}")
    else:
        args[overrides.flag] = _merged(suite, few.override)
        name = ".".join(filter(None, (few.nested, COUNT)))
        changes.append(f"--{overrides.flag} with {name} {few.layers}, of {few.of}")
    if settings is None:
        changes.append(
            f"the settings and the tokenizer of {config.model} are not on this host: the server fetches them "
            "from the hub, and cannot start without them"
        )
    return Rehearsal(config=replace(config, args=args), changes=tuple(changes))


def _fewer(
    config: Config, settings: Mapping[str, Any] | None, version: str, overrides: Overrides
) -> tuple[FewLayers | None, str]:
    """What to override, or None and why not."""
    if settings is None:
        return None, f"what to cut stands in the config.json of {config.model}, which is not on this host"
    stages = config.args.get("pp-size", config.args.get("pipeline-parallel-size", 1))
    few = few_layers(settings, least=2 * stages if isinstance(stages, int) else 1)
    if few is None:
        return None, "the model's config.json does not say how many there are, or they are few already"
    if few.nested and Version(version) < Version(overrides.nested_since):
        return None, (
            f"they stand in the model's {few.nested}, which {config.engine} {version} is not known to change in part "
            f"({overrides.nested_since} is)"
        )
    return few, ""


def _object(value: ArgValue | None) -> dict[str, Any] | None:
    """What the suite overrides for all of its configs; None for what is no JSON object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None if value is not None else {}


def _merged(suite: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """The suite's with ours in it."""
    found = dict(suite)
    for key, value in override.items():
        there = found.get(key)
        found[key] = {**there, **value} if isinstance(value, dict) and isinstance(there, dict) else value
    return found
