"""Models made on the spot, for running a real engine where none can be had: random parameters that answer
any prompt with printable text up to the length asked.

A suite names one as it names any model; every engine that is given the name finds a folder with a Hugging
Face model (safetensors, tokenizer, chat template) and a GGUF of the same weights. It is made the first time
it is asked for, in about a second and without any download, and kept in the user's cache folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from msgspec import Struct

from ...errors import EngineMissing, SiteError


class Shape(Struct, frozen=True, kw_only=True):
    """Of a Qwen2. Heads are 64 wide, half of them for keys and values: every engine takes that."""

    hidden: int
    feed_forward: int
    layers: int = 2

    @property
    def heads(self) -> int:
        return self.hidden // HEAD

    @property
    def kv_heads(self) -> int:
        return self.heads // 2


HEAD = 64
CONTEXT = 4096

MODELS = {
    # Half a million parameters: for engines whose own work takes a millisecond a token anyway.
    "gpuserve-tiny": Shape(hidden=128, feed_forward=256),
    # Nine million: llama.cpp answers the tiny one faster than a busy machine can tell its tokens apart.
    "gpuserve-small": Shape(hidden=512, feed_forward=2048),
}
EDITION = 1
"""Counts the changes of what is made, so that an old folder is not taken for a new one."""
GGUF = "model.gguf"


def folder(name: str) -> Path:
    """The folder of one of MODELS, made if it is not there yet.

    Raises EngineMissing without the packages that write it, and SiteError when the cache cannot be written.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pytest-gpuserve"
    made = home / f"{name}-{EDITION}"
    if made.is_dir():
        return made
    try:
        home.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=home))
    except OSError as error:
        raise SiteError(
            f"the model {name} cannot be made in {home}: {error.strerror}; XDG_CACHE_HOME moves it"
        ) from error
    try:
        make(name, draft)
        draft.chmod(0o755)
        draft.rename(made)
    except OSError:
        if not made.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def make(name: str, into: Path) -> None:
    """Write the model's files. The same bytes every time. Raises EngineMissing without gguf and
    safetensors.
    """
    try:
        from . import files
    except ImportError as error:
        raise EngineMissing(
            f"the model {name} is made with {error.name}, which is not installed: "
            "pip install 'pytest-gpuserve[local]'"
        ) from error
    files.write(name, into)
