"""Few layers of a model: what of its config.json to override, so that it starts fast and is still the same model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNT = "num_hidden_layers"
NESTED = ("text_config", "llm_config", "language_config")
"""Where multimodal models keep the language model's settings, in the order in which SGLang looks for them
(`get_hf_text_config`, 0.5.9)."""
LEAST = 4
"""So many are kept at least: one alone meets no neighbour, and is the first and the last at once."""
BESIDE_DENSE = 2
"""A mixture of experts that begins with dense layers keeps so many of the others."""


class FewLayers(Struct, frozen=True, kw_only=True):
    """An override of a model's settings."""

    layers: int
    """As many are left."""
    of: int
    nested: str = ""
    """Key of the part that is overridden; empty where the settings lie at the top."""
    override: dict[str, Any]
    """As the whole config.json is laid out."""


def few_layers(settings: Mapping[str, Any], *, least: int = LEAST) -> FewLayers | None:
    """The override for a config.json, or None where it does not tell its layers or has too few to cut.

    Every kind of layer stays: mixtures of experts may begin with dense layers, hybrids take turns.
    """
    nested = next((key for key in NESTED if isinstance(settings.get(key), dict)), "")
    part: Mapping[str, Any] = settings[nested] if nested else settings
    count = part.get(COUNT)
    if not isinstance(count, int):
        return None
    # A list with an item a layer is cut with them.
    lists = {key: value for key, value in part.items() if isinstance(value, list) and len(value) == count}
    keep = max(
        least,
        LEAST,
        _number(part, "first_k_dense_replace") + BESIDE_DENSE,
        _number(part, "full_attention_interval"),
    )
    keep = max([keep, *(_until_all_kinds(value) for value in lists.values())])
    if keep >= count:
        return None
    changed = {COUNT: keep, **{key: value[:keep] for key, value in lists.items()}}
    return FewLayers(layers=keep, of=count, nested=nested, override={nested: changed} if nested else changed)


def _number(part: Mapping[str, Any], key: str) -> int:
    value = part.get(key)
    return value if isinstance(value, int) else 0


def _until_all_kinds(values: list[Any]) -> int:
    """How many from the first on hold every different value."""
    seen: list[Any] = []
    last = 0
    for index, value in enumerate(values):
        if value not in seen:
            seen.append(value)
            last = index + 1
    return last
