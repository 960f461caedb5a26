"""Real engines that take minutes to install. What is not there is not tested, and that is said loudly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SGLANG = "GPUSERVE_SGLANG_CPU"
"""Names the virtual environment that sglang_cpu/install.sh has made."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = [r for r in terminalreporter.getreports("skipped") if "sglang_cpu" in r.keywords]
    if skipped and not os.environ.get(SGLANG):
        terminalreporter.write_line(
            f"!!! REAL SGLANG WAS NOT TESTED: {len(skipped)} tests need {SGLANG}=FOLDER, "
            "which tests/engines/sglang_cpu/install.sh FOLDER makes in three minutes",
            red=True,
            bold=True,
        )
