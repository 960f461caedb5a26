"""How wrong the client itself can be in a round, and when that is too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..record import ClientHealth

if TYPE_CHECKING:
    from .samples import Samples

KERNEL_NS = 20_000
"""What a kernel stamp of its own can be off: receive path and softirq, measured in docs/load-client.md."""
MAX_LAG_MS = 5.0
"""The limit for the client turning to what was due, at the 99th percentile."""
MAX_LATE_MERGED = 0.05
"""The limit for the share of stamps lost because the client was busy."""
MAX_CPU = 0.9
"""The limit for the share of one core while the clock ran."""
MIN_WALL_S = 0.2
"""A round shorter than this says nothing about the share of a core."""


def report(samples: Samples, tokens: int | None = None) -> ClientHealth:
    """The client's figures for the record; all in real time, whatever the time scale.

    error_bound_ms: the larger of the bounds for TTFT and ITL at the 99th percentile. A stamp of its own is
    off by at most `KERNEL_NS` (kernel) or by how late its read was (user); one that was lost by how far it
    can lie from the one it shares. TTFT adds how long handing the request over took, ITL takes the stamp's
    error twice.
    """
    health = samples.health
    chunks = health.chunks
    wall = samples.duration_ns
    lag = health.lag.quantile_ns(0.99)
    delay = health.delay.quantile_ns(0.99) if samples.mode == "open" else None
    bound = error_bound_ns(samples)
    worst = max((ns for ns in (lag, delay) if ns is not None), default=None)
    return ClientHealth(
        cpu_us_per_token=health.cpu_ns / 1e3 / tokens if tokens else None,
        cpu_share=health.clock_cpu_ns / wall if wall > 0 else None,
        lag_ms_p99=None if worst is None else worst / 1e6,
        merged_share=health.merged / chunks if chunks else None,
        stamp_source=health.stamp_source if not health.unstamped else "user",
        error_bound_ms=None if bound is None else bound / 1e6,
    )


def error_bound_ns(samples: Samples) -> int | None:
    health = samples.health
    if not health.chunks:
        return None
    lost = health.lost.quantile_ns(0.99, total=health.chunks) or 0
    lag = health.lag.quantile_ns(0.99) or 0
    own = KERNEL_NS + health.clock_uncertainty_ns if health.stamp_source == "kernel" else lag
    stamp = own + (lost + lag if lost else 0)
    ttft = stamp + (health.handover.quantile_ns(0.99) or 0)
    return max(ttft, 2 * stamp)


def saturated(samples: Samples) -> list[str]:
    """Why the client may have been the bottleneck; empty when it was not."""
    health, figures = samples.health, report(samples)
    reasons = []
    if figures.lag_ms_p99 is not None and figures.lag_ms_p99 > MAX_LAG_MS:
        reasons.append(f"lag p99 {figures.lag_ms_p99:.1f} ms > {MAX_LAG_MS:g} ms")
    late = health.late_merged / health.chunks if health.chunks else 0.0
    if late > MAX_LATE_MERGED:
        reasons.append(f"{late:.0%} of the stamps lost to lateness > {MAX_LATE_MERGED:.0%}")
    if (
        figures.cpu_share is not None
        and figures.cpu_share > MAX_CPU
        and samples.duration_ns > MIN_WALL_S * 1e9
    ):
        reasons.append(f"{figures.cpu_share:.0%} of a core > {MAX_CPU:.0%}")
    return reasons
