"""Baselines from the records of finished runs: what would change, and changing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import BaselineError
from ..model import Place, Workload
from ..record import Verdict
from . import match, tell
from .baseline import Baseline, HostIdentity, Measured, named
from .baseline_file import BaselineFile, only_writer, read, write
from .baselines import Baselines
from .compare import hold
from .quantity import QUANTITIES
from .rounds import usable_only
from .stats import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model import Host
    from ..record import Record

STORED = ("output_throughput", "tpot_ms", "ttft_ms", "e2e_ms", "accept_length", "goodput")
"""Metrics that are stored whether they are gated or not, so that a gate can be changed later."""

UNASKED = frozenset({Verdict.RECORDED, Verdict.NO_BASELINE, Verdict.IMPROVED})
"""Verdicts whose figures are accepted when no case is named: nothing is lost by it."""

NAMED = UNASKED | {
    Verdict.OK,
    Verdict.INCONCLUSIVE,
    Verdict.REGRESSED,
    Verdict.SLOWER,
    Verdict.NO_PARTNER,
    Verdict.NOT_COMPARABLE,
    Verdict.MEASURED,
    Verdict.DEAD_END_OPEN,
}
"""Verdicts whose figures are accepted when the case is named; of the others there are none to trust."""


class Change(Struct, frozen=True, kw_only=True):
    """What accepting does to one case."""

    suite: str
    path: Path
    before: Baseline | None
    after: Baseline

    @property
    def lines(self) -> list[str]:
        """What moved, metric by metric, for people."""
        new = self.after.rounds
        old = self.before.launches if self.before else {}
        told = [f"{self.suite}::{self.after.case}: {tell.count(self.after.count)}{self._was()}"]
        told += [f"  {_moved(metric, new[metric], old.get(metric))}" for metric in new]
        told += [f"  {metric} is no longer measured" for metric in old if metric not in new]
        if self.after.count < 2:
            told.append("  one launch gives no interval: comparisons with it are unproven")
        return told

    def _was(self) -> str:
        if self.before is None:
            return ", new"
        if self.before.reported is not None:
            return f", replaces a reported figure ({self.before.reported.source})"
        return f", before {self.before.count}"


def _moved(metric: str, new: list[list[float]], old: list[list[float]] | None) -> str:
    if old is None:
        return tell.figures({metric: new})
    held = hold(metric, new, old, against="baseline", tolerance=0.05, plan=Plan(), point=True)
    was = tell.figures({metric: old}).removeprefix(f"{metric} ")
    return f"{tell.figures({metric: new})}, was {was} ({tell.signed(held.comparison.ratio)})"


def diff(folder: Path, records: Sequence[Record], cases: Sequence[str] = ()) -> list[Change]:
    """What `accept` would change. Raises BaselineError as it does, and writes nothing."""
    return [
        change
        for (profile, suite), found in _by_file(records, cases).items()
        for change in _changes(Baselines(folder).path(profile, suite), suite, found, None)
    ]


def accept(
    folder: Path, records: Sequence[Record], cases: Sequence[str] = (), *, tolerance: float | None = None
) -> list[Change]:
    """Make the launches of finished runs the baselines of their cases, and of no others.

    `cases` are names such as `kimi_k2_5::no-spec-decode`, `no-spec-decode` or `kimi_k2_5`, with shell
    patterns; without any, all cases of which nothing is lost (`UNASKED`). Records of several runs of a case
    are taken together, so that a baseline may span days. `tolerance` is written for these cases; None keeps
    what stands there.

    Raises BaselineError when a case must not be stored, or its file cannot be read or is another GPU's.
    """
    done: list[Change] = []
    for (profile, suite), found in _by_file(records, cases).items():
        path = Baselines(folder).path(profile, suite)
        with only_writer(path.parent):
            changes = _changes(path, suite, found, tolerance)
            write(path, _merged(path, suite, changes))
        done += changes
    return done


# --- which cases ------------------------------------------------------------------------------------


def _by_file(records: Sequence[Record], names: Sequence[str]) -> dict[tuple[str, str], list[list[Record]]]:
    """The records to accept, grouped by case, these by file."""
    chosen = [record for record in records if _asked(record, names)]
    _refuse_unknown(records, names)
    for record in chosen:
        if record.simulated or record.host.simulated:
            raise BaselineError(f"{_name(record)} ran on a simulated host, which is never a baseline")
        if record.verdict not in NAMED:
            raise BaselineError(f"{_name(record)} is {record.verdict}: its figures cannot be a baseline")
    by_case: dict[tuple[str, str, str], list[Record]] = {}
    for record in chosen:
        by_case.setdefault((record.host.profile, record.suite, record.case), []).append(record)
    found: dict[tuple[str, str], list[list[Record]]] = {}
    for (profile, suite, _), same in sorted(by_case.items()):
        found.setdefault((profile, suite), []).append(same)
    return found


def _asked(record: Record, names: Sequence[str]) -> bool:
    if not names:
        return record.verdict in UNASKED
    return named(record.suite, record.case, names)


def _refuse_unknown(records: Sequence[Record], names: Sequence[str]) -> None:
    from ..yaml_source import did_you_mean

    known = sorted({_name(record) for record in records})
    for name in names:
        if not any(_asked(record, [name]) for record in records):
            near = did_you_mean(name, known) or (f"; there are {', '.join(known)}" if known else "")
            raise BaselineError(f"no case of this run is called {name!r}{near}")


def _name(record: Record) -> str:
    return f"{record.suite}::{record.case}"


# --- what they become -------------------------------------------------------------------------------


def _changes(path: Path, suite: str, found: Iterable[list[Record]], tolerance: float | None) -> list[Change]:
    old = read(path).cases if path.exists() else {}
    changes = []
    for records in found:
        before = old.get(records[0].case)
        after = _baseline(records, path)
        kept = before.tolerance if before else None
        after = replace(after, tolerance=kept if tolerance is None else tolerance)
        changes.append(Change(suite=suite, path=path, before=before, after=after))
    return changes


def _baseline(records: list[Record], path: Path) -> Baseline:
    """One baseline from the records of one case, which must be of the same thing."""
    records = sorted(records, key=lambda record: record.started)
    first = records[0]
    parts = [_identity(record) for record in records]
    for record, part in zip(records[1:], parts[1:], strict=True):
        other = [key for key in part if part[key] != parts[0][key]]
        if other:
            runs = f"the runs of {first.started} and {record.started}"
            raise BaselineError(f"{_name(first)}: {runs} differ in {', '.join(other)}")
    launches = [launch for record in records for launch in record.launches]
    asked = [metric for metric in dict.fromkeys((*first.gated, *STORED)) if metric in QUANTITIES]
    rounds = {metric: each for metric in asked if len(each := usable_only(launches, metric)) == len(launches)}
    lacking = [metric for metric in first.gated if metric not in rounds and _yields(first, metric)]
    if not rounds or lacking:
        raise BaselineError(f"{_name(first)} has rounds without usable {', '.join(lacking) or 'figures'}")
    engine = first.engine
    return Baseline(
        case=first.case,
        place=Place(str(path), 1),
        host=_host(first.host),
        model=first.model,
        workload=parts[0]["workload"],
        measured=Measured(
            date=launches[0].started,
            definition=first.definition,
            engine=engine.name if engine else None,
            version=engine.version if engine else None,
            build=engine.build if engine else None,
            driver=first.host.driver or None,
            power_limit_w=first.host.power_limit_w,
            args=dict(first.args),
            env=match.lasting(launches[0].env),
        ),
        rounds=rounds,
    )


def _yields(record: Record, metric: str) -> bool:
    """Whether any round has the metric: a gated default that a workload does not yield is no lack."""
    rounds = [round_ for launch in record.launches for round_ in launch.rounds]
    return any(round_.metrics.value(metric) is not None for round_ in rounds)


def _identity(record: Record) -> dict[str, Any]:
    return {
        "host": _host(record.host),
        "engine": record.engine and (record.engine.name, record.engine.version, record.engine.build),
        "model": record.model,
        "arguments": record.args,
        "workload": match.workload_identity(msgspec.convert(record.workload_spec, Workload)),
        "metric definition": record.definition,
    }


def _host(host: Host) -> HostIdentity:
    return HostIdentity(product=host.product, count=host.count, topology=host.topology)


def _merged(path: Path, suite: str, changes: list[Change]) -> BaselineFile:
    """The file with the changed cases in it. Figures of two GPUs never share one."""
    host = changes[0].after.host
    old = read(path) if path.exists() else BaselineFile(suite=suite, host=host, cases={})
    stands = replace(old.host, product=old.host.product or host.product)
    if stands != host:
        raise BaselineError(
            f"{path} holds figures of {stands.count} x {stands.product} ({stands.topology}), these are of "
            f"{host.count} x {host.product} ({host.topology}); name the hosts apart"
        )
    cases = {**old.cases, **{change.after.case: change.after for change in changes}}
    return BaselineFile(suite=suite, host=host, cases=cases, header=old.header)
