"""Throughput against latency: the cases that a list of concurrencies makes of one workload, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figures import metric, number, percentile
from .table import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..record import Record

COLUMNS = (
    Column("case"),
    Column("in flight", right=True),
    Column("output tok/s", right=True),
    Column("of the most"),
    Column("tok/s a stream", right=True),
    Column("TTFT ms p50", right=True),
    Column("TTFT ms p99", right=True),
    Column("TPOT ms p50", right=True),
    Column("TPOT ms p99", right=True),
    Column("E2E ms p50", right=True),
)
BAR = 20
"""Characters for the highest throughput of a curve."""


def curves(records: Sequence[Record]) -> list[list[Record]]:
    """The measured cases of each config and workload that has several concurrencies, by concurrency.

    `concurrency: [1, 8]` of a workload `decode` names its cases `decode_c1` and `decode_c8` (docs/suites.md).
    """
    found: dict[tuple[str, str, str], list[tuple[int, Record]]] = {}
    for record in records:
        level = record.workload_spec.get("concurrency")
        written = record.workload.removesuffix(f"_c{level}")
        if level is None or written == record.workload or metric(record, "output_throughput") is None:
            continue
        found.setdefault((record.suite, record.config, written), []).append((level, record))
    return [
        [record for _, record in sorted(points, key=lambda point: point[0])]
        for points in found.values()
        if len(points) > 1
    ]


def row(record: Record, most: float) -> tuple[str, ...]:
    """The cells after the case's name; `most` is the highest throughput of its curve."""
    rate, tpot = metric(record, "output_throughput"), percentile(record, "tpot_ms", "p50")
    return (
        str(record.workload_spec["concurrency"]),
        number(rate),
        "#" * max(1, round(BAR * (rate or 0.0) / most)),
        number(1e3 / tpot) if tpot else "",
        number(percentile(record, "ttft_ms", "p50")),
        number(percentile(record, "ttft_ms", "p99")),
        number(tpot),
        number(percentile(record, "tpot_ms", "p99")),
        number(percentile(record, "e2e_ms", "p50")),
    )
