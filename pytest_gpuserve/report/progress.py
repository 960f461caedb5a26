"""Live progress: one line when something changes, never one a second; where the line goes is the writer's
affair."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("pytest_gpuserve")


class Progress:
    """Says what a run is doing.

    `write` shows a line at once: on the terminal, or through a worker's stderr; None is silence. Either way
    the line goes to the logger `pytest_gpuserve` (info), so that `-o log_cli=true` and the captured log of a
    failure have it. A text that repeats the one before is dropped.
    """

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write
        self._last = ""

    def say(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        logger.info("%s", text)
        if self._write is not None:
            self._write(text)
