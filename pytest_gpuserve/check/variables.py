"""Environment variables of the engine's own that nothing in the installed version reads: they do nothing."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from .engine_flags import VARIABLES
from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model import Config


def check_variables(config: Config, known: frozenset[str], version: str) -> Iterator[Finding]:
    """Variables that a config sets in vain. `known` are those that stand in the engine's source; empty: not read."""
    pattern = VARIABLES.get(config.engine)
    if not known or pattern is None:
        return
    for name in (*config.env, *config.env_from):
        if re.fullmatch(pattern, name) and name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.85)
            yield Finding(
                severity="warning",
                topic="variable",
                text=f"nothing in {config.engine} {version} reads {name}: it has no effect",
                advice=f"Did you mean {near[0]}?" if near else "Another version may",
            )
