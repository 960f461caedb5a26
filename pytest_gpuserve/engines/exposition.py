"""A server's /metrics: Prometheus text, read just far enough to add up counters."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from .control import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..load.api import Target

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.M)


def totals(
    target: Target, prefix: str, *, absent: tuple[int, ...] = (404,)
) -> Callable[..., float | None] | None:
    """A function that looks a metric up in what the server counts now: `total` without its first argument,
    for names behind `prefix`. None where the status is one of `absent`: it was started without /metrics.
    """
    answer = ask("GET", target, "/metrics")
    if answer.status_code in absent:
        return None
    answer.raise_for_status()
    text = answer.text
    return lambda name, labels=None: total(text, prefix + name, labels)


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
