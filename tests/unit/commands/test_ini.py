"""The commands find the folders of one's own dead ends where pytest does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuserve import cli
from pytest_gpuserve.commands.ini import known_folders
from pytest_gpuserve.errors import InputError

ENTRY = """\
engine: sglang
entries:
  our-own-backend:
    title: A backend of ours
    selects: {args: {attention-backend: ours}}
    behaviours:
      - kind: start
        reason: it is not built on this host
        match: {message: 'our backend is not built'}
        evidence: {kind: observed, source: here}
        way_out: "--attention-backend triton"
"""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\ngpuserve_known = mine 'of two words'\n"),
        ("pytest.ini", "[pytest]\naddopts = -q --x=%s\ngpuserve_known =\n    mine\n    'of two words'\n"),
        (".pytest.ini", "[pytest]\ngpuserve_known = mine 'of two words'\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\ngpuserve_known = ['mine', 'of two words']\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\ngpuserve_known = \"mine 'of two words'\"\n"),
        ("pyproject.toml", "[tool.pytest]\ngpuserve_known = ['mine', 'of two words']\n"),
        ("pytest.toml", "[pytest]\ngpuserve_known = ['mine', 'of two words']\n"),
        ("tox.ini", "[pytest]\ngpuserve_known = mine 'of two words'\n"),
        ("setup.cfg", "[tool:pytest]\ngpuserve_known = mine 'of two words'\n"),
    ],
)
def test_the_folders_lie_beside_the_file_that_names_them(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert known_folders(below) == (tmp_path / "mine", tmp_path / "of two words")


def test_the_nearest_file_of_pytest_counts_alone(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuserve_known = far\n")
    below = tmp_path / "below"
    below.mkdir()
    (below / "setup.cfg").write_text("[metadata]\nname = x\n")  # not pytest's
    assert known_folders(below) == (tmp_path / "far",)
    (below / "tox.ini").write_text("[pytest]\n")
    assert known_folders(below) == ()
    (tmp_path / "pytest.ini").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\ngpuserve_known = 'x'\n")
    assert known_folders(tmp_path) == ()


def test_those_given_come_besides_and_none_twice(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuserve_known = mine\n")
    same = tmp_path / "." / "mine"
    assert known_folders(tmp_path, [same, tmp_path / "other"]) == (tmp_path / "mine", tmp_path / "other")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("pyproject.toml", "[tool", "pyproject.toml: "),
        ("pytest.ini", "gpuserve_known = x\n", "pytest.ini: File contains no section headers"),
        ("pytest.ini", "[pytest]\ngpuserve_known = 'x\n", "gpuserve_known: No closing quotation"),
        ("pyproject.toml", "[tool.pytest]\ngpuserve_known = 3\n", "gpuserve_known: 3 is no list of folders"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError) as error:
        known_folders(tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\ngpuserve_known =\n    mine\n    # a remark\n    other\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\ngpuserve_known = ['mine', 'other']\n"),
        ("setup.cfg", "[tool:pytest]\ngpuserve_known = mine other\n"),
    ],
)
def test_pytest_reads_the_same(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    (tmp_path / "conftest.py").write_text(
        "def pytest_sessionstart(session):\n"
        "    print('KNOWN', *session.config.getini('gpuserve_known'), sep='|', end='|\\n')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_gpuserve.plugin", "--collect-only", "-s", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    line = next(line for line in ran.stdout.splitlines() if line.startswith("KNOWN|"))
    assert tuple(map(Path, line.split("|")[1:-1])) == known_folders(tmp_path)


def test_dead_ends_and_check_read_the_ini(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpuserve_known = mine\n")
    for argv in (["dead-ends"], ["check", "."]):
        assert cli.main(argv) == 2
        assert "mine (ini gpuserve_known) does not exist" in capsys.readouterr().err


def test_own_entries_are_listed_and_found_for_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\ngpuserve_known = ['mine']\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ours.yaml").write_text(ENTRY)
    (tmp_path / "server.log").write_text("RuntimeError: our backend is not built\n")
    assert cli.main(["dead-ends", "--flag", "attention-backend"]) == 0
    assert "our-own-backend" in capsys.readouterr().out
    assert cli.main(["classify", "server.log", "--engine", "sglang", "--exit-code", "1"]) == 0
    assert "documented: our-own-backend: --attention-backend triton" in capsys.readouterr().out
