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


def record_command(case: Case) -> str:
    """Measures the case anew, with as many launches as a baseline takes."""
    nodeid = f"{case.config.place.file}::test_serving[{case.id}]"
    return f"pytest {shlex.quote(nodeid)} --gpuserve-update-baselines"


def accept_command(case: Case, run: str) -> str:
    """Takes the launches of a finished run, without running again."""
    return f"gpuserve baselines accept {shlex.quote(run)} {shlex.quote(f'{case.suite}::{case.id}')}"


# --- the baseline -----------------------------------------------------------------------------------


def no_baseline(case: Case, host: Host, orphans: Sequence[Baseline]) -> str:
    lost = [
        f"{each.case!r} at {each.place}" for each in orphans if each.model in {None, str(case.config.model)}
    ]
    renamed = f"\nwas it renamed? no case claims {', '.join(lost)}" if lost else ""
    return (
        f"no baseline for {case.suite}::{case.id} on {host.profile}; record one with\n"
        f"  {record_command(case)}{renamed}"
    )


def no_metric(case: Case, baseline: Baseline, metric: str) -> str:
    return (
        f"the {baseline.label} at {baseline.place} has no {metric}; record one with\n  {record_command(case)}"
    )


def appeared(case: Case, baseline: Baseline, metric: str) -> str:
    return f"{metric} has appeared: it is measured and gated now, but {no_metric(case, baseline, metric)}"


def vanished(case: Case, baseline: Baseline, metric: str) -> str:
    return (
        f"{metric} has vanished: the baseline at {baseline.place} has it, this run does not; "
        f"if that is meant, record again with\n  {record_command(case)}"
    )


def not_comparable(case: Case, baseline: Baseline, different: Sequence[str]) -> str:
    return (
        f"not comparable with the {baseline.label} at {baseline.place}: {'; '.join(different)}; "
        f"if that is meant, record again with\n  {record_command(case)}"
    )


def improved(line: str, case: Case, launches: int, run: str) -> str:
    few = "" if launches > 1 else " (one launch, which gives no interval)"
    return (
        f"{line}\nthe baseline is stale; accept this run{few} with\n  {accept_command(case, run)}\n"
        f"or record {count(case.launches.baseline)} with\n  {record_command(case)}"
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
        f"\n{count(launches)} cannot tell, and launches.max allows no more; see what this host can find with "
        "`gpuserve baselines calibrate`"
    )


def stopped(verdict: Verdict, launches: int) -> str:
    """Why no further launch was made."""
    if verdict is Verdict.INCONCLUSIVE:
        return f"undecided after {count(launches)}, the most that are allowed"
    return f"{verdict} after {count(launches)}"
