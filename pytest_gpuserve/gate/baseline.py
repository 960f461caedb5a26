"""What a baseline is: the stored launches of a case on a host, or a figure that somebody reported.

`baseline_file` reads and writes the files, `baselines` finds what is stored, `accept` makes baselines from records.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..model import Place
from ..record import METRIC_DEFINITION

if TYPE_CHECKING:
    from collections.abc import Sequence


class HostIdentity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be the same about the machine for figures to be comparable."""

    product: str | None = None
    """As the driver names it; None where only reported figures stand and nobody said."""
    count: int
    topology: str


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where stored launches come from. Only the definition must match; the rest is shown when it differs."""

    date: str
    """ISO 8601, UTC, of the first launch."""
    definition: str
    """Of the metrics, `record.METRIC_DEFINITION`."""
    engine: str | None = None
    version: str | None = None
    build: str | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


class Reported(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A figure that somebody told: a point without an interval, for one metric."""

    source: str
    metric: str
    value: float
    workload: str
    """What it was measured with there and how far that is known, in words."""


class Baseline(Struct, frozen=True, kw_only=True):
    """What a case is held against. Exactly one of `measured` and `reported` says where it comes from."""

    case: str
    place: Place
    host: HostIdentity
    model: str | None = None
    """`id` or `id@revision`; None for a reported figure of which it is not known."""
    workload: dict[str, Any] | None = None
    """The workload's fields that decide what is measured (`match.workload_identity`); None where reported."""
    tolerance: float | None = None
    """Overrides the suite's for this case on this host; a fraction."""
    measured: Measured | None = None
    reported: Reported | None = None
    rounds: dict[str, list[list[float]]] = field(default_factory=dict)
    """Metric -> the rounds of each launch, in the metric's unit; empty where reported."""

    @property
    def launches(self) -> dict[str, list[list[float]]]:
        """Metric -> the rounds of each launch; a reported figure is one launch of one round."""
        if self.reported is not None:
            return {self.reported.metric: [[self.reported.value]]}
        return self.rounds

    @property
    def count(self) -> int:
        """How many launches are stored; 0 for a reported figure."""
        return max((len(each) for each in self.rounds.values()), default=0)

    @property
    def definition(self) -> str:
        return self.measured.definition if self.measured else METRIC_DEFINITION

    @property
    def label(self) -> str:
        """`baseline` or `reported`, as in `record.Comparison.against`."""
        return "reported" if self.reported else "baseline"


def named(suite: str, case: str, names: Sequence[str]) -> bool:
    """Whether a case is meant by any of the names: `<suite>::<case>`, `<case>`, `<suite>`, or a shell pattern."""
    own = (f"{suite}::{case}", case, suite)
    return any(fnmatchcase(each, name) for name in names for each in own)
