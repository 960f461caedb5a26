"""How an SGLang config is made cheap to start: random weights, and few layers where its version can cut them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from packaging.version import Version

from .base import Rehearsal
from .few_layers import FewLayers, few_layers
from .flags import given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model import ArgValue, Config

WEIGHTS, SETTINGS = "load-format", "json-model-override-args"
MERGES = Version("0.5.19")
"""From here on a nested part of an override is merged into the model's (`hf_transformers/config.py`, `get_config`);
0.5.9 to 0.5.16 replace the whole part by it, which breaks the model. 0.5.17 and 0.5.18 were not read."""


def cheap(
    config: Config, settings: Mapping[str, Any] | None, version: str, *, all_layers: str = ""
) -> Rehearsal:
    """The config with what makes its start cheap.

    `settings` is the model's config.json, None where it is not on this host. `all_layers` says why every layer
    must stay; empty: they need not.
    """
    own = set(given(config)) - (set(config.args) - config.own_args)
    changes, args = [], dict(config.args)
    if WEIGHTS in own:
        changes.append(f"--{WEIGHTS} stays as the config sets it")
    else:
        args[WEIGHTS] = "dummy"
        changes.append(f"--{WEIGHTS} dummy: random weights, none are read")
    few, why = _fewer(config, settings, version)
    if SETTINGS in own:
        changes.append(f"all layers: the config sets --{SETTINGS} itself")
    elif all_layers or few is None:
        changes.append(f"all layers: {all_layers or why}")
    else:
        merged = _merged(args.get(SETTINGS), few.override)
        args[SETTINGS] = merged
        changes.append(f"--{SETTINGS} '{json.dumps(few.override)}': {few.layers} of {few.of} layers")
    if settings is None:
        changes.append(
            f"the settings and the tokenizer of {config.model} are not on this host: the server fetches them "
            "from the hub, and cannot start without them"
        )
    return Rehearsal(config=replace(config, args=args), changes=tuple(changes))


def _fewer(config: Config, settings: Mapping[str, Any] | None, version: str) -> tuple[FewLayers | None, str]:
    """What to override, or None and why not."""
    if settings is None:
        return None, f"what to cut stands in the config.json of {config.model}, which is not on this host"
    stages = config.args.get("pp-size", config.args.get("pipeline-parallel-size", 1))
    few = few_layers(settings, least=2 * stages if isinstance(stages, int) else 1)
    if few is None:
        return None, "the model's config.json does not say how many there are, or they are few already"
    if few.nested and Version(version) < MERGES:
        return None, (
            f"they stand in the model's {few.nested}, which SGLang {version} cannot change in part "
            f"({MERGES} can)"
        )
    return few, ""


def _merged(suite: ArgValue | None, override: dict[str, Any]) -> dict[str, Any]:
    """What the suite overrides for all of its configs, with ours in it."""
    base = json.loads(suite) if isinstance(suite, str) else suite
    found = dict(base) if isinstance(base, dict) else {}
    for key, value in override.items():
        there = found.get(key)
        found[key] = {**there, **value} if isinstance(value, dict) and isinstance(there, dict) else value
    return found
