"""Whether a config's models are where they are said to be: folders complete, hub names well formed."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.model_folder import local_folder, locate
from ..engines.tiny_model import MODELS
from ..errors import EngineMissing, SiteError
from ..model import ModelRef
from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.base import Site
    from ..model import Config

MODEL_FLAGS = ("speculative-draft-model-path", "speculative-draft-model", "tokenizer-path", "model-draft")
"""Flags that name a model, a folder or a file as well."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""Owner and name, as huggingface.co writes them."""
REMOTE = re.compile(r"^[a-z0-9]+://")
INDEX = "model.safetensors.index.json"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf", "*.pth")
GIB = 1 << 30


def check_models(config: Config, site: Site) -> Iterator[Finding]:
    """What is wrong with the model of a config and those that its flags name."""
    yield from _check(config.model, config, site, "the model")
    for flag in MODEL_FLAGS:
        value = config.args.get(flag)
        if isinstance(value, str):
            yield from _check(ModelRef(id=value), config, site, f"--{flag}")


def _check(model: ModelRef, config: Config, site: Site, what: str) -> Iterator[Finding]:
    if model.id in MODELS and model.id not in site.models:
        return  # made when it is asked for
    try:
        path = Path(locate(model, site)).expanduser()
        folder = local_folder(model, site)
    except (SiteError, EngineMissing) as error:
        yield Finding(severity="error", topic="model", text=f"{what}: {error}")
        return
    if path.is_file():
        return
    if folder is not None:
        yield from _folder(folder, config, what, model)
    elif not REMOTE.match(model.id):
        yield from _hub(model, what)


def _folder(folder: Path, config: Config, what: str, model: ModelRef) -> Iterator[Finding]:
    """A folder that a server would load from."""
    if any(folder.glob("*.gguf")):
        return
    if not (folder / "config.json").is_file():
        yield Finding(severity="error", topic="model", text=f"{what} {model.id}: {folder} has no config.json")
        return
    if config.args.get("load-format") == "dummy" or what == "--tokenizer-path":
        return
    missing = missing_weights(folder)
    if missing:
        listed = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        yield Finding(
            severity="error",
            topic="model",
            text=f"{what} {model.id}: {folder} lacks {len(missing)} of its weight files: {listed}",
            advice="The download may not have finished",
        )


def missing_weights(folder: Path) -> list[str]:
    """Weight files that the folder's index names and that are not there, or are links to nothing."""
    index = folder / INDEX
    if index.is_file():
        try:
            table: Any = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {})
        except (OSError, ValueError, AttributeError):
            return [INDEX]
        return sorted(name for name in set(table.values()) if not (folder / name).is_file())
    if not any(path.is_file() for pattern in WEIGHTS for path in folder.glob(pattern)):
        return ["any *.safetensors, *.bin or *.gguf"]
    return []


def _hub(model: ModelRef, what: str) -> Iterator[Finding]:
    if not HUB_NAME.fullmatch(model.id):
        yield Finding(
            severity="error",
            topic="model",
            text=f"{what} {model.id!r} is no folder here, and no name of a model on the hub (owner/name)",
            advice="Name its folder as `models:` in gpuserve.local.yaml",
        )
        return
    cache = hub_cache()
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        yield Finding(
            severity="error",
            topic="model",
            text=f"{what} {model.id} is not in {cache}, and HF_HUB_OFFLINE forbids to fetch it",
        )
        return
    yield Finding(
        severity="note",
        topic="model",
        text=f"{what} {model.id} is not on this host; it would be fetched to {cache}, {_free(cache)}",
    )


def hub_cache() -> Path:
    """Where models from the hub are kept."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()


def _free(path: Path) -> str:
    there = next((one for one in (path, *path.parents) if one.exists()), None)
    if there is None:
        return "which does not exist"
    return f"where {shutil.disk_usage(there).free / GIB:.0f} GiB are free"
