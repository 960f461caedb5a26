"""`--gpuserve-simulate[=engine==version]`: which build of which engine to simulate."""

from __future__ import annotations

import re

from ...errors import InputError
from .profile import DEFAULT_PROFILE, DEFAULT_VERSION, versions

OPTION = "--gpuserve-simulate"
ENGINE = "sglang"
"""The only engine that profiles describe so far."""


def parse_simulate(text: str | None, profile: str = DEFAULT_PROFILE) -> tuple[str, str]:
    """(engine, version) of the option's value; nothing means the founding story's build.

    Raises InputError that names the value: an option with an optional value swallows a path after it.
    """
    if text is None:
        return ENGINE, DEFAULT_VERSION
    there = ", ".join(f"{ENGINE}=={version}" for version in versions(profile))
    found = re.fullmatch(r"([A-Za-z0-9_-]+)==(\S+)", text)
    if found is None:
        hint = (
            f". Is it a path? Write {OPTION} after it, or with `=`"
            if "/" in text or "::" in text or text.endswith((".yaml", ".yml"))
            else ""
        )
        raise InputError(f"{OPTION}: {text!r} is no engine==version; there are: {there}{hint}")
    engine, version = found[1].lower(), found[2]
    if engine != ENGINE or version not in versions(profile):
        raise InputError(f"{OPTION}: the simulated host knows no {text!r}; there are: {there}")
    return engine, version
