from __future__ import annotations

import stat
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.check.engine_flags import EngineFlags
from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.model import EngineBuild

if TYPE_CHECKING:
    from pathlib import Path

BUILD = EngineBuild(name="sglang", version="0.5.9")

LAUNCHER = """
import argparse, pathlib
here = pathlib.Path(__file__).parent
(here / "asked").write_text((here / "asked").read_text() + "x" if (here / "asked").exists() else "x")
{before}
parser = argparse.ArgumentParser()
for number in range(30):
    parser.add_argument(f"--flag-{{number}}", help="A flag.")
parser.parse_args()
"""


class Fake:
    """An interpreter whose `-m sglang.launch_server` is a program of ours, and which counts the questions."""

    def __init__(self, folder: Path, before: str = "") -> None:
        self.package = folder / "sglang"
        self.package.mkdir(exist_ok=True)
        (self.package / "__init__.py").touch()
        (self.package / "launch_server.py").write_text(LAUNCHER.format(before=before))
        (self.package / "srt").mkdir(exist_ok=True)
        (self.package / "srt" / "server_args.py").write_text(
            textwrap.dedent("""
                import os
                os.environ.get("SGLANG_SOMETHING")
                class ServerArgs:
                    tp_size: A[int, "Size."] = 1
                    overlap: A[bool, "Overlap."] = False
            """)
        )
        self.site = Site(python=sys.executable, env={"PYTHONPATH": str(folder)})

    @property
    def questions(self) -> int:
        file = self.package / "asked"
        return len(file.read_text()) if file.exists() else 0


def test_help_is_asked_once_for_an_interpreter_and_version(tmp_path: Path) -> None:
    fake, cache = Fake(tmp_path), tmp_path / "cache"
    for _ in range(2):  # another process finds it in the folder
        flags = EngineFlags(cache)
        for _ in range(2):
            found = flags.get(BUILD, fake.site)
            assert found is not None and found.page.find("flag-7").kind == "exact"
            assert found.problem == "" and found.page.origin == "help"
            assert found.variables == {"SGLANG_SOMETHING"}
    assert fake.questions == 1
    EngineFlags(cache, refresh=True).get(BUILD, fake.site)
    assert fake.questions == 2
    EngineFlags(cache).get(EngineBuild(name="sglang", version="0.5.10"), fake.site)
    assert fake.questions == 3


def test_where_help_fails_the_source_is_read(tmp_path: Path) -> None:
    fake = Fake(tmp_path, before='raise ImportError("libcuda.so.1: cannot open")')
    found = EngineFlags(tmp_path / "cache").get(BUILD, fake.site)
    assert found is not None and found.page.origin == "source"
    assert found.problem == "its --help failed: ImportError: libcuda.so.1: cannot open"
    assert found.page.find("tp-size").kind == "exact"
    overlap = found.page.find("overlap").flag
    assert overlap is not None and overlap.switch
    assert found.page.find("no-overlap").kind == "exact"


def test_a_page_of_few_flags_is_some_other_programs(tmp_path: Path) -> None:
    fake = Fake(tmp_path, before="print('usage: x'); raise SystemExit(0)")
    found = EngineFlags(tmp_path / "cache").get(BUILD, fake.site)
    assert found is not None and found.page.origin == "source"


def test_before_a_launch_nobody_runs_help(tmp_path: Path) -> None:
    fake, cache = Fake(tmp_path), tmp_path / "cache"
    assert EngineFlags(cache).get(BUILD, fake.site, how="known") is None
    found = EngineFlags(cache).get(BUILD, fake.site, how="source")
    assert found is not None and found.page.origin == "source"
    assert fake.questions == 0
    # A check that may take its time asks after all, and a launch has the page from then on.
    asked = EngineFlags(cache).get(BUILD, fake.site)
    assert asked is not None and asked.page.origin == "help"
    again = EngineFlags(cache).get(BUILD, fake.site, how="source")
    assert again is not None and again.page.origin == "help"
    assert fake.questions == 1


def test_an_engine_without_page(tmp_path: Path) -> None:
    other = EngineBuild(name="openai", version="1")
    assert EngineFlags(tmp_path).get(other, Site(python=sys.executable)) is None


def test_an_interpreter_without_the_engine(tmp_path: Path) -> None:
    assert EngineFlags(tmp_path / "cache").get(BUILD, Site(python=sys.executable)) is None
    assert EngineFlags(tmp_path / "cache").get(BUILD, Site(python="/nowhere/python")) is None


def test_a_broken_or_older_file_is_asked_again(tmp_path: Path) -> None:
    fake, cache = Fake(tmp_path), tmp_path / "cache"
    EngineFlags(cache).get(BUILD, fake.site)
    (file,) = cache.iterdir()
    assert file.name.startswith("sglang-0.5.9-")
    for text in ("{", '{"page": {"flags": []}, "format": 0}'):
        file.write_text(text)
        EngineFlags(cache).get(BUILD, fake.site)
    assert fake.questions == 3


@pytest.mark.skipif(sys.platform == "win32", reason="permissions")
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    blocked.chmod(stat.S_IRUSR)
    assert EngineFlags(blocked / "cache").get(BUILD, fake.site) is not None
