"""pytest's ini file, as far as the commands need it: they run without pytest and find the same folders."""

from __future__ import annotations

import configparser
import shlex
import tomllib
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KNOWN = "gpuserve_known"

_TABLES = {
    "pytest.toml": (("pytest",),),
    ".pytest.toml": (("pytest",),),
    "pytest.ini": (("pytest",),),
    ".pytest.ini": (("pytest",),),
    "pyproject.toml": (("tool", "pytest", "ini_options"), ("tool", "pytest")),
    "tox.ini": (("pytest",),),
    "setup.cfg": (("tool:pytest",),),
}
"""Files in pytest's order, and the tables in which their settings stand."""

_ALWAYS = {"pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"}
"""These are pytest's even without its table, so that none further up counts."""


def known_folders(start: Path, given: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Folders of one's own dead ends: those of the ini `gpuserve_known`, and those given besides; none twice.

    The ini file is looked for in `start` and above, as pytest does. Raises InputError when it cannot be read.
    """
    found: dict[Path, Path] = {}
    for folder in (*_of_ini(start), *given):
        found.setdefault(folder.resolve(), folder)
    return tuple(found.values())


def _of_ini(start: Path) -> list[Path]:
    start = start.resolve()
    for folder in (start, *start.parents):
        for name in _TABLES:
            file = folder / name
            if file.is_file() and (settings := _settings(file)) is not None:
                return [folder / each for each in _paths(file, settings.get(KNOWN, []))]
    return []


def _settings(file: Path) -> Mapping[str, Any] | None:
    """pytest's table in a file; None when it has none and is not pytest's own."""
    content = _toml(file) if file.suffix == ".toml" else _ini(file)
    for keys in _TABLES[file.name]:
        table: Any = content
        for key in keys:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return table
    return {} if file.name in _ALWAYS else None


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}") from None


def _ini(file: Path) -> dict[str, Any]:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error) as error:
        raise InputError(f"{file}: {' '.join(str(error).split())}") from None
    return {name: dict(parser[name]) for name in parser.sections()}


def _paths(file: Path, written: Any) -> list[str]:
    """A text is split as a shell would, a list is taken as it stands: pytest's settings of type `paths`."""
    if written is None or isinstance(written, str):
        try:
            return shlex.split(written or "", comments=False)
        except ValueError as error:
            raise InputError(f"{file}: {KNOWN}: {error}") from None
    if isinstance(written, list) and all(isinstance(each, str) for each in written):
        return written
    raise InputError(f"{file}: {KNOWN}: {written!r} is no list of folders")
