"""A run's folder: one file a case while it runs, one JSON line a case when it is over.

    .gpuserve/runs/2026-11-29T17-32-34Z/
        run.json                       who ran what, where, and how it ended
        records/<suite>--<case>.json   written as each case ends, also by the workers of pytest-xdist
        records.jsonl                  all of them, in the order of the suites, when the run is over
        logs/                          the servers' output

docs/records.md describes the fields.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from ..errors import InputError
from ..model import Host
from ..record import SCHEMA, Comparison, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")

RUNS = Path(".gpuserve") / "runs"
RECORDS = "records"
LINES = "records.jsonl"
INFO = "run.json"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(?:-(\d+))?")


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run as a whole, written when it ends: one that was killed has no run.json."""

    schema: int = SCHEMA
    command: list[str] = field(default_factory=list)
    host: Host | None = None
    versions: dict[str, str] = field(default_factory=dict)
    """Of pytest-gpuserve, pytest and Python; each record names its engine."""
    started: str = ""
    """ISO 8601, UTC."""
    ended: str = ""
    exit_status: int | None = None
    simulated: str | None = None
    """What was simulated, such as `sglang==0.5.14`; None on real hardware."""


class RunFolder:
    """The folder of one run, made when it is first needed: a run without cases leaves none."""

    def __init__(self, path: Path | None = None, *, runs: Path = RUNS) -> None:
        """`path` is a folder that somebody named, or that a controller made; None makes a new one under
        `runs`."""
        self._path = path
        self._runs = runs

    @property
    def path(self) -> Path:
        """The folder; the first call makes and so reserves it."""
        if self._path is None:
            self._path = new_folder(self._runs)
        return self._path

    @property
    def logs(self) -> Path:
        """Where the servers' output goes; made by the first call."""
        folder = self.path / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def used(self) -> bool:
        """Whether the folder holds records, of this run or of an earlier one."""
        if self._path is None:
            return False
        return has_records(self._path)

    def write(self, record: Record) -> Path:
        """Store a case's record, whole or not at all. A later one of the same case replaces it."""
        path = self.path / RECORDS / file_name(record.suite, record.case)
        _replace(path, _indented(storable(record)))
        return path

    def read(self) -> list[Record]:
        """Every record of the run so far, in the order of the suites; none before the folder was made.

        Raises InputError naming what cannot be read.
        """
        return read(self._path) if self._path is not None and self.used else []

    def write_info(self, info: RunInfo) -> None:
        _replace(self.path / INFO, _indented(info))

    def finish(self, info: RunInfo) -> None:
        """End a run: records.jsonl from the cases' files, and run.json. A folder that was only reserved is
        removed.

        Raises InputError as `read` does.
        """
        if self._path is None:
            return
        if not self.used:
            _remove_empty(self._path)
            return
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in self.read())
        _replace(self.path / LINES, lines)
        self.write_info(info)


def new_folder(parent: Path = RUNS, now: datetime | None = None) -> Path:
    """A new folder under `parent`, named after the time in UTC; `-2`, `-3` when several start in one
    second."""
    stamp = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        folder = parent / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise InputError(f"{parent}: cannot make a new run folder beside {stamp}")


def info_of(path: Path) -> RunInfo:
    """What a run's run.json says; an empty RunInfo when the folder has none. InputError when it cannot be
    read."""
    file = path / INFO
    return _decode(_bytes(file), RunInfo, str(file)) if file.is_file() else RunInfo()


def latest(parent: Path | None = None) -> Path:
    """The newest run that has records. Without `parent` the nearest `.gpuserve/runs` at or above the working
    directory.

    A run that has just begun, or was killed before its first case ended, has none yet: `newest` names it. Raises
    InputError when no run has any.
    """
    parent = parent or runs_folder()
    runs = _by_age(parent)
    if not runs:
        raise InputError(f"no run in {parent}: run pytest first, or name the folder of a run")
    found = next((path for path in reversed(runs) if has_records(path)), None)
    if found is None:
        raise InputError(
            f"no run in {parent} has records: {runs[-1].name} goes on, or ended before its first case did"
        )
    return found


def newest(parent: Path | None = None) -> Path | None:
    """The run that began last, with or without records; None when there is none."""
    return next(reversed(_by_age(parent or runs_folder())), None)


def has_records(path: Path) -> bool:
    """Whether a run's folder holds records, of one case at least."""
    return (path / LINES).exists() or any((path / RECORDS).glob("*.json"))


def _by_age(parent: Path) -> list[Path]:
    named = [(match, path) for path in _folders(parent) if (match := _NAME.fullmatch(path.name))]
    named.sort(key=lambda item: (item[1].name[:20], int(item[0][1] or 1)))
    return [path for _, path in named]


def find(name: str | None) -> Path:
    """What a user calls a run: nothing or `latest`, a path, or a name within the folder of runs.

    Raises InputError when there is no such thing.
    """
    for path in (Path(name), runs_folder() / name) if name else ():
        if path.exists():
            return path
    if name in {None, "latest"}:
        return latest()
    raise InputError(f"no run at {name}, nor in {runs_folder()}")


def runs_folder() -> Path:
    here = Path.cwd()
    return next((f / RUNS for f in (here, *here.parents) if (f / RUNS).is_dir()), here / RUNS)


def read(path: Path) -> list[Record]:
    """The records of a run folder, of a records.jsonl, or of one record's file, in the order of the suites.

    A folder's own files go before its records.jsonl, which an interrupted run does not have.
    Raises InputError naming file and line of what cannot be read.
    """
    if not path.is_dir():
        found = _lines(path) if path.suffix == ".jsonl" else [_decode(_bytes(path), Record, str(path))]
    else:
        files = sorted((path / RECORDS).glob("*.json"))
        if files:
            found = [_decode(_bytes(file), Record, str(file)) for file in files]
        elif (path / LINES).is_file():
            found = _lines(path / LINES)
        elif (path / RECORDS).is_dir() or (path / INFO).is_file() or _NAME.fullmatch(path.name):
            found = []
        else:
            raise InputError(f"{path}: not a run: it has neither {RECORDS}/ nor {LINES}")
    return in_order(found)


def in_order(records: Iterable[Record]) -> list[Record]:
    """Sorted by suite and place in its file."""
    return sorted(records, key=lambda r: (r.suite, r.place.line, r.started or "~", r.case))


def file_name(suite: str, case: str) -> str:
    """`<suite>--<case>.json`, distinct for distinct cases and safe as a file name.

    What a file name cannot hold is percent-encoded; the first `--` separates, so a suite's own are encoded
    too.
    """
    left = re.sub(r"-(?=-|$)", "%2D", quote(suite, safe=" +=@,"))
    name = f"{left}--{quote(case, safe=' +=@,')}"
    if len(name) > 200:  # file systems allow 255 bytes, and a temporary name is longer
        name = f"{name[:160]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.json"


def storable(record: Record) -> Record:
    """The record without comparisons that JSON cannot hold: with NaN or infinity; their texts become
    warnings."""
    lost = [c for c in record.comparisons if not _finite(c)]
    if not lost:
        return record
    return msgspec.structs.replace(
        record,
        comparisons=[c for c in record.comparisons if _finite(c)],
        warnings=record.warnings + [c.text for c in lost if c.text not in record.warnings],
    )


def _finite(comparison: Comparison) -> bool:
    bounds = (comparison.low, comparison.high)
    numbers = (
        comparison.reference,
        comparison.value,
        comparison.ratio,
        *(b for b in bounds if b is not None),
    )
    return all(map(math.isfinite, numbers))


class _Version(Struct):
    schema: int


def _decode(data: bytes, kind: type[T], where: str) -> T:
    """One JSON text; its schema is checked first, so that a foreign version is named and not called
    malformed."""
    try:
        schema = msgspec.json.decode(data, type=_Version).schema
        if schema != SCHEMA:
            age = "newer" if schema > SCHEMA else "older"
            raise InputError(
                f"{where}: written by {age} pytest-gpuserve (schema {schema}, this one reads {SCHEMA}); "
                "read it with the version that wrote it"
            )
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise InputError(f"{where}: not what pytest-gpuserve writes: {error}") from None


def _lines(path: Path) -> list[Record]:
    return [
        _decode(line, Record, f"{path}:{number}")
        for number, line in enumerate(_bytes(path).splitlines(), start=1)
        if line.strip()
    ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _folders(parent: Path) -> Sequence[Path]:
    return [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []


def _indented(struct: Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(struct), indent=1) + b"\n"


def _remove_empty(folder: Path) -> None:
    """The folder and what lies empty within and above it, up to `.gpuserve`; whatever holds a file stays."""
    inner = [folder / RECORDS, folder / "logs"]
    above = [parent for parent in list(folder.parents)[:2] if parent.name in RUNS.parts]
    for path in (*inner, folder, *above):
        try:
            path.rmdir()
        except OSError:
            continue


def _replace(path: Path, data: bytes) -> None:
    """Write through to the disk under another name, then rename: a host that a test brings down leaves no
    half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
