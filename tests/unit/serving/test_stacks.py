"""What processes do, with and without py-spy."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from pytest_gpuserve.serving import stacks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_without_py_spy_the_threads_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        asleep = f"thread {process.pid} sleep: state S"
        text, end = "", time.monotonic() + 30
        while asleep not in text and time.monotonic() < end:  # it has not quite begun, or still runs
            time.sleep(0.01)
            text = stacks.dump([process.pid, 2**22 + 1])
        process.kill()
    assert text.startswith("py-spy is not installed")
    assert f"process {process.pid} (/bin/sleep 60)" in text
    assert asleep in text
    assert "it is gone" in text


def test_py_spy_beside_the_engines_interpreter_is_used(tmp_path: Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\n[ $3 = 1 ] && { echo no permission >&2; exit 1; }\necho stack of $3\n")
    tool.chmod(0o755)
    text = stacks.dump([os.getpid(), 1], beside=str(tmp_path / "python"))
    assert f"stack of {os.getpid()}" in text
    assert "py-spy: no permission" in text


def test_many_processes_are_cut() -> None:
    assert "and 8 more processes" in stacks.dump([2**22 + 1] * 40)
