"""The environment of a server: ours without pytest's part, what the engine wants, and what the supervisor
needs.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from typing import TYPE_CHECKING

from ..errors import StartFailed
from ..record import Failure
from .redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.base import Engine, Site
    from ..model import Config

PYTESTS_OWN = ("PYTEST_", "COV_CORE_")
TELLING = (
    *("NCCL_", "SGLANG_", "SGL_", "VLLM_", "CUDA_", "HF_", "TORCH", "PYTORCH_", "FLASHINFER_", "TRITON_"),
    *("NVIDIA_TF32_OVERRIDE", "OMP_", "LLAMA_", "GGML_", "LD_PRELOAD", "LD_LIBRARY_PATH"),
)
"""Prefixes of variables that change what an engine does; they go into the record."""


def demand(config: Config, ours: Mapping[str, str]) -> None:
    """Raise StartFailed when a variable that the suite passes on is not set."""
    missing = [name for name in config.env_from if name not in ours]
    if missing:
        text = f"env_from: not set in the environment: {', '.join(missing)}"
        raise StartFailed(text, failure=Failure(failure_class="environment", message=text, environment=True))


def compose(
    ours: Mapping[str, str], differs: Mapping[str, str | None], *, temporary: str
) -> tuple[dict[str, str], str | None]:
    """The whole environment of the engine, and the temporary folder to make for it unless it has its own
    TMPDIR.
    """
    result = {name: value for name, value in ours.items() if not name.startswith(PYTESTS_OWN)}
    for name, value in differs.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    # setproctitle would wipe the environment that /proc shows, and with it the nonce.
    result["SPT_NOENV"] = "1"
    result.setdefault("PYTHONUNBUFFERED", "1")
    if "TMPDIR" in differs:
        return result, None
    # torch keeps compiled kernels under TMPDIR unless told otherwise; they must outlive a launch.
    result.setdefault("TORCHINDUCTOR_CACHE_DIR", _inductor_folder())
    result["TMPDIR"] = temporary
    return result, temporary


def _inductor_folder() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = str(os.getuid())
    return os.path.join(tempfile.gettempdir(), f"torchinductor_{user}")  # noqa: PTH118


def telling(environment: Mapping[str, str], config: Config, site: Site) -> dict[str, str]:
    """What of it belongs in the record, sorted."""
    chosen = {*config.env, *site.env, *config.env_from}
    return {
        name: value
        for name, value in sorted(environment.items())
        if name in chosen or name.startswith(TELLING)
    }


def redactor(engine: Engine, config: Config, ours: Mapping[str, str]) -> Redactor:
    """Knows the values of `env_from`, of secret flags, and of variables named like secrets."""
    secret = [ours.get(name, "") for name in config.env_from]
    for flag in engine.secret_args:
        value = config.args.get(flag)
        if isinstance(value, str):
            secret.append(value)
    return Redactor(secret, {**ours, **config.env})
