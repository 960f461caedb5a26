"""Version ranges of the registry: `>=0.5.8,<0.5.14`.

The upper bound is exclusive, and a pre-release counts as the release it leads to: 0.5.14rc1 has what is new
in 0.5.14, so it lies in `>=0.5.14` and not in `<0.5.14`. A post-release belongs to its release: 0.5.13.post1
lies in `<0.5.14`. (PEP 440 would put 0.5.14rc1 into neither.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

ALLOWED = (">=", "<", "==")
"""Operators of a range; `<=` is not among them, because 0.5.13.post1 comes after 0.5.13."""


def problem(text: str) -> str | None:
    """What is wrong with a range, or None."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        parts = list(SpecifierSet(text))
    except InvalidSpecifier:
        return f"{text!r} is no version range such as '>=0.5.8,<0.5.14'"
    for part in parts:
        if part.operator == "<=":
            return f"{text!r}: the upper bound is exclusive, write `<` and the next version"
        if part.operator not in ALLOWED:
            return f"{text!r}: {part.operator} is none of {', '.join(ALLOWED)}"
    return None


def contains(text: str, version: str) -> bool:
    """Whether a version lies in a range; a text that is no version lies in the empty range alone."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    if not text:
        return True
    try:
        return SpecifierSet(text).contains(settled(version), prereleases=True)
    except InvalidVersion:
        return False


def disjoint(one: str, other: str) -> bool:
    """Whether two ranges have no version in common, as far as their bounds tell."""
    (low_one, high_one), (low_other, high_other) = _bounds(one), _bounds(other)
    low = max((bound for bound in (low_one, low_other) if bound is not None), default=None)
    high = min((bound for bound in (high_one, high_other) if bound is not None), default=None)
    if low is None or high is None:
        return False
    return low > high  # at equal versions the second parts tell whether both include it


def _bounds(text: str) -> tuple[tuple[Version, int] | None, tuple[Version, int] | None]:
    """The lower and the upper bound, each with 1 or -1 where it is excluded itself."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    lows: list[tuple[Version, int]] = []
    highs: list[tuple[Version, int]] = []
    for part in SpecifierSet(text):
        try:
            version = settled(part.version)
        except InvalidVersion:  # ==0.5.*
            continue
        if part.operator in (">=", ">", "=="):
            lows.append((version, int(part.operator == ">")))
        if part.operator in ("<=", "<", "=="):
            highs.append((version, -int(part.operator == "<")))
    return max(lows, default=None), min(highs, default=None)


def settled(version: str) -> Version:
    """A version as ranges count it: a pre-release as its release, a post-release as it is, no local part."""
    from packaging.version import Version

    found = Version(version)
    release = ".".join(map(str, found.release))
    post = f".post{found.post}" if found.post is not None else ""
    return Version(f"{found.epoch}!{release}{post}")
