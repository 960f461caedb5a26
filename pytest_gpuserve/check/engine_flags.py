"""The flags and variables of an installed engine: its own `--help`, asked once for each version and interpreter.

What was learned is kept in the user's cache folder. Where `--help` cannot be had (it imports the engine, which
takes half a minute on a good day and fails without its libraries), the declarations in the source are read
instead, which takes half a second and was found to agree with the page.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from ..errors import EngineMissing
from .help_page import Flag, Page, parse
from .options import SGLANG, Layout, Options
from .package import Package, of_interpreter

if TYPE_CHECKING:
    from ..engines.base import Site
    from ..model import EngineBuild

HELP: dict[str, tuple[str, ...]] = {"sglang": ("-m", "sglang.launch_server", "--help")}
"""Arguments of the interpreter that print the page, by engine."""
LAYOUTS: dict[str, Layout] = {"sglang": SGLANG}
VARIABLES: dict[str, str] = {"sglang": r"\b(?:SGLANG|SGL)_[A-Z0-9_]+\b"}
"""Names that only the engine reads, by engine."""
PATIENCE_S = 180.0
FEWEST = 20
"""A page with fewer flags is some other program's, or an error's usage line."""
FORMAT = 1

How = Literal["ask", "source", "known"]


class Known(Struct, frozen=True, kw_only=True):
    """What is known of an engine."""

    page: Page
    variables: frozenset[str] = frozenset()
    """Environment variables of the engine's own that stand anywhere in its source; empty: not read."""
    problem: str = ""
    """Why `--help` could not be had."""
    format: int = FORMAT


class EngineFlags:
    """Flags by engine build, from memory, the cache folder, the engine itself, or its source."""

    def __init__(self, folder: Path | None = None, *, refresh: bool = False) -> None:
        self.folder = folder or cache_folder()
        self._refresh = refresh
        self._known: dict[Path, Known | None] = {}

    def get(self, build: EngineBuild, site: Site, *, how: How = "ask") -> Known | None:
        """What is known of the installed engine; None for an engine that has neither page nor source to read.

        `ask` runs `--help` if nobody has before, up to 3 minutes; `source` never runs it; `known` looks at
        what is there already and does nothing that takes time.
        """
        if build.name not in HELP:
            return None
        file = self.folder / _key(build, site)
        if file not in self._known:
            self._known[file] = None if self._refresh else _load(file)
        found = self._known[file]
        if found is not None and not (how == "ask" and found.problem == _NOT_ASKED):
            return found
        if how == "known":
            return None
        found = _ask(build.name, site) if how == "ask" else _from_source(build.name, site, _NOT_ASKED)
        self._known[file] = found
        if found is not None:
            _store(file, found)
        return found


_NOT_ASKED = "nobody has asked it for --help yet; `gpuserve check` does"


def cache_folder() -> Path:
    """Where the pages are kept: `pytest-gpuserve/engines` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "pytest-gpuserve" / "engines"


def _key(build: EngineBuild, site: Site) -> str:
    """File name: the version to be read by people, the rest to tell installations apart."""
    python = Path(site.python).expanduser()
    # A virtual environment's interpreter is a link to another one, and the place of the link is what counts.
    parts = (str(python), build.build, site.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    version = re.sub(r"[^A-Za-z0-9._+-]", "_", build.version)
    return f"{build.name}-{version}-{digest}.json"


def _load(file: Path) -> Known | None:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Known)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.format == FORMAT else None


def _store(file: Path, found: Known) -> None:
    """Best effort: a read-only home costs the next run a question, and no more."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(msgspec.json.encode(found))
        part.replace(file)
    except OSError:
        pass


def _ask(engine: str, site: Site) -> Known | None:
    try:
        answer = subprocess.run(
            [str(Path(site.python).expanduser()), *HELP[engine]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
            # Python 3.14 would colour the page, and a narrow terminal bend it.
            env={**os.environ, **site.env, "NO_COLOR": "1", "COLUMNS": "120"},
        )
    except subprocess.TimeoutExpired:
        return _from_source(engine, site, f"its --help gave no answer within {PATIENCE_S:g} s")
    except OSError as error:
        return _from_source(engine, site, f"{site.python} cannot be run: {error.strerror}")
    page = parse(answer.stdout)
    if answer.returncode == 0 and len(page.flags) >= FEWEST:
        return Known(page=page, variables=_variables(engine, _package(engine, site)))
    said = [line for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    last = said[-1].strip() if said else f"exit status {answer.returncode}"
    return _from_source(engine, site, f"its --help failed: {last}")


def _from_source(engine: str, site: Site, problem: str) -> Known | None:
    package = _package(engine, site)
    if package is None:
        return None
    return Known(
        page=declared(package, LAYOUTS[engine]), variables=_variables(engine, package), problem=problem
    )


def _package(engine: str, site: Site) -> Package | None:
    layout = LAYOUTS[engine]
    try:
        return of_interpreter(site.python, layout.package, without=layout.without, env=site.env)
    except EngineMissing:
        return None


def declared(package: Package, layout: Layout) -> Page:
    """The flags as the source declares them."""
    flags: list[Flag] = []
    for option in Options(package, layout).fields.values():
        names = option.flags
        if not names:
            continue
        if option.switch:
            # BooleanOptionalAction adds them to some; the source does not always tell to which.
            names = (*names, *(f"no-{name}" for name in names))
        told = option.help or " ".join(option.deprecated.values())
        # How many values follow a flag that is no switch is not told by its type.
        least, most = (0, 0) if option.switch else (0, None)
        flags.append(Flag(names=names, choices=option.choices, least=least, most=most, help=told))
    return Page(flags=tuple(flags), origin="source")


def _variables(engine: str, package: Package | None) -> frozenset[str]:
    if package is None:
        return frozenset()
    pattern = re.compile(VARIABLES[engine].encode())
    return frozenset(name.decode() for text in package.files.values() for name in pattern.findall(text))
