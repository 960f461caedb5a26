"""The suite file as structs, field by field as it is written; `merge` and `workloads` check what they say."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from ..model import PHASES, ApiKind
from ..written import METRICS, RequiresSpec
from ..yaml_values import Duration, Environment, Pattern, Share

ConfigId: TypeAlias = Annotated[
    str,
    Meta(extra_json_schema={"pattern": "^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$"}),
]
Args: TypeAlias = Annotated[
    dict[str, Any],
    Meta(
        description="The engine's flags without the dashes: a value is `--key value`, true is `--key`, "
        "a list is `--key a b`, a mapping is JSON, null removes an inherited flag.",
        extra_json_schema={"propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}},
    ),
]
Texts: TypeAlias = list[str]
MOST_REQUESTS = 1_000_000
"""Of a round, per second, or in flight: a slip of the keyboard must not keep a host for years."""
MOST_TOKENS = 10_000_000
"""Of a prompt or an answer; contexts end far below."""
MetricName: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": list(METRICS)})]


class ModelSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """A model by its hub name, or by a name that gpuserve.local.yaml maps to a folder."""

    id: str
    revision: str | None = None


class LognormalParameters(Struct, forbid_unknown_fields=True, kw_only=True):
    mean: Annotated[float, Meta(description="Mean length in tokens.")]
    sigma: Annotated[float, Meta(description="Standard deviation of the logarithm of the length.")]
    low: int = 1
    high: int = 1_000_000


class LengthsSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """Lengths that differ: exactly one of the two."""

    uniform: (
        Annotated[list[int], Meta(min_length=2, max_length=2, description="[low, high], both included")]
        | None
    ) = None
    lognormal: LognormalParameters | None = None


class SloSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request is good when it meets every limit given (ms)."""

    ttft_ms: Annotated[float, Meta(gt=0)] | None = None
    tpot_ms: Annotated[float, Meta(gt=0)] | None = None
    e2e_ms: Annotated[float, Meta(gt=0)] | None = None


class WorkloadSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """The load of a case; see docs/suites.md."""

    concurrency: (
        Annotated[
            int | list[int],
            Meta(description="Requests in flight; a list makes one workload each: decode_c1, decode_c8, ..."),
        ]
        | None
    ) = None
    request_rate: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=MOST_REQUESTS,
                description="Requests per second, sent whether or not earlier ones ended.",
            ),
        ]
        | None
    ) = None
    arrival: Literal["constant", "poisson"] = "poisson"
    requests: Annotated[int, Meta(ge=1, le=MOST_REQUESTS, description="In a round; or duration.")] | None = (
        None
    )
    duration: Annotated[Duration, Meta(description="Of sending in a round; or requests.")] | None = None
    input_tokens: Annotated[int, Meta(ge=1, le=MOST_TOKENS)] | LengthsSpec | None = None
    output_tokens: Annotated[int, Meta(ge=1, le=MOST_TOKENS)] | LengthsSpec | None = None
    dataset: (
        Annotated[str, Meta(description="JSONL file in the shape of ShareGPT, relative to the suite.")] | None
    ) = None
    shared_prefix: Annotated[Share, Meta(description="Share of each prompt that all have in common.")] = 0.0
    cache: Literal["cold", "warm"] = "cold"
    warmup: Annotated[
        int | str, Meta(description="Before the first round of a launch: requests, or a time such as 30s.")
    ] = 1
    rounds: Annotated[int, Meta(ge=1, le=1000, description="Measured passes in a launch.")] = 3
    api: ApiKind | None = None
    ignore_eos: bool = True
    temperature: Annotated[float, Meta(ge=0, le=100)] = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0
    slo: SloSpec | None = None
    stall: Annotated[Duration, Meta(description="Without any token for so long, the server has stalled.")] = (
        60.0
    )
    prompt_tolerance: Share = 0.0
    busy_machine: Annotated[
        bool, Meta(description="The machine has other work: that the client is late is a warning alone.")
    ] = False


class LaunchesSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """How often a server is started."""

    min: Annotated[int, Meta(ge=1, le=1000, description="In a run, at least.")] = 1
    max: Annotated[int, Meta(ge=1, le=1000, description="In a run, at most.")] = 5
    baseline: Annotated[int, Meta(ge=1, le=1000, description="For a new baseline.")] = 8


class GateSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """What decides over a case."""

    metrics: Annotated[list[MetricName], Meta(description="The first is primary.")] | None = None
    tolerance: Annotated[Share, Meta(description="The slowdown that must not pass.")] | None = None


GateForm: TypeAlias = Annotated[
    Annotated[str, Meta(extra_json_schema={"enum": ["none", *METRICS]})] | list[MetricName] | GateSpec,
    Meta(description="none for a hypothesis; a metric, a list of them, or {metrics, tolerance}."),
]


class ActiveIfSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """Proof that the path under test was really taken."""

    log: Annotated[Pattern, Meta(description="Some line of the server's log must fit.")]


class ProbeSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """One greedy request before the first round, whose answer is looked at."""

    demand: Annotated[
        str,
        Meta(
            description="record: none; sane: text that does not run in circles; same: and the text of compare_to.",
            extra_json_schema={"enum": ["record", "sane", "same"]},
        ),
    ] = "sane"
    prompt: Annotated[str, Meta(min_length=1)] | None = None
    output_tokens: Annotated[int, Meta(ge=1)] = 64


ProbeForm: TypeAlias = Annotated[
    Annotated[str, Meta(extra_json_schema={"enum": ["none", "record", "sane", "same"]})] | ProbeSpec,
    Meta(description="What is demanded of the answer to a deterministic prompt; none asks for none."),
]


class KnownDeadEnd(Struct, forbid_unknown_fields=True, kw_only=True):
    """A documented failure that the registry of dead ends describes."""

    known: str


XfailForm: TypeAlias = Annotated[
    dict[str, Any],
    Meta(
        description="A dead end: {known: NAME}, or written out with kind, reason and match.",
        extra_json_schema={"anyOf": [{"$ref": "#/$defs/DeadEndSpec"}, {"$ref": "#/$defs/KnownDeadEnd"}]},
    ),
]
"""`KnownDeadEnd` or `DeadEndSpec`, converted later: msgspec has no union of two untagged structs."""


class ServerSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """How servers are started unless a config says otherwise."""

    engine: str | None = None
    model: str | ModelSpec | None = None
    args: Args = field(default_factory=dict)
    extra_args: Annotated[Texts, Meta(description="Passed as they stand, after args.")] = field(
        default_factory=list
    )
    env: Environment = field(default_factory=dict)
    env_from: Annotated[Texts, Meta(description="Variables passed on; their values are secrets.")] = field(
        default_factory=list
    )
    timeouts: Annotated[
        dict[str, Duration],
        Meta(description="By phase.", extra_json_schema={"propertyNames": {"enum": list(PHASES)}}),
    ] = field(default_factory=dict)
    python: Annotated[str, Meta(description="The engine's interpreter.")] | None = None


class ConfigSpec(ServerSpec, forbid_unknown_fields=True, kw_only=True):
    """How to start one server: what differs from the suite's `server`."""

    id: ConfigId
    requires: RequiresSpec | None = None
    markers: Texts = field(default_factory=list)
    workloads: Annotated[Texts, Meta(description="All of the suite when left out.")] | None = None
    compare_to: (
        Annotated[str, Meta(description="The config that this one is to be compared with.")] | None
    ) = None
    gate: GateForm | None = None
    active_if: ActiveIfSpec | None = None
    probe: ProbeForm | None = None
    xfail: XfailForm | None = None
    known: Annotated[str, Meta(description="Entry of the registry of dead ends; none opts out.")] | None = (
        None
    )


class SuiteSpec(Struct, forbid_unknown_fields=True, kw_only=True):
    """A suite of pytest-gpuserve."""

    suite: Annotated[ConfigId, Meta(description="The file's stem when left out.")] | None = None
    markers: Texts = field(default_factory=list)
    requires: RequiresSpec | None = None
    server: ServerSpec = field(default_factory=ServerSpec)
    workloads: Annotated[
        dict[str, WorkloadSpec], Meta(extra_json_schema={"propertyNames": {"pattern": "^[a-z0-9_]+$"}})
    ] = field(default_factory=dict)
    launches: LaunchesSpec = field(default_factory=LaunchesSpec)
    tolerance: Annotated[Share, Meta(description="The slowdown that must not pass, by default.")] | None = (
        None
    )
    gate: GateForm | None = None
    probe: ProbeForm | None = None
    configs: list[ConfigSpec] = field(default_factory=list)
