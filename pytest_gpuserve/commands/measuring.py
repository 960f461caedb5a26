"""A run of pytest that a command needs: launches of the cases of a suite, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LAUNCHES = 8
"""As many as a baseline holds."""
JUDGED = (0, 1)
"""Exit codes of pytest after which there are records: all passed, or some failed, as all do that have no baseline."""


def is_suite(name: str | None) -> bool:
    """Whether a word names a suite, or cases in one, and not a run."""
    return name is not None and name.partition("::")[0].endswith((".yaml", ".yml"))


def measure(suite: str, *, launches: int, arguments: Sequence[str] = ()) -> Path:
    """Start each server of the selected cases so often; the folder of the run. pytest shows its progress.

    Raises InputError when pytest could not select or measure anything.
    """
    from ..report.store import new_folder, runs_folder

    if launches < 2:
        raise InputError(f"--launches {launches}: how launches scatter takes two of them or more")
    folder = new_folder(runs_folder()).absolute()
    command = [
        *(sys.executable, "-m", "pytest", suite, *arguments),
        *(f"--gpuserve-launches={launches}", f"--gpuserve-run-dir={folder}", "--benchmark-disable"),
    ]
    status = subprocess.run(command, check=False).returncode
    if status not in JUDGED:
        raise InputError(f"pytest ended with {status}, see above; nothing was measured")
    return folder
