"""A host profile and its versions as data: `profiles/<host>/profile.yaml` and `versions/*.yaml` beside it.

What a host does is read from these files, nothing of it is code, and every figure names its source.
docs/simulated-host.md describes them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct, ValidationError, convert, field

from ...errors import InputError

PROFILES = Path(__file__).parent / "profiles"
FLAGS = Path(__file__).parent / "flags"
T = TypeVar("T")
DEFAULT_PROFILE = "rtx-pro-6000-blackwell-x8"
DEFAULT_VERSION = "story"

SourceKind = Literal["reported", "observed", "read in source", "inferred", "assumed"]


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number and how it is known."""

    value: float
    kind: SourceKind
    source: str


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The loads for which a figure is known; outside of it the profile knows nothing."""

    concurrency: tuple[int, ...]
    input_tokens: tuple[int, int]
    """From, to."""
    output_tokens: tuple[int, int]


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request, by its lengths in tokens."""

    input_tokens: int
    output_tokens: int


class Serving(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast a server of this host generates."""

    output_throughput: Figure
    """Output tokens by the time of a whole request of `taken_for`, its prompt's time included."""
    first_token_ms: Figure
    """From the arrival of a request to its first token, without the time that grows with the prompt."""
    prefill_throughput: Figure
    """Prompt tokens per second beyond that."""
    taken_for: Request
    known_for: Shape
    accept_length: Figure | None = None
    """Tokens of a verify pass, the bonus token included; None decodes a token a step."""
    passes: tuple[int, ...] = (1,)
    """Tokens of the verify passes, over and over; their mean is the accept length."""

    def first_ms(self, prompt_tokens: int) -> float:
        """Time to first token of a prompt of which so many tokens are computed."""
        return self.first_token_ms.value + 1000 * prompt_tokens / self.prefill_throughput.value

    @property
    def step_ms(self) -> float:
        """Time of a decode step, or of drafting and a verify pass: what is left of the request, by its steps.

        The first token belongs to the prompt.
        """
        request = self.taken_for
        left = 1000 * request.output_tokens / self.output_throughput.value - self.first_ms(
            request.input_tokens
        )
        tokens, steps = 1, 0
        while tokens < request.output_tokens:
            tokens += self.passes[steps % len(self.passes)]
            steps += 1
        return left / steps


class HostFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    product: str
    count: int
    compute_capability: str
    topology: str
    driver: str
    memory_gib: float
    source: str


class Base(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every configuration shares, and what does not matter to any figure."""

    model_path: str
    args: dict[str, Any]
    """By field name; a configuration that says otherwise is one of which nothing is known."""
    neutral_args: frozenset[str]
    neutral_env: frozenset[str]
    start_args: frozenset[str] = frozenset()
    """Fields that do not matter to how a start ends, though they do to how fast it serves."""


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: HostFacts
    base: Base
    serving: dict[str, Serving]
    vocabulary: int
    model_type: str
    architecture: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the model's config.json, what says how its layers can be cut."""
    story: str = ""

    @property
    def most_requests(self) -> int:
        """At once, over all that is known."""
        return max(max(serving.known_for.concurrency) for serving in self.serving.values())


Ranks = Literal["all", "none", "0"]


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the start: wait, then write it."""

    id: str
    log: str
    after: float = 0.0
    """Seconds of the simulated clock."""
    ranks: Ranks = "none"
    only: Literal["speculative", "plain"] | None = None
    uvicorn: bool = False
    """uvicorn's own format, without milliseconds."""
    raw: bool = False
    """Written as it stands, without a time stamp."""


class Insert(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that a route adds before a step of the start."""

    before: str
    log: str
    ranks: Ranks = "all"


class Death(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a start ends badly: before which step, with which text, and what the exit status is."""

    before: str
    text: str
    """File in the profile's folder `deaths`."""
    exit: int
    ranks: tuple[int, ...] = ()
    """Each writes the text; empty: the main process does."""
    after: float = 0.0
    source: str


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of which something is known: its settings beyond the base, and what happens."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    """By field name; `*` fits any value."""
    optional: dict[str, Any] = field(default_factory=dict)
    """May be given, with these values."""
    env: dict[str, str] = field(default_factory=dict)
    serves: str = "no-spec"
    """How it serves, once it does."""
    omits: frozenset[str] = frozenset()
    """Steps of the start that it does not have."""
    dies: Death | None = None
    inert: tuple[Insert, ...] = ()
    """What the log says when the path stays off."""
    active: Insert | None = None
    """What the log says when the path is taken."""
    source: str


class Timed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of each chunk, of the first one only, of the last one only, in order."""

    each: tuple[str, ...]
    first: tuple[str, ...]
    last: tuple[str, ...]


class Serve(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between versions once they serve."""

    prefill: str
    """Log line, with `$new`, `$cached`, `$throughput`."""
    decode: str
    """Log line, with `$running`, `$tokens`, `$speculative`, `$throughput`."""
    accept_rate: Literal["with bonus", "drafts"]
    retractions: str
    """Name of the field in `meta_info`."""
    speculative: tuple[str, ...]
    """Fields of the last `meta_info` under speculation, in order."""
    timed: Timed
    """Fields of `meta_info` that need --enable-metrics."""
    metrics: tuple[str, ...]
    sigterm_exit: int
    sigterm: tuple[str, ...]


class Version(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One build of SGLang on this host."""

    version: str
    build: str
    source: str
    packages: dict[str, str]
    flags: str
    """File in `flags`, without its ending."""
    start: tuple[Step, ...]
    quit: tuple[str, ...]
    """What the main process writes when a rank failed."""
    quit_serving: tuple[str, ...]
    crash: str
    otherwise: str
    """Files in `deaths` for the perturbations of these names."""
    routes: tuple[Route, ...]
    serve: Serve
    serving: dict[str, Serving] = field(default_factory=dict)
    """Figures that differ from the profile's."""
    note: str = ""


@cache
def load_profile(name: str = DEFAULT_PROFILE) -> Profile:
    """Raises InputError for a profile that does not exist."""
    folder = PROFILES / name
    if not (folder / "profile.yaml").is_file():
        known = sorted(path.parent.name for path in PROFILES.glob("*/profile.yaml"))
        raise InputError(f"unknown host profile {name!r}; there are: {', '.join(known)}")
    return _read(folder / "profile.yaml", Profile)


@cache
def load_version(profile: str, name: str) -> Version:
    """Raises InputError, with what there is, for a version that does not exist."""
    file = PROFILES / profile / "versions" / f"{name}.yaml"
    if not file.is_file():
        raise InputError(f"unknown version {name!r}; there are: {', '.join(versions(profile))}")
    version = _read(file, Version)
    steps = {step.id for step in version.start}
    for route in version.routes:
        wanted = {insert.before for insert in route.inert}
        wanted |= {event.before for event in (route.active, route.dies) if event is not None}
        if lacking := (wanted | route.omits) - steps:
            raise InputError(f"{file}: route {route.name!r} names steps that the start lacks: {lacking}")
    return version


def versions(profile: str = DEFAULT_PROFILE) -> tuple[str, ...]:
    """Names of a profile's versions."""
    return tuple(sorted(path.stem for path in (PROFILES / profile / "versions").glob("*.yaml")))


def death_text(profile: str, file: str) -> str:
    return (PROFILES / profile / "deaths" / file).read_text(encoding="utf-8")


def _read(file: Path, type_: type[T]) -> T:
    import yaml

    # libyaml's parser where PyYAML has it: a start of the simulated server should cost no more than it must.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return convert(yaml.load(file.read_bytes(), loader), type_)
    except (yaml.YAMLError, ValidationError) as error:
        raise InputError(f"{file}: {error}") from None


class Flag(Struct, frozen=True):
    """A flag of SGLang's command line."""

    field: str
    names: tuple[str, ...]
    kind: str
    default: Any
    choices: tuple[str, ...] = ()


@cache
def load_flags(name: str) -> tuple[Flag, ...]:
    """The command line of one SGLang version."""
    flags = []
    for line in (FLAGS / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        field_name, names, kind, default, *choices = line.split("\t")
        flags.append(
            Flag(
                field_name,
                tuple(names.split()),
                kind,
                json.loads(default),
                tuple(choices[0].split()) if choices else (),
            )
        )
    return tuple(flags)
