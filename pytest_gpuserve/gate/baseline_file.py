"""Baseline files: strict when read, stable and atomic when written, so that a diff shows what moved.

A file ends with the line `...`, YAML's end of a document: one that was cut off is never taken for whole.
"""

from __future__ import annotations

import fcntl
import math
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from ..errors import BaselineError
from ..model import Place
from .baseline import Baseline, HostIdentity, Measured, Reported
from .quantity import QUANTITIES
from .stored_workload import stored_workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..yaml_source import Source

END = "..."


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case as it stands in a file."""

    model: str | None = None
    tolerance: str | float | None = None
    workload: dict[str, Any] | None = None
    measured: Measured | None = None
    reported: Reported | None = None
    rounds: dict[str, list[list[float]]] = field(default_factory=dict)


class Content(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as it stands."""

    suite: str
    host: HostIdentity
    cases: dict[str, Entry]


class BaselineFile(Struct, frozen=True, kw_only=True):
    """What a file says, checked."""

    suite: str
    host: HostIdentity
    cases: dict[str, Baseline]
    header: str = ""
    """The comment at its top, which is kept when it is written again."""


def read(path: Path) -> BaselineFile:
    """Read and check a file. Raises BaselineError naming file, line and key of what is wrong."""
    from ..yaml_source import load, shown

    source = load(path, BaselineError)
    return _checked(source, path.read_text(encoding="utf-8-sig"), shown(path), path.stem)


def _checked(source: Source, text: str, file: str, stem: str) -> BaselineFile:
    lines = text.rstrip().splitlines()
    if not lines or lines[-1] != END:
        raise BaselineError(
            f"does not end with a line `{END}`: the file was cut off", Place(file, max(1, len(lines)))
        )
    content = source.convert((), Content)
    for keys in (("host",), *(("cases", name) for name in content.cases)):
        _refuse_null(source, keys, source.get(*keys))
    if content.suite != stem:
        raise source.error(("suite",), f"{content.suite!r} does not belong in {stem}.yaml")
    cases = {name: _baseline(source, content.host, name, entry) for name, entry in content.cases.items()}
    return BaselineFile(suite=content.suite, host=content.host, cases=cases, header=_header(lines))


def _header(lines: list[str]) -> str:
    end = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "\n".join(lines[:end]).strip()


# --- checking ---------------------------------------------------------------------------------------


def _baseline(source: Source, host: HostIdentity, name: str, entry: Entry) -> Baseline:
    at = ("cases", name)
    if (entry.measured is None) == (entry.reported is None):
        raise source.error(at, "takes either `measured` with `rounds`, or `reported`")
    if entry.reported is not None:
        if entry.rounds:
            raise source.error((*at, "rounds"), "a reported figure has no rounds")
        _check_metric(source, (*at, "reported", "metric"), entry.reported.metric)
        _check(source, (*at, "reported", "value"), entry.reported.metric, entry.reported.value)
    else:
        _check_measured(source, at, host, entry)
    return Baseline(
        case=name,
        place=source.place(*at),
        host=host,
        model=entry.model,
        workload=None if entry.workload is None else stored_workload(source, (*at, "workload")),
        tolerance=_tolerance(source, (*at, "tolerance"), entry.tolerance),
        measured=entry.measured,
        reported=entry.reported,
        rounds=entry.rounds,
    )


def _refuse_null(source: Source, keys: tuple[str, ...], written: dict[str, Any]) -> None:
    """A key without a value says nothing; whoever wrote it meant something."""
    for key, value in written.items():
        if value is None:
            raise source.error((*keys, key), "has no value: leave the key out, or write one")
        if key in ("measured", "reported"):
            _refuse_null(source, (*keys, key), value)


def _check_measured(source: Source, at: tuple[str, ...], host: HostIdentity, entry: Entry) -> None:
    if host.product is None:
        raise source.error(("host",), "the key 'product' is missing, which measured figures need")
    for key in ("model", "workload", "rounds"):
        if not getattr(entry, key):
            raise source.error(at, f"the key {key!r} is missing, which measured figures need")
    shapes = {metric: [len(rounds) for rounds in launches] for metric, launches in entry.rounds.items()}
    first = next(iter(shapes))
    for metric, launches in entry.rounds.items():
        keys = (*at, "rounds", metric)
        _check_metric(source, keys, metric)
        if not shapes[metric] or not all(shapes[metric]):
            raise source.error(keys, "has a launch without rounds" if launches else "has no launches")
        if shapes[metric] != shapes[first]:
            raise source.error(keys, f"has other launches or rounds than {first}")
        for launch, rounds in enumerate(launches):
            for index, value in enumerate(rounds):
                _check(source, (*keys, launch, index), metric, value)


def _check_metric(source: Source, keys: tuple[str, ...], metric: str) -> None:
    if metric not in QUANTITIES:
        raise source.error(keys, f"{metric!r} is no metric", near=(metric, QUANTITIES))


def _check(source: Source, keys: tuple[str | int, ...], metric: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise source.error(keys, f"{value} is no {metric}: it takes a finite number above 0")


def _tolerance(source: Source, keys: tuple[str, ...], written: str | float | None) -> float | None:
    from ..yaml_values import share

    if written is None:
        return None
    fraction = share(source, keys, written)
    if not 0 < fraction < 1:
        raise source.error(keys, f"a tolerance of {written} gates nothing")
    return fraction


# --- writing ----------------------------------------------------------------------------------------

HEADER = """\
# Written by `gpuserve baselines accept` or `--gpuserve-update-baselines`; docs/baselines.md explains it.
# Of comments, only those up here are kept."""


def write(path: Path, file: BaselineFile) -> None:
    """Replace a file, whole or not at all. What could not be read again is not written."""
    from ..yaml_source import loads

    text = render(file)
    _checked(loads(text, path.name, BaselineError), text, path.name, path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder against every other process that wants to write in it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def render(file: BaselineFile) -> str:
    """The text of a file: the same content always gives the same text."""
    from .emit import Flow, dump

    host = {key: value for key, value in msgspec.to_builtins(file.host).items() if value is not None}
    cases = {name: _plain(file.cases[name]) for name in sorted(file.cases)}
    text = dump({"suite": file.suite, "host": Flow(host), "cases": cases})
    return f"{file.header or HEADER}\n{text}{END}\n"


def _plain(case: Baseline) -> dict[str, Any]:
    from .emit import Flow

    provenance = msgspec.to_builtins(case.measured or case.reported)
    plain = {
        "model": case.model,
        "tolerance": f"{case.tolerance * 100:.6g}%" if case.tolerance else None,
        "workload": Flow(case.workload) if case.workload else None,
        "measured" if case.measured else "reported": provenance,
        "rounds": {
            metric: [Flow([float(f"{value:.6g}") for value in rounds]) for rounds in case.rounds[metric]]
            for metric in sorted(case.rounds)
        },
    }
    return {key: value for key, value in plain.items() if value}
