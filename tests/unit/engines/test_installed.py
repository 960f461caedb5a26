from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.engines.installed import installed, normalised
from pytest_gpuserve.errors import EngineMissing

if TYPE_CHECKING:
    from pathlib import Path


def ask(python: str, env: dict[str, str] | None = None, module: str = "toy_engine") -> dict[str, str]:
    return installed(python, env or {}, module=module, engine="toy").distributions


def test_what_this_interpreter_has() -> None:
    found = ask(sys.executable)
    assert found["msgspec"].split(".")[0].isdigit()
    assert "toy-engine" not in found


def test_metadata_on_the_python_path_counts(tmp_path: Path) -> None:
    info = tmp_path / "toy_engine-4.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Toy.Engine\nVersion: 4.2\n")
    assert ask(sys.executable, {"PYTHONPATH": str(tmp_path)})["toy-engine"] == "4.2"


@pytest.mark.parametrize("file", ["_version.py", "version.py", "__init__.py"])
def test_a_source_tree_tells_its_version_without_being_imported(tmp_path: Path, file: str) -> None:
    package = tmp_path / "toy_engine"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    with (package / file).open("a") as out:
        out.write("__version__ = version = '0.9.dev3'\n")
    assert ask(sys.executable, {"PYTHONPATH": str(tmp_path)})["toy_engine"] == "0.9.dev3"


def script(folder: Path, body: str) -> str:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


def test_an_interpreter_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(
        EngineMissing, match=r"does not exist\. Name one that has toy: .*gpuserve-engine-python"
    ):
        ask(str(tmp_path / "nowhere"))


def test_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    with pytest.raises(EngineMissing, match="cannot be run: Permission denied"):
        ask(str(tmp_path / "python"))


def test_something_else_than_python_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="is no Python that can be used for toy: I am a shell"):
        ask(script(tmp_path, "echo I am a shell >&2; exit 3"))


def test_bytes_that_are_no_text_are_quoted_as_well(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match=r"is no Python that can be used for toy: .* nothing"):
        ask(script(tmp_path, r"printf '\377\376 nothing\n'; exit 1"))


def test_a_chatty_interpreter_is_understood(tmp_path: Path) -> None:
    loud = script(tmp_path, f'echo welcome; exec {sys.executable} "$@"')
    assert "msgspec" in ask(loud)


def test_a_relative_path_is_one_from_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, f'exec {sys.executable} "$@"')
    monkeypatch.chdir(tmp_path)
    assert "msgspec" in ask("./python")


def test_it_is_asked_once(tmp_path: Path) -> None:
    counted = script(tmp_path, f'echo x >> {tmp_path}/count; exec {sys.executable} "$@"')
    ask(counted)
    ask(counted)
    assert (tmp_path / "count").read_text() == "x\n"


def test_names_are_compared_as_packaging_does() -> None:
    assert normalised("FlashInfer_Python") == normalised("flashinfer.python") == "flashinfer-python"
