"""Where a model lies on this host, and what its files say, read without any engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SiteError
from . import tiny_model

if TYPE_CHECKING:
    from ..model import ModelRef
    from .base import Site

FEWEST_TOKENS = 32000
"""Hardly any model has a smaller vocabulary; used when the model's files are not at hand."""


def locate(model: ModelRef, site: Site) -> str:
    """What to pass as the model: the folder that the site names, else the id, which the engine resolves.

    A model that is made on the spot is a folder too, made when it is not there yet. Raises SiteError when
    it is a folder that does not exist, so that nobody waits for an engine to say so.
    """
    named = site.models.get(model.id)
    if named is None and model.id in tiny_model.MODELS:
        return str(tiny_model.folder(model.id))
    path = named if named is not None else model.id
    if named is None and not path.startswith(("/", "./", "../", "~")):
        return path
    folder = Path(path).expanduser()
    if not folder.exists():
        told = f"gpuserve.local.yaml maps the model {model.id!r} to" if named is not None else "the model is"
        raise SiteError(f"{told} {folder}, which does not exist")
    return str(folder)


def local_folder(model: ModelRef, site: Site | None) -> Path | None:
    """The model's folder if it is on this host: mapped, given as a path, or in the Hugging Face cache."""
    models = site.models if site else {}
    if model.id in tiny_model.MODELS and model.id not in models:
        return tiny_model.folder(model.id)
    mapped = Path(models.get(model.id, model.id)).expanduser()
    if mapped.is_dir():
        return mapped
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{model.id.replace('/', '--')}"
    reference = cache / "refs" / (model.revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else (model.revision or "")
    folder = cache / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def ordinary_tokens(folder: Path | None) -> int:
    """Token ids below this may stand in a prompt, whatever the folder says or does not say."""
    return (vocabulary(folder) if folder else None) or FEWEST_TOKENS


def vocabulary(folder: Path) -> int | None:
    """Token ids below this are ordinary ones; None when the folder does not say.

    The vocabulary's size, cut where the special tokens at its end begin: one of those in a prompt means
    something (the placeholder of an image, a turn of a chat), and a server may refuse it.
    """
    config = _json(folder / "config.json")
    sizes = [config.get("vocab_size"), *(part.get("vocab_size") for part in config.values() if _is(part))]
    size = next((size for size in sizes if isinstance(size, int) and size > 0), None)
    if size is None:
        return None
    added = _json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
    numbers = (int(key) for key in added if key.isdecimal()) if _is(added) else ()
    special = [number for number in numbers if size // 2 <= number < size]
    return min([size, *special])


def settings(folder: Path) -> dict[str, Any] | None:
    """What the folder's config.json says; None when it cannot be read."""
    return _json(folder / "config.json") or None


def _is(part: Any) -> bool:
    return isinstance(part, dict)


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())  # UTF-8, whatever the locale says
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
