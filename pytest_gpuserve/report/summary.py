"""What GitHub shows of a run: the job summary in Markdown, and annotations on the suites' lines."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..record import Verdict
from .cases import tables, warnings_of
from .figures import clipped, counts, failed, simulated
from .table import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..record import Record

DETAILED = 30
"""Failures told at length; GitHub cuts a summary at 1 MiB, and nobody reads further."""
TEXT_LIMIT = 4000
EXCERPT_LINES = 30


def markdown(records: Sequence[Record], *, run: str = "") -> str:
    """The whole report: a heading with the verdicts, every failure with its text, the tables. Ends in a
    newline."""
    mark = ", simulated" if records and all(map(simulated, records)) else ""
    parts = [f"## gpuserve{mark}: {counts(records) or 'no cases'}"]
    if run:
        parts.append(f"Run `{run}`")
    failures = [record for record in records if failed(record)]
    parts += [_failure(record) for record in failures[:DETAILED]]
    if len(failures) > DETAILED:
        parts.append(f"{len(failures) - DETAILED} more failures are in the tables below.")
    parts += [table.markdown() for table in tables(records)]
    return "\n\n".join(parts) + "\n"


def write_job_summary(
    records: Sequence[Record], environ: Mapping[str, str] | None = None, *, run: str = ""
) -> bool:
    """Append the report to the file that `GITHUB_STEP_SUMMARY` names; False when there is none or it cannot
    be written."""
    path = (os.environ if environ is None else environ).get("GITHUB_STEP_SUMMARY")
    if not path or not records:
        return False
    try:
        with Path(path).open("a", encoding="utf-8") as out:
            out.write(markdown(records, run=run))
    except OSError:  # a summary is a courtesy: the run's outcome must not hang on it
        return False
    return True


def workflow_commands(
    records: Sequence[Record], *, root: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Workflow commands `::error file=...,line=...,title=...::text` on the config's line in its suite.

    Failures are errors; cases that passed with something to say (improved, inconclusive, warnings) are
    warnings. File names are relative to `root` (the folder pytest ran from) and become relative to
    GITHUB_WORKSPACE, as GitHub wants them.
    """
    workspace = (os.environ if environ is None else environ).get("GITHUB_WORKSPACE")
    lines = []
    for record in records:
        if failed(record):
            level, text = "error", record.text or record.reason or record.verdict.value
        elif record.verdict is not Verdict.SKIPPED and (told := warnings_of(record)):
            level, text = "warning", "\n".join(told)
        else:
            continue
        title = f"{record.suite}::{record.case}: {record.verdict.value}"
        if simulated(record):
            title += " (simulated)"
        where = _property(_file(record.place.file, root, workspace))
        lines.append(
            f"::{level} file={where},line={record.place.line},title={_property(title)}::{_message(text)}"
        )
    return lines


def _failure(record: Record) -> str:
    """A failure at length: verdict, text, what the log says, where the log is."""
    mark = " (simulated)" if simulated(record) else ""
    body = record.text or record.reason
    excerpt = record.failure.excerpt if record.failure else ""
    if excerpt and excerpt not in body:
        body += "\n\n" + "\n".join(excerpt.splitlines()[-EXCERPT_LINES:])
    parts = [
        f"### {escape(record.suite)}::{escape(record.case)}: {record.verdict.value}{mark}",
        f"`{record.place}`",
        _fenced(body[:TEXT_LIMIT]),
    ]
    log = next((launch.log for launch in reversed(record.launches) if launch.log), "")
    if log:
        parts.append(f"Server log: `{log}` in the run's folder")
    return "\n\n".join(parts)


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks within."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.strip()}\n{fence}"


def _file(name: str, root: Path | None, workspace: str | None) -> str:
    path = Path(name)
    if not path.is_absolute() and root is not None:
        path = root / path
    if path.is_absolute() and workspace and path.is_relative_to(workspace):
        path = path.relative_to(workspace)
    elif path.is_absolute() and root is not None and path.is_relative_to(root):
        path = path.relative_to(root)
    return path.as_posix()


def _message(text: str) -> str:
    text = text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "..."
    return text.strip().replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(clipped(text, 300)).replace(":", "%3A").replace(",", "%2C")
