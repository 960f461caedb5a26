"""What people are told: the words of the gate, with the command that comes next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..record import Verdict
from .quantity import shown, typical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model import Case, Host
    from .baseline import Baseline
    from .quantity import Launches


def count(launches: int) -> str:
    return f"{launches} launch{'' if launches == 1 else 'es'}"


def percent(fraction: float) -> str:
    """`5 %`, `2.5 %`"""
    return f"{fraction * 100:.3g} %"


def signed(ratio: float) -> str:
    """A ratio as a change: `-7.9 %`"""
    change = (ratio - 1) * 100
    return f"{change:+.1f} %" if abs(change) >= 0.05 else "0.0 %"


def figures(metrics: Mapping[str, Launches]) -> str:
    """`output_throughput 89.5 tok/s, tpot_ms 11.17 ms`"""
    return ", ".join(f"{metric} {shown(metric, typical(each))}" for metric, each in metrics.items())


# --- commands ---------------------------------------------------------------------------------------


def record(case: Case, host: Host, why: str) -> str:
    """`<why> with` the command that measures the case anew, with as many launches as a baseline takes."""
    if host.simulated:
        return "on the simulated host it stays so: what it yields is never stored"
    nodeid = f"{case.config.place.file}::test_serving[{case.id}]"
    return f"{why} with\n  pytest {shlex.quote(nodeid)} --gpuserve-update-baselines"


def accept(case: Case, host: Host, run: str, why: str) -> str:
    """`<why> with` the command that takes the launches of this run, without running again."""
    if host.simulated:
        return "on the simulated host it stays so: what it yields is never stored"
    return f"{why} with\n  gpuserve baselines accept {shlex.quote(run)} {shlex.quote(f'{case.suite}::{case.id}')}"


# --- the baseline -----------------------------------------------------------------------------------


def no_baseline(case: Case, host: Host, orphans: Sequence[Baseline]) -> str:
    lost = [
        f"{each.case!r} at {each.place}" for each in orphans if each.model in {None, str(case.config.model)}
    ]
    renamed = f"\nwas it renamed? no case claims {', '.join(lost)}" if lost else ""
    where = f"{case.suite}::{case.id} on {host.profile}"
    return f"no baseline for {where}; {record(case, host, 'record one')}{renamed}"


def no_metric(case: Case, host: Host, baseline: Baseline, metric: str) -> str:
    lacks = f"the {baseline.label} at {baseline.place} has no {metric}"
    return f"{lacks}; {record(case, host, 'record one')}"


def appeared(case: Case, host: Host, baseline: Baseline, metric: str) -> str:
    lacks = no_metric(case, host, baseline, metric)
    return f"{metric} has appeared: it is measured and gated now, but {lacks}"


def vanished(case: Case, host: Host, baseline: Baseline, metric: str) -> str:
    return (
        f"{metric} has vanished: the baseline at {baseline.place} has it, this run does not; "
        f"{record(case, host, 'if that is meant, record again')}"
    )


def not_comparable(case: Case, host: Host, baseline: Baseline, different: Sequence[str]) -> str:
    return (
        f"not comparable with the {baseline.label} at {baseline.place}: {'; '.join(different)}; "
        f"{record(case, host, 'if that is meant, record again')}"
    )


def regressed(line: str, case: Case, host: Host, run: str) -> str:
    return line if host.simulated else f"{line}\n{accept(case, host, run, 'if that is meant, accept it')}"


def improved(line: str, case: Case, host: Host, run: str, launches: int) -> str:
    if host.simulated:
        return f"{line}\nthe baseline is stale"
    few = "" if launches > 1 else " (one launch, which gives no interval)"
    return (
        f"{line}\nthe baseline is stale; {accept(case, host, run, f'accept this run{few}')}\n"
        f"{record(case, host, f'or record {count(case.launches.baseline)}')}"
    )


def maybe_improved(line: str) -> str:
    return f"faster by more than the tolerance, but not proven: {line}"


def unproven(baseline: Baseline) -> str:
    if baseline.reported is not None:
        return f"unproven: a reported figure ({baseline.reported.source}) has no interval"
    return f"unproven: the baseline at {baseline.place} has {count(baseline.count)}, which gives no interval"


# --- the partner ------------------------------------------------------------------------------------


def no_partner(case: Case, why_not: str) -> str:
    partner = f"{case.config.compare_to}-{case.workload.name}"
    baseline = f"its baseline is not comparable ({why_not})" if why_not else "no baseline on this host"
    return f"{partner}, which it is compared to, has no result in this run and {baseline}; select it too"


def slower(line: str, case: Case) -> str:
    return (
        f"{line}\nslower than {case.config.compare_to}; if that is known, document it with "
        "`xfail: {kind: slower, ...}`; if it is a trial, say `gate: none`"
    )


# --- the end ----------------------------------------------------------------------------------------


def inconclusive(launches: int, most: int) -> str:
    if launches < most:
        return f"\nanother launch may tell, up to {most} are allowed"
    return (
        f"\n{count(launches)} cannot tell, and no more are allowed (launches.max, or --gpuserve-launches); see "
        "what this host can find with `gpuserve baselines calibrate`"
    )


def stopped(verdict: Verdict, launches: int) -> str:
    """Why no further launch was made."""
    if verdict is Verdict.INCONCLUSIVE:
        return f"undecided after {count(launches)}, the most that are allowed"
    return f"{verdict} after {count(launches)}"
