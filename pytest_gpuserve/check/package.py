"""An engine's Python package as files on disk: found, searched and parsed, never imported."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import EngineMissing, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_FIND = (
    "import importlib.util as u, json, sys\n"
    "spec = u.find_spec(sys.argv[1])\n"
    "print('gpuserve:' + json.dumps(list(spec.submodule_search_locations or []) if spec else []))\n"
)
_HOPS = 6
"""Re-exports that a name is followed through."""


class Module:
    """One parsed file. `dotted` is its import name, `file` its path relative to the package's parent."""

    def __init__(self, path: Path, file: str, text: str) -> None:
        self.path = path
        self.file = file
        self.text = text
        self.tree = ast.parse(text)
        parts = file.removesuffix(".py").split("/")
        self.is_package = parts[-1] == "__init__"
        self.dotted = ".".join(parts[:-1] if self.is_package else parts)

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """Top-level functions, classes and names that are assigned exactly once; under `if` and `try` too."""
        found: dict[str, Definition] = {}
        again = {
            name
            for statement in _statements(self.tree.body)
            if isinstance(statement, ast.Global)
            for name in statement.names
        }
        for statement in _top_level(self.tree.body):
            if isinstance(statement, FunctionNode | ast.ClassDef):
                found[statement.name] = statement
                continue
            match statement:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.AnnAssign(target=only, value=ast.expr() as value):
                    targets = [only]
                case _:
                    continue
            for target in targets:
                if isinstance(target, ast.Name):
                    if target.id in found:
                        again.add(target.id)
                    found[target.id] = value
        return {name: node for name, node in found.items() if name not in again}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str | None]]:
        """Local name -> (module, name in it, or None for the module itself); those inside functions too."""
        found: dict[str, tuple[str, str | None]] = {}
        for node in _statements(self.tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                for alias in node.names:
                    found[alias.asname or alias.name] = (origin, alias.name)
        return found

    @cached_property
    def star_imports(self) -> list[str]:
        return [
            self._origin(node)
            for node in _statements(self.tree.body)
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        ]

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.dotted.split(".")
        kept = len(parts) - node.level + (1 if self.is_package else 0)
        return ".".join([*parts[:kept], *([node.module] if node.module else [])])

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {name: node for name, node in self.definitions.items() if isinstance(node, ast.ClassDef)}


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, nested ones too; ten times faster than `ast.walk`, which visits expressions."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, part, ()))
        for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _statements(inner.body)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _top_level(statement.body)
            yield from _top_level(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from _top_level(handler.body)


class Package:
    """The folder of a package, such as `.../site-packages/sglang`."""

    def __init__(self, root: Path, *, without: Sequence[str] = ()) -> None:
        self.root = root
        self.name = root.name
        self.without = tuple(without)
        """Sub-folders that are not looked at."""
        self._modules: dict[Path, Module | None] = {}
        self._words: dict[str, list[Path]] = {}
        self._common: dict[str, bool] = {}
        self._found: dict[str, Module | None] = {}

    @cached_property
    def version(self) -> str:
        """From the metadata beside it, else from its own version file; `unknown` otherwise."""
        for info in sorted(self.root.parent.glob(f"{self.name}-*.dist-info")):
            return info.name.removesuffix(".dist-info").partition("-")[2]
        for name in ("_version.py", "version.py", "__init__.py"):
            file = self.root / name
            text = file.read_text(errors="replace") if file.is_file() else ""
            match = re.search(r"^(?:__version__|version)\b[^\n]*=\s*['\"](\d[^'\"]*)['\"]", text, re.M)
            if match:
                return match[1]
        return "unknown"

    @cached_property
    def files(self) -> dict[Path, bytes]:
        """All its sources, read once: 40 MB take a tenth of a second when the disk cache is warm."""
        found: dict[Path, bytes] = {}
        for folder, folders, names in os.walk(self.root):
            inside = Path(folder)
            if inside == self.root:
                folders[:] = [name for name in folders if name not in self.without]
            folders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    found[inside / name] = (inside / name).read_bytes()
        return found

    def containing(self, words: Iterable[str]) -> list[Path]:
        """Sources in which one of the words stands, in order."""
        found = {path for word in words for path in self._with_word(word)}
        return [path for path in self.files if path in found]

    def _with_word(self, word: str) -> list[Path]:
        if word not in self._words:
            sought = word.encode()
            self._words[word] = [path for path, text in self.files.items() if sought in text]
        return self._words[word]

    def is_common(self, word: str, limit: int) -> bool:
        """Whether a word stands in more than `limit` sources; looks no further than that."""
        if word not in self._common:
            sought = word.encode()
            counted = itertools.islice((1 for text in self.files.values() if sought in text), limit + 1)
            self._common[word] = sum(counted) > limit
        return self._common[word]

    def module(self, path: Path) -> Module | None:
        """The parsed file; None when it is not there or no Python that we can read."""
        if path not in self._modules:
            self._modules[path] = self._parse(path)
        return self._modules[path]

    def _parse(self, path: Path) -> Module | None:
        raw = self.files.get(path)
        if raw is None:
            return None
        try:
            return Module(
                path, path.relative_to(self.root.parent).as_posix(), raw.decode("utf-8", errors="replace")
            )
        except (SyntaxError, ValueError):
            return None  # written for a newer Python than ours, or a template

    def find(self, dotted: str) -> Module | None:
        """The module of that import name, if it belongs to this package."""
        if dotted not in self._found:
            parts = dotted.split(".")
            if parts[0] != self.name:
                return None
            base = self.root.joinpath(*parts[1:])
            self._found[dotted] = self.module(base.with_suffix(".py")) or self.module(base / "__init__.py")
        return self._found[dotted]

    def resolve(self, module: Module, name: str, hops: int = _HOPS) -> tuple[Module, Definition] | None:
        """Where a name that `module` uses is defined, through imports and re-exports."""
        definition = module.definitions.get(name)
        if definition is not None:
            return module, definition
        if hops == 0:
            return None
        if name not in module.imports:
            stars = (self.find(origin) for origin in module.star_imports)
            return next(
                (found for star in stars if star and (found := self.resolve(star, name, hops - 1))), None
            )
        origin, inner = module.imports[name]
        other = self.find(origin)
        if other is None or inner is None or other is module:
            return None
        return self.resolve(other, inner, hops - 1)


def at_path(folder: Path, name: str, *, without: Sequence[str] = ()) -> Package:
    """The package `name` in `folder`, or `folder` itself when it is the package. InputError otherwise."""
    for root in (folder / name, folder):
        if (root / "__init__.py").is_file() and root.name == name:
            return Package(root.resolve(), without=without)
    raise InputError(f"{folder}: no package {name!r} there; name the folder that holds `{name}/__init__.py`")


def of_interpreter(
    python: str, name: str, *, without: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Package:
    """The package that an interpreter would import, asked without importing it. EngineMissing otherwise.

    `env` comes on top of our own environment: PYTHONPATH matters.
    """
    try:
        answer = subprocess.run(
            [str(Path(python).expanduser()), "-c", _FIND, name],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, **(env or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineMissing(f"the interpreter {python} cannot be asked where {name} is: {error}") from None
    lines = [line for line in answer.stdout.splitlines() if line.startswith("gpuserve:")]
    folders = json.loads(lines[-1].removeprefix("gpuserve:")) if lines else []
    if not folders:
        raise EngineMissing(f"{python} does not have {name}")
    return Package(Path(folders[0]), without=without)
