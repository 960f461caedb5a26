from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.check.package import Package, at_path, of_interpreter
from pytest_gpuserve.errors import EngineMissing, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_folder_that_holds_the_package_or_is_it(old_folder: Path) -> None:
    assert at_path(old_folder, "sglang").root == at_path(old_folder / "sglang", "sglang").root


def test_a_folder_without_the_package(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no package 'sglang' there; name the folder that holds"):
        at_path(tmp_path, "sglang")


def test_the_version_is_that_of_the_metadata_before_that_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text('__version__ = "1.0"\n')
    assert at_path(tmp_path, "sglang").version == "1.0"
    (tmp_path / "sglang-1.0.post1.dist-info").mkdir()
    assert at_path(tmp_path, "sglang").version == "1.0.post1"


def test_an_interpreter_is_asked_without_importing(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('imported')\n")
    found = of_interpreter(sys.executable, "engine", env={"PYTHONPATH": str(tmp_path)})
    assert found.root == tmp_path / "engine"
    with pytest.raises(EngineMissing, match="does not have engine"):
        of_interpreter(sys.executable, "engine")
    with pytest.raises(EngineMissing, match="cannot be asked"):
        of_interpreter("/nowhere/python", "engine")


def test_names_are_resolved_through_imports(source: Callable[..., Package]) -> None:
    package = source(
        {"sub/__init__.py": "from .inner import *\nfrom ..b import one\n"},
        a="from .b import one as two\nfrom sglang import sub\nfrom sglang.sub import deep\n",
        b="one = 1\n",
        sub__inner="def deep(): ...\n",
        circle="from .circle import x\n",
    )

    def where(module: str, name: str) -> str | None:
        home = package.find(f"sglang.{module}")
        assert home is not None
        found = package.resolve(home, name)
        return found and found[0].dotted

    assert where("a", "two") == "sglang.b"
    assert where("a", "deep") == "sglang.sub.inner"
    assert where("sub", "one") == "sglang.b"
    assert where("circle", "x") is None
    assert where("a", "sub") is None  # a module, which is no definition
    assert package.find("os.path") is None


def test_only_names_that_are_assigned_once_are_definitions(source: Callable[..., Package]) -> None:
    text = (
        "A = 1\nB = 1\nB = 2\nC: int = 3\nif A:\n    D = 4\n"
        "try:\n    E = 5\nexcept Exception:\n    F = 6\nG = 7\ndef f():\n    global G\n    G = 8\n"
    )
    module = source(a=text).find("sglang.a")
    assert module is not None
    assert set(module.definitions) == {"A", "C", "D", "E", "F", "f"}
    assert isinstance(module.definitions["C"], ast.Constant)
