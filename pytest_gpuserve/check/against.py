"""What an upgrade changes for an option: demands, settings and warnings that come, go, or read differently.

Statements are compared with the names of objects taken away (`self.tp_size`, `cfg.tp_size` and
`resolved_view(args).tp_size` are one option), so that moved code is no change. Line numbers do not count.
"""

from __future__ import annotations

import ast
import difflib
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import InputError
from .explain import Explanation, explain
from .explain_text import WIDTH, WORDED, conditions_of, title, wrapped
from .site import Site

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .options import Layout
    from .package import Package

KINDS = {"demand": "Demands", "setting": "Settings", "overridden": "Overrides", "warning": "Messages"}
ALIKE = 0.6
"""Similarity from which two texts count as one that was rewritten."""


class Statement(Struct, frozen=True, kw_only=True):
    """A site without what may differ between versions that do the same."""

    kind: str
    conditions: tuple[str, ...]
    code: str
    message: str
    site: Site

    @property
    def key(self) -> tuple[str, tuple[str, ...], str, str]:
        return self.kind, self.conditions, self.code, self.message

    @property
    def text(self) -> str:
        return " ".join([*self.conditions, self.code, self.message])


class Change(Struct, frozen=True, kw_only=True):
    """What differs from `old` to `new`. One of these is None when that version lacks the option."""

    question: str
    old_version: str
    new_version: str
    old: Explanation | None
    new: Explanation | None
    missing: str = ""
    """Why one of the versions has nothing to say."""
    declaration: list[str]
    """How the option itself changed: choices, default, deprecation."""
    added: list[Statement]
    removed: list[Statement]
    changed: list[tuple[Statement, Statement]]
    same: int

    @property
    def any(self) -> bool:
        return bool(self.missing or self.declaration or self.added or self.removed or self.changed)


def compare(one: Package, other: Package, layout: Layout, question: str, given: Iterable[str] = ()) -> Change:
    """The change from the older of two versions to the newer one, whichever was named first.

    InputError when neither has the option.
    """
    old, new = sorted((one, other), key=lambda package: _version(package.version))
    found: list[Explanation | None] = []
    problems: list[str] = []
    for package in (old, new):
        try:
            found.append(explain(package, layout, question, given))
        except InputError as error:
            found.append(None)
            problems.append(str(error))
    if len(problems) == 2:
        raise InputError(problems[1])
    before, after = ([_statement(s, e) for s in _sites(e)] if e else [] for e in found)
    added, removed, changed, same = match(before, after)
    return Change(
        question=question,
        old_version=old.version,
        new_version=new.version,
        old=found[0],
        new=found[1],
        missing="; ".join(problems),
        declaration=_declaration(found[0], found[1]) if found[0] and found[1] else [],
        added=added,
        removed=removed,
        changed=changed,
        same=same,
    )


def match(
    before: list[Statement], after: list[Statement]
) -> tuple[list[Statement], list[Statement], list[tuple[Statement, Statement]], int]:
    """(added, removed, changed, how many are the same): equal ones first, then the most alike of a kind."""
    left = {one.key: one for one in before}
    right = {one.key: one for one in after}
    same = len(left.keys() & right.keys())
    gone = [one for key, one in left.items() if key not in right]
    come = [one for key, one in right.items() if key not in left]
    pairs = sorted(
        (
            (ratio, i, j)
            for i, old in enumerate(gone)
            for j, new in enumerate(come)
            if old.kind == new.kind and (ratio := _alike(old, new)) >= ALIKE
        ),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    old_left, new_left = set(range(len(gone))), set(range(len(come)))
    changed: list[tuple[Statement, Statement]] = []
    for _, i, j in pairs:
        if i in old_left and j in new_left:
            old_left.discard(i)
            new_left.discard(j)
            changed.append((gone[i], come[j]))
    return [come[j] for j in sorted(new_left)], [gone[i] for i in sorted(old_left)], changed, same


def _alike(old: Statement, new: Statement) -> float:
    texts = (old.message, new.message) if old.message and new.message else (old.code, new.code)
    matcher = difflib.SequenceMatcher(None, *texts, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0.0


def _version(text: str) -> Any:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _sites(found: Explanation) -> list[Site]:
    return [site for kind in KINDS for site in found.of_kind(kind)]


def _statement(site: Site, found: Explanation) -> Statement:
    if site.kind in ("setting", "overridden"):
        code = f"{site.sets} = {normalised(site.value, found.known)}"
    elif site.kind == "demand":
        code = site.exception if site.code.startswith("raise") else normalised(site.code, found.known)
    else:
        code = site.level
    return Statement(
        kind=site.kind,
        # Whatever the value asked about makes certain may be written in many ways.
        conditions=tuple(
            normalised(one.code, found.known)
            for one in conditions_of(site)
            if not (one.of_option and one.holds)
        ),
        code=code,
        message=re.sub(r"\{[^{}]*\}", "{}", site.message),
        site=site,
    )


def normalised(code: str, known: frozenset[str]) -> str:
    """Source with `self.`, `cfg.` and the like before an option's name taken away, on one line."""
    statement = code.startswith("assert ")
    try:
        tree: ast.AST = ast.parse(code) if statement else ast.parse(code, mode="eval")
    except SyntaxError:
        return " ".join(code.split())
    return " ".join(ast.unparse(_Bare(known).visit(tree)).split())


class _Bare(ast.NodeTransformer):
    def __init__(self, known: frozenset[str]) -> None:
        self._known = known

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in self._known:
            return ast.Name(node.attr, ast.Load())
        self.generic_visit(node)
        return node


def _declaration(old: Explanation, new: Explanation) -> list[str]:
    before, after = old.option, new.option
    told: list[str] = []
    added = [one for one in after.choices if one not in before.choices]
    removed = [one for one in before.choices if one not in after.choices]
    if before.choices and after.choices:
        told += [f"choices added: {', '.join(added)}"] if added else []
        told += [f"choices removed: {', '.join(removed)}"] if removed else []
    if before.default != after.default:
        told.append(f"default: {before.default} -> {after.default}")
    told += [f"--{flag} is gone" for flag in before.flags if flag not in after.flags]
    told += [f"--{flag} is new" for flag in after.flags if flag not in before.flags]
    told += [
        f"--{flag} is deprecated now: {text}"
        for flag, text in after.deprecated.items()
        if flag not in before.deprecated
    ]
    return told


def as_text(change: Change) -> str:
    """The change for people: demands first, `-` for what goes and `+` for what comes."""
    shown = change.new or change.old
    assert shown is not None
    lines = [f"{shown.package.name} {change.old_version} -> {change.new_version}: {title(shown)}"]
    lines += [f"  {one}" for one in ([change.missing] if change.missing else []) + change.declaration]
    for kind, heading in KINDS.items():
        added, removed = (
            [one for one in group if one.kind == kind] for group in (change.added, change.removed)
        )
        pairs = [pair for pair in change.changed if pair[0].kind == kind]
        if not (added or removed or pairs):
            continue
        lines += ["", f"{heading}: {len(added)} added, {len(removed)} removed, {len(pairs)} changed"]
        for old, new in pairs:
            lines += [*_signed("-", old), *_signed("+", new), ""]
        lines += [line for one in removed for line in (*_signed("-", one), "")]
        lines += [line for one in added for line in (*_signed("+", one), "")]
        lines.pop()
    lines += ["", f"{change.same} statements are the same." if change.any else "Nothing changes."]
    return "\n".join(lines) + "\n"


def _signed(sign: str, one: Statement) -> list[str]:
    site = one.site
    lines = [f"{sign} {site.file}:{site.line}  {site.function}"]
    lines += [f"    {c}" if c.startswith(WORDED) else f"    if {c}" for c in one.conditions]
    lines.append(f"    {one.code}{': ' if one.message else ''}{one.message}")
    return [lines[0][: WIDTH + 20], *(wrapped(line.strip(), f"{sign}     ") for line in lines[1:])]


def as_dict(change: Change) -> dict[str, Any]:
    """The change for programs."""
    return {
        "question": change.question,
        "old": change.old_version,
        "new": change.new_version,
        "missing": change.missing or None,
        "declaration": change.declaration,
        "added": [_told(one) for one in change.added],
        "removed": [_told(one) for one in change.removed],
        "changed": [{"old": _told(old), "new": _told(new)} for old, new in change.changed],
        "same": change.same,
    }


def _told(one: Statement) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "file": one.site.file,
        "line": one.site.line,
        "function": one.site.function,
        "when": list(one.conditions),
        "code": one.code,
        "message": one.site.message,
    }
