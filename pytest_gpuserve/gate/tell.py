"""What people are told: every text of the gate, with the command that comes next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..record import Verdict
from .quantity import shown, typical

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return f"{(ratio - 1) * 100:+.1f} %"


def figure(metric: str, launches: Launches) -> str:
    """`output_throughput 89.5 tok/s`"""
    return f"{metric} {shown(metric, typical(launches))}"


# --- commands ---------------------------------------------------------------------------------------


def record_command(case: Case) -> str:
    """Measures the case anew, with as many launches as a baseline takes."""
    nodeid = f"{case.config.place.file}::test_serving[{case.id}]"
    return f"pytest {shlex.quote(nodeid)} --gpuserve-update-baselines"


def accept_command(case: Case, run: str) -> str:
    """Takes the launches of a finished run, without running again."""
    return f"gpuserve baselines accept {shlex.quote(run)} {shlex.quote(f'{case.suite}::{case.id}')}"


# --- findings ---------------------------------------------------------------------------------------


def no_baseline(case: Case, host: Host) -> str:
    return f"no baseline for {case.suite}::{case.id} on {host.profile}; record one with\n  {record_command(case)}"


def no_metric(case: Case, baseline: Baseline, metric: str) -> str:
    return (
        f"the {baseline.label} at {baseline.place} has no {metric}; record one with\n  {record_command(case)}"
    )


def appeared(case: Case, baseline: Baseline, metric: str) -> str:
    return f"{metric} has appeared: it is measured and gated now, and {no_metric(case, baseline, metric)}"


def vanished(case: Case, baseline: Baseline, metric: str) -> str:
    return (
        f"{metric} has vanished: the baseline at {baseline.place} has it and this run does not; "
        f"if that is meant, record again with\n  {record_command(case)}"
    )


def not_comparable(case: Case, baseline: Baseline, different: Sequence[str]) -> str:
    return (
        f"cannot be compared with the {baseline.label} at {baseline.place}: {'; '.join(different)}; "
        f"if that is meant, record again with\n  {record_command(case)}"
    )


def improved(line: str, case: Case, run: str) -> str:
    return (
        f"{line}; the baseline is stale, accept this run with\n  {accept_command(case, run)}\n"
        f"or record {count(case.launches.baseline)} anew with\n  {record_command(case)}"
    )


def unproven(baseline: Baseline) -> str:
    if baseline.reported is not None:
        return f"unproven: held against a reported figure ({baseline.reported.source}), which has no interval"
    return f"unproven: the baseline at {baseline.place} has {count(baseline.count)}, which give no interval"


def no_partner(case: Case, metric: str, why_not: str) -> str:
    partner = f"{case.config.compare_to}-{case.workload.name}"
    reason = f"its baseline cannot be compared: {why_not}" if why_not else "nor a baseline on this host"
    return f"no {metric} to compare with: {partner} has no valid result in this run, {reason}; select it too"


def slower(line: str, case: Case) -> str:
    return (
        f"{line}: slower than {case.config.compare_to}, which `compare_to` names; "
        f"if that is known, document it (`xfail: {{kind: slower, ...}}`), if it is a trial, say `gate: none`"
    )


def inconclusive(case: Case) -> str:
    return (
        f"inconclusive after {count(case.launches.max)}: allow more (launches.max), a larger tolerance, or "
        "see `gpuserve baselines calibrate`"
    )


def too_few(launches: int, wanted: int) -> str:
    return f"{count(launches)} of at least {wanted}"


def stopped(verdict: Verdict, launches: int, exhausted: bool) -> str:
    """Why no further launch was made."""
    if exhausted and verdict is Verdict.INCONCLUSIVE:
        return f"still undecided after {count(launches)}, the most that launches.max allows"
    return f"{verdict} after {count(launches)}"
