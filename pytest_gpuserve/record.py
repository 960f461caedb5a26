"""What a case learned: plain structs, one `Record` a case. Every report is drawn from records and from nothing else.

Unknown is None, never 0. Times are milliseconds where the name ends in `_ms`, seconds in `_s`; throughput is tokens
per second. `SCHEMA` changes when the meaning of a field does; the schema is written out in docs/records.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from .model import EngineBuild, Host, Phase, Place

SCHEMA = 1
METRIC_DEFINITION = "gpuserve-1"
"""Names the definitions that the numbers follow; figures of different definitions are not comparable."""


class Verdict(StrEnum):
    """What the gate says of a case."""

    OK = "ok"
    REGRESSED = "regressed"
    SLOWER = "slower-than-partner"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no-baseline"
    MEASURED = "measured"
    RECORDED = "recorded"
    NO_PARTNER = "no-partner"
    NOT_COMPARABLE = "not-comparable"
    INVALID = "invalid"
    INERT = "inert"
    START_FAILED = "start-failed"
    CRASHED = "crashed"
    STALLED = "stalled"
    GARBAGE = "garbage"
    STOP_FAILED = "stop-failed"
    DEAD_END = "dead-end"
    DEAD_END_CHANGED = "dead-end-changed"
    DEAD_END_OPEN = "dead-end-open"
    SKIPPED = "skipped"
    ERROR = "error"


class Failure(Struct, frozen=True, kw_only=True):
    """Why a server failed, as its log tells it."""

    failure_class: str
    """One of the classes in docs/failures.md; `unknown` is better than a wrong one."""
    phase: Phase | None = None
    exception: str | None = None
    message: str = ""
    rank: int | None = None
    line: int | None = None
    """Line of the log that holds the root error, from 1."""
    excerpt: str = ""
    environment: bool = False
    """True for the state of the machine, which is never a dead end."""
    exit_status: int | None = None
    advice: str = ""
    gpus_idle_before: bool = False
    """The GPUs were seen idle before the start, so that the memory which ran out was the server's own."""


class Spread(Struct, frozen=True, kw_only=True):
    """A distribution in five numbers. `n` counts the values behind it."""

    mean: float
    p50: float
    p90: float
    p99: float
    n: int


class Metrics(Struct, frozen=True, kw_only=True):
    """One round, by the definitions of docs/metrics.md. Only requests that succeeded count."""

    output_throughput: float | None = None
    """Output tokens of the steady-state window by its length, tok/s: what the gate looks at."""
    output_throughput_total: float | None = None
    """The same over the whole round, ramp-up and tail included."""
    input_throughput: float | None = None
    request_throughput: float | None = None
    peak_output_throughput: float | None = None
    ttft_ms: Spread | None = None
    ttfot_ms: Spread | None = None
    """First token that is not reasoning, of the requests that reason first."""
    tpot_ms: Spread | None = None
    itl_ms: Spread | None = None
    chunk_gap_ms: Spread | None = None
    e2e_ms: Spread | None = None
    accept_length: float | None = None
    """Tokens a verify pass yields, the bonus token included; from the engine's counts."""
    goodput: float | None = None
    """Requests per second that met the workload's `slo`."""

    def value(self, metric: str) -> float | None:
        """The figure the gate compares: the number itself, or the median of a distribution."""
        found = getattr(self, metric)
        return found.p50 if isinstance(found, Spread) else found


class ClientHealth(Struct, frozen=True, kw_only=True):
    """How wrong the client itself can be."""

    cpu_us_per_token: float | None = None
    cpu_share: float | None = None
    """Of one core, 0 to 1."""
    lag_ms_p99: float | None = None
    """How late the client turned to what was due."""
    schedule_delay_ms_p99: float | None = None
    """From the time a request was due to its sending: in an open loop its arrival time, else the end of the one
    before it."""
    merged_share: float | None = None
    """Share of chunks whose own stamp was lost because a later one arrived before they were read."""
    stamp_source: str = "user"
    """`kernel` or `user`."""
    error_bound_ms: float | None = None
    """The larger of the two below."""
    ttft_error_bound_ms: float | None = None
    itl_error_bound_ms: float | None = None
    """How far a TTFT or ITL can be off because of the client, at the 99th percentile; docs/load-client.md."""


class Requests(Struct, frozen=True, kw_only=True):
    ok: int = 0
    failed: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class Round(Struct, frozen=True, kw_only=True):
    """One measured pass of a workload within a launch."""

    duration_s: float
    window_s: float | None = None
    """Length of the steady-state window that `output_throughput` is taken over."""
    seed: int = 0
    requests: Requests = Requests()
    failures: dict[str, int] = field(default_factory=dict)
    """Failed requests by reason."""
    metrics: Metrics = Metrics()
    client: ClientHealth = ClientHealth()
    invalid: list[str] = field(default_factory=list)
    """Reasons why its numbers must not be used; empty when they may."""
    warnings: list[str] = field(default_factory=list)


class PhaseTime(Struct, frozen=True):
    phase: Phase
    seconds: float


class ProbeAnswer(Struct, frozen=True, kw_only=True):
    """What a server said to the suite's `probe`."""

    text: str
    output_tokens: int | None = None
    degenerate: str = ""
    """Why the text is no answer, such as that it runs in circles; empty when it may be one."""
    same_as: str = ""
    """Config whose answer to the same prompt it was held against; empty: none."""
    same_share: float | None = None
    """Of the longer text, how much both begin with: 1.0 when they are the same."""


class Launch(Struct, frozen=True, kw_only=True):
    """One start of a server, and the rounds of one workload in it."""

    started: str
    """ISO 8601, UTC."""
    ready_s: float | None = None
    """From the start of the process to readiness."""
    phases: list[PhaseTime] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    """Variables that change what the engine does (NCCL_, SGLANG_, CUDA_, ...), secrets removed by value."""
    log: str = ""
    """File, relative to the run folder."""
    server_info: dict[str, Any] = field(default_factory=dict)
    probe: ProbeAnswer | None = None
    rounds: list[Round] = field(default_factory=list)
    failure: Failure | None = None
    warnings: list[str] = field(default_factory=list)


class Comparison(Struct, frozen=True, kw_only=True):
    """A metric of this case held against a reference."""

    metric: str
    against: str
    """`baseline`, `reported` (a figure somebody told), `partner` or `expect`."""
    reference: float
    value: float
    ratio: float
    """value / reference."""
    low: float | None = None
    high: float | None = None
    """Interval of the ratio; None when there are too few launches to give one."""
    decision: str
    """`ok`, `worse`, `better`, `undecided`, or `note` where nothing was decided."""
    text: str
    """One line for people."""


class Record(Struct, frozen=True, kw_only=True):
    """All that a case learned."""

    schema: int = SCHEMA
    definition: str = METRIC_DEFINITION
    suite: str
    case: str
    config: str
    workload: str
    nodeid: str
    place: Place
    host: Host
    engine: EngineBuild | None = None
    simulated: bool = False
    verdict: Verdict
    outcome: str = ""
    """pytest's word: passed, failed, xfailed, skipped."""
    text: str = ""
    """The verdict in one or a few lines: what happened and what to do."""
    reason: str = ""
    """Of a dead end or a skip."""
    started: str = ""
    duration_s: float = 0.0
    launches: list[Launch] = field(default_factory=list)
    stopped_because: str = ""
    """Why no further launch was made."""
    comparisons: list[Comparison] = field(default_factory=list)
    failure: Failure | None = None
    dead_end_entry: str | None = None
    dead_end_kind: str | None = None
    way_out: str | None = None
    """Of a dead end: what to do instead."""
    review_due: bool = False
    """The dead end is past its review date."""
    compare_to: str | None = None
    hypothesis: bool = False
    gated: list[str] = field(default_factory=list)
    """Metrics that the suite gates, the primary one first; a baseline made from this record holds them."""
    model: str = ""
    workload_spec: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
