"""A model made on the spot, for running a real engine where no model can be had: half a million random
parameters that answer any prompt with printable text up to the length asked.

A suite names it `gpuserve-tiny`; every engine that is given that name finds a folder with a Hugging Face
model (safetensors, tokenizer, chat template) and a GGUF of the same weights. It is made the first time it
is asked for, in less than a second and without any download, and kept in the user's cache folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ...errors import EngineMissing, SiteError

NAME = "gpuserve-tiny"
EDITION = 1
"""Counts the changes of what is made, so that an old folder is not taken for a new one."""
GGUF = "model.gguf"


def folder() -> Path:
    """The model's folder, made if it is not there yet.

    Raises EngineMissing without the packages that write it, and SiteError when the cache cannot be written.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pytest-gpuserve"
    made = home / f"{NAME}-{EDITION}"
    if made.is_dir():
        return made
    try:
        home.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{NAME}-", dir=home))
    except OSError as error:
        raise SiteError(
            f"the model {NAME} cannot be made in {home}: {error.strerror}; XDG_CACHE_HOME moves it"
        ) from error
    try:
        make(draft)
        draft.chmod(0o755)
        draft.rename(made)
    except OSError:
        if not made.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def make(into: Path) -> None:
    """Write the model's files. The same bytes every time. Raises EngineMissing without gguf and
    safetensors.
    """
    try:
        from . import files
    except ImportError as error:
        raise EngineMissing(
            f"the model {NAME} is made with {error.name}, which is not installed: "
            "pip install 'pytest-gpuserve[local]'"
        ) from error
    files.write(into)
