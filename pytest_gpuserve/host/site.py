"""`gpuserve.local.yaml`: what differs from host to host and does not belong in git.

    engines:
      sglang: {python: /opt/sglang/bin/python, build: patched, env: {HF_HOME: /models/hub}}
    models:
      llama1b: /models/llama1b
    leases: /var/lock/gpuserve

Paths are relative to the file's folder; `~` is the user's home.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field

from ..errors import SiteError
from ..yaml_source import load
from ..yaml_values import Environment, environment

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..yaml_source import Source
    from ..yaml_types import Keys

SITE_FILE = "gpuserve.local.yaml"


class EngineSite(Struct, frozen=True, kw_only=True):
    """What the site file says of one engine. None and empty: nothing."""

    python: str | None = None
    """Path of an interpreter, or a command to look up on the PATH."""
    build: str = "stock"
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Settings that only the engine itself understands."""


class SiteFile(Struct, frozen=True, kw_only=True):
    """This host's settings; all empty when there is no file."""

    path: Path | None = None
    engines: dict[str, EngineSite] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    """Model id -> absolute folder."""
    leases: Path | None = None

    def engine(self, name: str) -> EngineSite:
        """The settings of an engine, empty ones when the file does not name it."""
        return self.engines.get(name, EngineSite())


class _EngineSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    python: str | None = None
    build: Annotated[str, Meta(min_length=1)] = "stock"
    env: Environment = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


class _SiteSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    engines: dict[str, _EngineSpec] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    leases: str | None = None


def load_site(root: Path, *, engines: Collection[str] | None = None) -> SiteFile:
    """The settings in `root/gpuserve.local.yaml`, if there is one. Raises SiteError with file, line and key.

    `engines` are the engines there are; None: not checked.
    """
    path = root / SITE_FILE
    if not os.path.lexists(path):  # a link that leads nowhere is a mistake, not the lack of a file
        return SiteFile()
    source = load(path, SiteError)
    if source.data is None:
        return SiteFile(path=path)
    spec = source.convert((), _SiteSpec)
    for name in spec.engines:
        if engines is not None and name not in engines:
            raise source.error(("engines", name), "no such engine", near=(name, engines))
    return SiteFile(
        path=path,
        engines={
            name: _engine(source, ("engines", name), written, root) for name, written in spec.engines.items()
        },
        models={
            model: str(_path(source, ("models", model), folder, root))
            for model, folder in spec.models.items()
        },
        leases=_path(source, ("leases",), spec.leases, root) if spec.leases is not None else None,
    )


def _engine(source: Source, keys: Keys, spec: _EngineSpec, root: Path) -> EngineSite:
    python = spec.python
    if python is not None and "/" in python:
        python = str(_path(source, (*keys, "python"), python, root))
    elif python is not None and not python.strip():
        raise source.error((*keys, "python"), "an empty path")
    env = environment(source, (*keys, "env"), spec.env)
    for name, value in env.items():
        if value is None:
            raise source.error((*keys, "env", name), 'has no value; write "" for an empty one')
    return EngineSite(
        python=python,
        build=spec.build,
        env={name: value for name, value in env.items() if value is not None},
        options=spec.options,
    )


def _path(source: Source, keys: Keys, written: str, root: Path) -> Path:
    """An absolute path; links stay as they are, because virtual environments are found through theirs."""
    if not written.strip():
        raise source.error(keys, "an empty path")
    try:
        return root.absolute() / Path(written).expanduser()
    except RuntimeError:
        raise source.error(keys, f"{written!r} names the home of nobody") from None
