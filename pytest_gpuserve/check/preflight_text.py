"""What `gpuserve check` prints: problems first, config by config, then a line of counts."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from .finding import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .finding import Finding, Severity
    from .preflight import Checked, Report

WIDTH = 110
MARK: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}


def as_text(report: Report, *, quiet: bool = False) -> str:
    """The report for people. `quiet`: only errors and warnings."""
    shown: frozenset[Severity] = frozenset(("error", "warning") if quiet else SEVERITIES)
    lines = [line for one in report.suites for line in _told(one)]
    lines += [line for one in report.host if one.severity in shown for line in _told(one)]
    common = _common(report.configs)
    for finding, count in common.items():
        if finding.severity in shown:
            lines += _told(finding, prefix=f"{count} configs: ")
    for config in report.configs:
        lines += _config(config, shown, common)
    lines += ["", _summary(report)] if lines else [_summary(report)]
    return "\n".join(lines) + "\n"


def _common(configs: Iterable[Checked]) -> dict[Finding, int]:
    """What is found for three configs and more is told once."""
    counts = Counter(one for config in configs for one in config.findings if one.topic != "dead end")
    return {finding: count for finding, count in counts.items() if count > 2}


def _config(config: Checked, shown: frozenset[Severity], common: dict[Finding, int]) -> Iterator[str]:
    own = [one for one in config.findings if one.severity in shown and one not in common]
    if not own:
        return
    yield f"{config.suite}::{config.config}  ({config.place})"
    for finding in own:
        yield from _told(finding, indent="  ")


def _told(finding: Finding, *, indent: str = "", prefix: str = "") -> Iterator[str]:
    head = f"{indent}{MARK[finding.severity]}: "
    yield from textwrap.wrap(
        f"{prefix}{finding}",
        WIDTH,
        initial_indent=head,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(report: Report) -> str:
    configs = report.configs
    skipped = sum(bool(one.skipped) for one in configs)
    ends = sum(bool(one.dead_end) for one in configs)
    told = [
        _many(len({one.suite for one in configs}), "suite"),
        _many(len(configs), "config"),
        _many(sum(len(one.cases) for one in configs), "case"),
    ]
    counts = [_many(report.count(one), one) for one in SEVERITIES]
    notes = [f"{skipped} skipped here"] if skipped else []
    notes += [_many(ends, "documented dead end")] if ends else []
    return f"{', '.join(told)}: {', '.join(counts)}{'; ' if notes else ''}{', '.join(notes)}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_dict(report: Report, *, strict: bool = False) -> dict[str, Any]:
    """The report for programs."""
    return {
        "exit_status": report.exit_status(strict=strict),
        "counts": {one: report.count(one) for one in SEVERITIES},
        "suites": msgspec.to_builtins(report.suites),
        "host": msgspec.to_builtins(report.host),
        "configs": msgspec.to_builtins(report.configs),
    }
