"""What the processes of a server are doing when it does nothing: py-spy where it is installed, else what
/proc tells.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from . import processes

if TYPE_CHECKING:
    from collections.abc import Sequence

PY_SPY_S = 15.0
MOST_PROCESSES = 32


def dump(pids: Sequence[int], *, beside: str = "") -> str:
    """Stacks of the processes as text. `beside` is the engine's interpreter, next to which py-spy may lie."""
    tool = _py_spy(beside)
    parts = [f"stacks by {tool}" if tool else "py-spy is not installed; what /proc tells instead"]
    parts += [_of(pid, tool) for pid in pids[:MOST_PROCESSES]]
    if len(pids) > MOST_PROCESSES:
        parts.append(f"... and {len(pids) - MOST_PROCESSES} more processes")
    return "\n\n".join(parts) + "\n"


def _py_spy(beside: str) -> str | None:
    near = Path(beside).parent / "py-spy" if beside else None
    if near is not None and near.is_file():
        return str(near)
    return shutil.which("py-spy")


def _of(pid: int, tool: str | None) -> str:
    head = f"process {processes.describe(pid)}"
    if tool:
        try:
            done = subprocess.run(
                [tool, "dump", "--pid", str(pid)],
                capture_output=True,
                text=True,
                timeout=PY_SPY_S,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout.rstrip()
            head += f"\n  py-spy: {done.stderr.strip() or done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            head += f"\n  py-spy: {error}"
    return head + "\n" + "\n".join(_threads(pid))


def _threads(pid: int) -> list[str]:
    """One line a thread: its name, its state and where in the kernel it waits."""
    lines = []
    try:
        threads = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    except OSError:
        return ["  it is gone"]
    for thread in threads:
        state = (_read(thread / "stat").rpartition(")")[2].split() or ["?"])[0]
        where = _read(thread / "wchan").strip()
        where = "user code or unknown" if where in ("", "0") else where
        lines.append(f"  thread {thread.name} {_read(thread / 'comm').strip()}: state {state}, in {where}")
        lines += [f"    {row}" for row in _read(thread / "stack").splitlines()]
    return lines


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
