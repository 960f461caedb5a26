"""Prometheus text, read just far enough to add up counters."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.M)


def total(text: str, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """Sum of a metric over all label sets that hold `labels`; None when there is no such sample.

    NaN samples, with which a collector says that it does not know, are left out.
    """
    wanted = [f'{key}="{value}"' for key, value in (labels or {}).items()]
    values = [
        value
        for sample, found, raw in _SAMPLE.findall(text)
        if sample == name and all(label in found.split(",") for label in wanted)
        if not math.isnan(value := float(raw))
    ]
    return sum(values) if values else None
