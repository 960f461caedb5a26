"""What distributions an interpreter has: asked of the interpreter itself, without importing any of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import EngineMissing

if TYPE_CHECKING:
    from collections.abc import Mapping

# The fallback is for a source tree or an unpacked bundle on PYTHONPATH, which has no metadata.
_ASK = r"""
import importlib.metadata as metadata, importlib.util as util, json, pathlib, re, sys
found = {}
for distribution in metadata.distributions():
    name, version = distribution.metadata["Name"], distribution.version
    if name and version:
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
for module in sys.argv[1:]:
    spec = None if re.sub(r"[-_.]+", "-", module).lower() in found else util.find_spec(module)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name in ("_version.py", "version.py", "__init__.py"):
            file = pathlib.Path(folder, name)
            text = file.read_text(errors="replace") if file.is_file() else ""
            match = re.search(r"^(?:__version__|version)\b[^\n]*=\s*['\"](\d[^'\"]*)['\"]", text, re.M)
            if match and module not in found:
                found[module] = match[1]
print("gpuserve:" + json.dumps([sys.version.split()[0], found]))
"""


class Installed(Struct, frozen=True, kw_only=True):
    """The distributions of one interpreter, by normalised name (`flashinfer-python`), and its own version."""

    python_version: str
    distributions: dict[str, str]


def installed(python: str, env: Mapping[str, str], *, module: str, engine: str) -> Installed:
    """Ask `python`, with `env` on top of our own environment (PYTHONPATH matters); remembered.

    `module` is looked for on the path as well when it has no metadata. Raises EngineMissing when the
    interpreter cannot be used; whether the engine is among the distributions is the caller's question.
    """
    return _installed(interpreter(python), env.get("PYTHONPATH"), module, engine)


def interpreter(python: str) -> str:
    """An interpreter as it can be started from anywhere: absolute, or a bare name that PATH resolves."""
    return str(Path(python).expanduser().absolute()) if "/" in python else python


@lru_cache(maxsize=32)
def _installed(python: str, pythonpath: str | None, module: str, engine: str) -> Installed:
    environment = dict(os.environ)
    if pythonpath is not None:
        environment["PYTHONPATH"] = pythonpath
    try:
        # In our own working directory, which `python -m` will have on its path as well.
        answer = subprocess.run(
            [python, "-c", _ASK, module],
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # whatever was named as an interpreter may answer anything
            timeout=120,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise EngineMissing(
            _advice(f"the interpreter for {engine}, {python}, does not exist", engine)
        ) from None
    except (PermissionError, OSError) as error:
        raise EngineMissing(
            _advice(f"the interpreter for {engine}, {python}, cannot be run: {error.strerror}", engine)
        ) from None
    except subprocess.TimeoutExpired:
        raise EngineMissing(
            _advice(f"{python} did not say what it has installed within 120 s", engine)
        ) from None
    lines = [line for line in answer.stdout.splitlines() if line.startswith("gpuserve:")]
    if answer.returncode != 0 or not lines:
        said = (answer.stderr.strip() or answer.stdout.strip() or f"exit {answer.returncode}").splitlines()[
            -1
        ]
        raise EngineMissing(_advice(f"{python} is no Python that can be used for {engine}: {said}", engine))
    version, found = json.loads(lines[-1].removeprefix("gpuserve:"))
    return Installed(python_version=version, distributions=found)


def _advice(problem: str, engine: str) -> str:
    return (
        f"{problem}. Name one that has {engine}: `python:` under `engines: {engine}:` in "
        f"gpuserve.local.yaml, or --gpuserve-engine-python"
    )


def missing(python: str, engine: str, what: Installed) -> EngineMissing:
    """The error for an interpreter that works and does not have the engine."""
    return EngineMissing(
        _advice(f"{python} (Python {what.python_version}) does not have {engine} installed", engine)
    )


def normalised(name: str) -> str:
    """A distribution's name as PyPA compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()
