"""Live progress: one line when something changes, never one a second; where the line goes is the writer's
affair."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("pytest_gpuserve")


class Progress:
    """Says what a run is doing.

    `write` shows a line at once: on the terminal, or through a worker's stderr; None is silence. `urgent` does
    so for what nobody should have to ask for, such as a wait for GPUs, which looks like a hang. Either way
    the line goes to the logger `pytest_gpuserve` (info), so that `-o log_cli=true` and the captured log of a
    failure have it. A text that repeats the one before is dropped.
    """

    def __init__(
        self, write: Callable[[str], None] | None = None, urgent: Callable[[str], None] | None = None
    ) -> None:
        self._write = write
        self._urgent = urgent or write
        self._last = ""

    def say(self, text: str) -> None:
        self._show(text, self._write)

    def tell(self, text: str) -> None:
        """The same for what is urgent."""
        self._show(text, self._urgent)

    def _show(self, text: str, write: Callable[[str], None] | None) -> None:
        text = text.translate(CONTROLS)  # it may quote the command line of a stranger
        if text == self._last:
            return
        self._last = text
        logger.info("%s", text)
        if write is not None:
            write(text)
