"""What a suite says and what a machine is: frozen structs that every other module receives and none changes.

What a case *learned* is in `record.py`. Reading and merging YAML is in `suite/`.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

Phase: TypeAlias = Literal[
    "import",
    "args",
    "device_init",
    "comm_init",
    "download",
    "weights_load",
    "draft_init",
    "kv_alloc",
    "compile",
    "cuda_graph_capture",
    "http_bind",
    "warmup",
    "ready",
    "serving",
    "shutdown",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The life of a server in order. `draft_init` and a second `weights_load` occur under speculation."""

BEFORE_WEIGHTS: frozenset[Phase] = frozenset({"import", "args", "device_init", "comm_init", "download"})
"""A failure here costs seconds, later ones cost the minutes that loading takes."""

DeadEndKind: TypeAlias = Literal["start", "serve", "slower", "inert", "missing", "garbage"]
ArgValue: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any]
Args: TypeAlias = dict[str, ArgValue]
ApiKind: TypeAlias = Literal["generate", "completions", "chat"]


class Place(Struct, frozen=True):
    """Where in a file something is written; `line` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


# --- what is documented not to work ---------------------------------------------------------------


class Match(Struct, frozen=True, kw_only=True):
    """What a failure looks like. Every field that is given must fit; regular expressions are searched, not anchored."""

    failure_class: tuple[str, ...] = ()
    """Classes of the classifier, any of them."""
    exception: str | None = None
    """Name of the exception type, exactly, without its module."""
    message: str | None = None
    """Regular expression for the root error's message."""


class Expect(Struct, frozen=True, kw_only=True):
    """How slow a dead end of kind `slower` is known to be."""

    metric: str
    value: float
    """In the metric's own unit: tok/s for throughput, ms for times."""
    tolerance: float
    """A fraction: 0.15 for 15 %."""


class Evidence(Struct, frozen=True, kw_only=True):
    """How it is known: seen on a machine, told by somebody, read in the engine's source, or concluded."""

    kind: Literal["observed", "reported", "read in source", "inferred"]
    source: str = ""
    """Host and date, thread, or file and line in the engine."""


class DeadEnd(Struct, frozen=True, kw_only=True):
    """One documented failure, ready to be held against what happens."""

    kind: DeadEndKind
    reason: str
    place: Place
    phases: frozenset[Phase] = frozenset()
    """Phases in which it may fail; empty means any."""
    match: tuple[Match, ...] = ()
    """What it looks like, any of them; empty only for kinds that need no text (`slower`, `inert`)."""
    inert_log: str | None = None
    """For kind `inert`: a regular expression for the log line with which the engine says that the path is off."""
    expect: Expect | None = None
    run: bool = True
    """False: never start it, it harms the host."""
    way_out: str | None = None
    link: str | None = None
    review: date | None = None
    """From this day on the entry warns that somebody should look at it again."""
    evidence: Evidence | None = None
    entry: str | None = None
    """Name of the registry entry it comes from; None when it is written in the suite."""
    engine_range: str | None = None
    """The registry's version range that applied, for the message that tells what to end."""


# --- what a suite asks for ------------------------------------------------------------------------


class Requires(Struct, frozen=True, kw_only=True):
    """What a host and an engine must have for a config to run. None and empty mean no demand."""

    gpus: int | None = None
    """At least so many."""
    product: str | None = None
    """Regular expression for the GPU's product name."""
    compute_capability: str | None = None
    """Exactly this, such as `12.0`, or a specifier such as `>=9.0`."""
    topology: str | None = None
    memory_gib: float | None = None
    """Of one GPU, at least."""
    engine: tuple[str, ...] = ()
    """Requirements such as `sglang>=0.5.21`."""
    build: str | None = None
    """Engine build, `stock` unless the site file says otherwise."""
    packages: tuple[str, ...] = ()
    """Requirements that the engine's environment must meet, such as `flashinfer_python>0.6.18`."""
    missing_packages: tuple[str, ...] = ()
    """Distributions that must be absent (for dead ends that are about their absence)."""
    why: str | None = None
    """Said beside what is missing, such as why no stock build can do it."""


class ModelRef(Struct, frozen=True, kw_only=True):
    id: str
    """Hub name or a name that `gpuserve.local.yaml` maps to a folder."""
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.id}@{self.revision}" if self.revision else self.id


class Lengths(Struct, frozen=True, kw_only=True):
    """How many tokens: fixed (`mean` alone), `uniform` in [low, high], or `lognormal` with mean and sigma, clipped."""

    kind: Literal["fixed", "uniform", "lognormal"] = "fixed"
    mean: float = 0
    low: int = 1
    high: int = 1_000_000
    sigma: float = 0.0


class Slo(Struct, frozen=True, kw_only=True):
    """A request is good when it meets every limit given (ms)."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Workload(Struct, frozen=True, kw_only=True):
    """The load of one case. Exactly one of `concurrency` and `request_rate` drives it; neither: all at once."""

    name: str
    concurrency: int | None = None
    request_rate: float | None = None
    """Requests per second, open loop; latency counts from the scheduled time."""
    arrival: Literal["constant", "poisson"] = "poisson"
    requests: int | None = None
    """Requests in a round; or `duration`."""
    duration: float | None = None
    """Seconds of sending in a round; or `requests`."""
    input_tokens: Lengths
    output_tokens: Lengths
    dataset: str | None = None
    """JSONL file in the shape of ShareGPT, relative to the suite; replaces generated prompts."""
    shared_prefix: float = 0.0
    """Share of each prompt that all requests of a round have in common, 0 to 1."""
    cache: Literal["cold", "warm"] = "cold"
    """cold: prompts are new in each round, and a cached prompt token makes the round invalid."""
    warmup: int = 1
    """Requests before the first round of a launch."""
    warmup_seconds: float = 0.0
    """Seconds of load before the first round, instead of or after `warmup`."""
    rounds: int = 3
    api: ApiKind | None = None
    """None: the engine's most exact one."""
    ignore_eos: bool = True
    temperature: float = 0.0
    seed: int = 0
    slo: Slo | None = None
    stall: float = 60.0
    """Seconds without any token after which the server counts as stalled."""
    prompt_tolerance: float = 0.0
    """Share by which counted prompt lengths may differ from those asked (a chat template adds tokens)."""
    busy_machine: bool = False
    """The machine has other work: what makes the client late, or a stream arrive at once, is a warning alone."""


class Gate(Struct, frozen=True, kw_only=True):
    """What decides over a case. `metrics` empty: a hypothesis, measured and never gated (`gate: none`)."""

    metrics: tuple[str, ...] = ("output_throughput", "tpot_ms", "accept_length")
    """The first is primary and decides with the whole error budget; a default that a workload does not yield is
    dropped."""
    tolerance: float = 0.05
    """The slowdown that must not pass, as a fraction."""
    explicit: bool = False
    """True when the suite chose the metrics: then one that is missing is an error."""

    @property
    def hypothesis(self) -> bool:
        return not self.metrics


class Launches(Struct, frozen=True, kw_only=True):
    """How often a server is started: within a run, and for a new baseline."""

    min: int = 1
    max: int = 5
    baseline: int = 8


class ActiveIf(Struct, frozen=True, kw_only=True):
    """Proof that the path under test was really taken."""

    log: str
    """Regular expression that some line of the server's log must fit before the first round."""


class Probe(Struct, frozen=True, kw_only=True):
    """One greedy request before the first round, whose answer is looked at and not its speed."""

    demand: Literal["record", "sane", "same"] = "sane"
    """record: nothing is demanded; sane: text that does not run in circles; same: besides, the text that the
    `compare_to` config gave to the same prompt."""
    prompt: str = "Name the months of the year in order, and say of each how many days it has."
    output_tokens: int = 64


PARALLEL = (
    ("tp-size", "tensor-parallel-size", "tp"),
    ("pp-size", "pipeline-parallel-size", "pp"),
    ("dp-size", "data-parallel-size", "dp"),
)
"""Flags of SGLang and vLLM whose values multiply to the number of GPUs; `--tp` is short for `--tp-size`."""


class Config(Struct, frozen=True, kw_only=True):
    """How to start one server, with the suite's defaults merged in."""

    id: str
    place: Place
    engine: str
    model: ModelRef
    args: Args
    """The engine's flags without dashes, in the order in which they are passed."""
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    """Variables passed on from our own environment; their values are secrets."""
    own_args: frozenset[str] = frozenset()
    """Flags that this config sets itself, beyond the suite's defaults: what it is about."""
    own_env: frozenset[str] = frozenset()
    requires: tuple[Requires, ...] = ()
    """The suite's demand and the config's; all must hold."""
    timeouts: dict[str, float] = field(default_factory=dict)
    """Seconds by phase."""
    python: str | None = None
    """Interpreter of the engine, when the suite names one."""
    markers: tuple[str, ...] = ()
    compare_to: str | None = None
    gate: Gate = Gate()
    active_if: ActiveIf | None = None
    probe: Probe | None = None
    dead_end: DeadEnd | None = None
    """Written in the suite (`xfail:` with a kind)."""
    known: str | None = None
    """Registry entry named by the suite; `none` opts out of those that its flags would select."""
    workloads: tuple[str, ...] = ()
    """Names of the workloads it is measured with; empty: all of the suite."""

    @property
    def gpus(self) -> int:
        """GPUs that the server takes: what its parallelism says, else the largest demand, else 1."""
        tensor, pipeline, data = (self._size(*flags) for flags in PARALLEL)
        if self.args.get("enable-dp-attention"):
            data = None  # replicas of the attention, on the GPUs of tensor parallelism
        ways = (tensor or 1) * (pipeline or 1) * (data or 1)
        if tensor is not None or ways > 1:
            return ways
        return max((r.gpus for r in self.requires if r.gpus), default=1)

    def _size(self, *flags: str) -> int | None:
        return next((size for flag in flags if isinstance(size := self.args.get(flag), int)), None)


class Suite(Struct, frozen=True, kw_only=True):
    """One YAML file, checked and merged."""

    name: str
    path: str
    markers: tuple[str, ...]
    workloads: dict[str, Workload]
    configs: tuple[Config, ...]
    launches: Launches = Launches()
    place: Place | None = None
    """Where its name is written, or the file's beginning."""

    def config(self, config_id: str) -> Config:
        return next(c for c in self.configs if c.id == config_id)

    def cases(self) -> tuple[Case, ...]:
        """Every config with each of its workloads, in file order."""
        return tuple(
            Case(suite=self.name, config=config, workload=self.workloads[name], launches=self.launches)
            for config in self.configs
            for name in (config.workloads or tuple(self.workloads))
        )


class Case(Struct, frozen=True, kw_only=True):
    """A config under a workload: one test."""

    suite: str
    config: Config
    workload: Workload
    launches: Launches = Launches()

    @property
    def id(self) -> str:
        """`<config>-<workload>`; workload names hold no `-`, so the last one splits it."""
        return f"{self.config.id}-{self.workload.name}"


# --- what a machine is ----------------------------------------------------------------------------


class Host(Struct, frozen=True, kw_only=True):
    """This machine, or a simulated one, as far as results depend on it."""

    profile: str
    """Folder name of its baselines, such as `rtx-pro-6000-blackwell-x8`; `cpu` without GPUs."""
    product: str
    count: int
    compute_capability: str
    """Such as `12.0`; empty without GPUs."""
    topology: str
    """`nvlink`, `pcie`, `single` or `none`."""
    driver: str
    memory_gib: float
    """Of one GPU."""
    power_limit_w: float | None = None
    simulated: bool = False
    note: str = ""
    """What could not be read and why, such as a driver that does not answer."""


class EngineBuild(Struct, frozen=True, kw_only=True):
    """The engine that is installed, read without importing it."""

    name: str
    version: str
    build: str = "stock"
    packages: dict[str, str] = field(default_factory=dict)
    """Versions of the distributions that matter to it: torch, flashinfer, NCCL, kernels."""
    python: str = ""


class PhaseRule(Struct, frozen=True, kw_only=True):
    """A log line that says which phase the server is in from here on."""

    phase: Phase
    pattern: str
    """Regular expression, searched in the line without its engine prefix."""
