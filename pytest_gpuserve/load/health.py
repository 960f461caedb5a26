"""How wrong the client itself can be in a round, and when that is too much. Real time, whatever the time
scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..record import ClientHealth

if TYPE_CHECKING:
    from .samples import Health, Histogram, Samples

KERNEL_NS = 20_000
"""What a kernel stamp of its own can be off: receive path and softirq (docs/load-client.md measures it)."""
USER_NS = 100_000
"""What waking up can take before a stamp in user space; it cannot be seen from within."""
MAX_LAG_MS = {"kernel": 50.0, "user": 5.0}
"""The limit for turning to what has arrived, at the 99th percentile. A stamp in user space is off by it; to
the kernel's it does nothing until stamps are lost, which has a limit of its own."""
MAX_DELAY_SHARE = 0.03
"""The limit for the time in which a closed loop waited for the client to send its next request."""
MAX_DELAY_MS = 10.0
"""The limit for sending what is due in an open loop, at the 99th percentile."""
MAX_LATE_MERGED = 0.05
"""The limit for the share of stamps lost because the client was busy."""
MAX_CPU = 0.9
"""The limit for the share of one core while the clock ran."""
MAX_UNSTAMPED = 0.005
"""Up to this share of reads may have come without the kernel's stamp for the stamps to count as the
kernel's."""
MIN_WALL_S = 0.2
"""A round shorter than this says nothing about the share of a core."""


def report(samples: Samples, tokens: int | None = None) -> ClientHealth:
    """The client's figures for the record. `tokens`: received in the round, for the CPU time of each."""
    health = samples.health
    wall = samples.duration_ns
    ttft, itl = error_bounds_ns(samples)
    return ClientHealth(
        cpu_us_per_token=health.cpu_ns / 1e3 / tokens if tokens else None,
        cpu_share=health.clock_cpu_ns / wall if wall > 0 else None,
        lag_ms_p99=_p99_ms(health.lag),
        schedule_delay_ms_p99=_p99_ms(health.delay),
        merged_share=health.merged / health.chunks if health.chunks else None,
        stamp_source="kernel" if _kernel(health) else "user",
        error_bound_ms=None if ttft is None or itl is None else max(ttft, itl) / 1e6,
        ttft_error_bound_ms=None if ttft is None else ttft / 1e6,
        itl_error_bound_ms=None if itl is None else itl / 1e6,
    )


def error_bounds_ns(samples: Samples) -> tuple[int | None, int | None]:
    """How far (TTFT, ITL) can be off at the 99th percentile; None without a token.

    A kernel stamp of its own is off by at most `KERNEL_NS` and the uncertainty of the clock's offset, one
    in user space by `USER_NS` and the time that a pass over the ready sockets takes. A lost stamp is off by
    how far it can lie from the one it shares: not before the read before it, and not before the client last
    looked. TTFT adds the time that handing the request over took. ITL is the difference of two stamps, and
    each lost one spoils two gaps.
    """
    health = samples.health
    if not health.chunks:
        return None, None
    lag = health.lag.quantile_ns(0.99) or 0
    own = KERNEL_NS + health.clock_uncertainty_ns if _kernel(health) else USER_NS + lag

    def stamp(lost: int | None) -> int:
        return own + lost + lag if lost else own

    streams = max(1, samples.let_go.ok + sum(1 for s in samples.requests if s.stamps))
    first = stamp(health.lost_first.quantile_ns(0.99, total=streams))
    later = stamp(health.lost.quantile_ns(0.995, total=health.chunks))
    return first + (health.handover.quantile_ns(0.99) or 0), 2 * later


def saturated(samples: Samples) -> list[str]:
    """Why the client may have been the bottleneck; empty when it was not."""
    health, figures = samples.health, report(samples)
    reasons = []
    limit = MAX_LAG_MS[figures.stamp_source]
    if figures.lag_ms_p99 is not None and figures.lag_ms_p99 > limit:
        reasons.append(f"lag p99 {figures.lag_ms_p99:.1f} ms > {limit:g} ms")
    delay = figures.schedule_delay_ms_p99
    if samples.mode == "open" and delay is not None and delay > MAX_DELAY_MS:
        reasons.append(f"requests sent late by {delay:.1f} ms at p99 > {MAX_DELAY_MS:g} ms")
    share = health.delay_ns / health.busy_ns if health.busy_ns else 0.0
    if samples.mode == "closed" and share > MAX_DELAY_SHARE:
        reasons.append(f"the next request was waited for {share:.0%} of the time > {MAX_DELAY_SHARE:.0%}")
    late = health.late_merged / health.chunks if health.chunks else 0.0
    if late > MAX_LATE_MERGED:
        reasons.append(f"{late:.0%} of the stamps lost to lateness > {MAX_LATE_MERGED:.0%}")
    cpu = figures.cpu_share
    if cpu is not None and cpu > MAX_CPU and samples.duration_ns > MIN_WALL_S * 1e9:
        reasons.append(f"{cpu:.0%} of a core > {MAX_CPU:.0%}")
    return reasons


def _kernel(health: Health) -> bool:
    return health.stamp_source == "kernel" and health.unstamped <= MAX_UNSTAMPED * health.chunks


def _p99_ms(histogram: Histogram) -> float | None:
    ns = histogram.quantile_ns(0.99)
    return None if ns is None else ns / 1e6
