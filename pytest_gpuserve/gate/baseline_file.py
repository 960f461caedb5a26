"""Baseline files: strict when read, stable and atomic when written, so that a diff shows what moved.

A file ends with the line `...`, YAML's end of a document: one that was cut off cannot be taken for a whole
one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..errors import BaselineError
from ..model import Place
from .baseline import Baseline, HostIdentity, Measured, Reported
from .quantity import QUANTITIES

if TYPE_CHECKING:
    from pathlib import Path

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
    """A file."""

    suite: str
    host: HostIdentity
    cases: dict[str, Entry]


def read(path: Path) -> dict[str, Baseline]:
    """Every case of a file by its id. Raises BaselineError naming file, line and key of what is wrong."""
    from ..yaml_source import load, shown

    source = load(path, BaselineError)
    lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    if not lines or lines[-1] != END:
        raise BaselineError(
            f"does not end with `{END}`: the file was cut off", Place(shown(path), max(1, len(lines)))
        )
    content = source.convert((), Content)
    if content.suite != path.stem:
        raise source.error(("suite",), f"{content.suite!r} does not belong in {path.name}")
    return {name: _baseline(source, content.host, name, entry) for name, entry in content.cases.items()}


def _baseline(source: Source, host: HostIdentity, name: str, entry: Entry) -> Baseline:
    at = ("cases", name)
    if (entry.measured is None) == (entry.reported is None):
        raise source.error(at, "takes either `measured` (with `rounds`) or `reported`")
    if entry.reported is not None:
        if entry.rounds:
            raise source.error((*at, "rounds"), "a reported figure has no rounds")
        _check(source, (*at, "reported", "value"), entry.reported.metric, entry.reported.value)
    else:
        _check_measured(source, at, entry)
        if host.product is None:
            raise source.error(("host",), "the key 'product' is missing, which measured figures need")
    return Baseline(
        case=name,
        place=source.place(*at),
        host=host,
        model=entry.model,
        workload=entry.workload,
        tolerance=_tolerance(source, (*at, "tolerance"), entry.tolerance),
        measured=entry.measured,
        reported=entry.reported,
        rounds=entry.rounds,
    )


def _check_measured(source: Source, at: tuple[str, ...], entry: Entry) -> None:
    for key in ("model", "workload", "rounds"):
        if not getattr(entry, key):
            raise source.error(at, f"the key {key!r} is missing, which measured figures need")
    shape = {metric: [len(rounds) for rounds in launches] for metric, launches in entry.rounds.items()}
    first = next(iter(shape))
    for metric, launches in entry.rounds.items():
        keys = (*at, "rounds", metric)
        if not launches or not all(launches):
            raise source.error(keys, "has a launch without rounds" if launches else "has no launches")
        if shape[metric] != shape[first]:
            raise source.error(keys, f"has other launches or rounds than {first}")
        for launch, rounds in enumerate(launches):
            for index, value in enumerate(rounds):
                _check(source, (*keys, launch, index), metric, value)


def _check(source: Source, keys: tuple[str | int, ...], metric: str, value: float) -> None:
    if metric not in QUANTITIES:
        raise source.error(keys, f"{metric!r} is no metric", near=(metric, QUANTITIES))
    if not math.isfinite(value) or value <= 0:
        raise source.error(keys, f"{value} is no {metric}: a finite number above 0 is needed")


def _tolerance(source: Source, keys: tuple[str, ...], value: str | float | None) -> float | None:
    if value is None:
        return None
    try:
        fraction = float(value.removesuffix("%")) / 100 if isinstance(value, str) else value
        if not (isinstance(value, str) and not value.endswith("%")) and 0 < fraction < 1:
            return fraction
    except ValueError:
        pass
    raise source.error(keys, f"{value!r} is no tolerance: write it as 5% or 0.05")
