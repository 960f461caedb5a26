"""What an engine must tell so that it can be started, understood, measured and stopped: a short file each.

Third parties register theirs in the entry point group `pytest_gpuserve.engines`. docs/engines.md shows how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct, field

from ..model import Config

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from ..load.api import Api, Target
    from ..model import EngineBuild, Phase, PhaseRule, Workload


class Site(Struct, frozen=True, kw_only=True):
    """What this host says of an engine: `gpuserve.local.yaml`, options and defaults, already merged."""

    python: str
    """Interpreter that has the engine."""
    build: str = "stock"
    env: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    """Model id -> folder on this host."""
    url: str | None = None
    """A running server to attach to instead of starting one (`--gpuserve-attach`)."""
    time_scale: float = 1.0
    """Simulated host only: real seconds per simulated second while serving."""
    startup_scale: float = 1.0
    """Simulated host only: the same for the phases of the start and the stop."""
    options: dict[str, Any] = field(default_factory=dict)
    """Engine-specific settings, such as the profile and perturbations of the simulated host."""


class Command(Struct, frozen=True, kw_only=True):
    """A process to start. `env` is what differs from our own environment; None removes a variable."""

    argv: tuple[str, ...]
    env: dict[str, str | None] = field(default_factory=dict)
    cwd: str | None = None


class Counters(Struct, frozen=True, kw_only=True):
    """Totals that an engine counts since its start; what lay between two readings is their difference."""

    generated_tokens: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    verify_passes: float | None = None
    """Verify passes summed over requests: accept length = generated tokens / verify passes."""
    accepted_tokens: float | None = None
    """Draft tokens accepted, where the engine counts them: accept length = 1 + accepted / verify passes."""
    cuda_graph_misses: float | None = None


class Engine(Protocol):
    """See docs/engines.md. Methods that talk to a server raise `requests.RequestException` if it is mute."""

    name: str
    ready: str
    """Regular expression of the log line with which a server says that it is ready; not proof enough."""
    ready_path: str
    """GET path that answers 200 once requests are served."""
    phases: tuple[PhaseRule, ...]
    timeouts: dict[Phase, float]
    """Seconds a phase may take unless the suite says otherwise; `shutdown` is the grace after SIGTERM."""
    secret_args: frozenset[str]
    """Flags whose values must never be recorded."""

    def rules(self) -> Traversable | None:
        """This engine's rule file for `failures.classify`, or None when the general rules do."""

    def build(self, site: Site) -> EngineBuild:
        """What is installed, without importing it. Raises EngineMissing with what to do."""

    def command(self, config: Config, site: Site, target: Target, gpus: tuple[int, ...]) -> Command:
        """The process for a config that listens on `target` and sees only `gpus` (empty: does not matter)."""

    def api(self, config: Config, workload: Workload, site: Site | None = None) -> Api:
        """The endpoint to measure with; the most exact one unless the workload names a kind.

        `site` leads to the model's files, which know the vocabulary.
        """

    def info(self, target: Target) -> dict[str, Any]:
        """What the server says of itself: resolved arguments, versions. Secrets may still be in it."""

    def flush(self, target: Target) -> None:
        """Empty the prompt cache and return when it is empty."""

    def counters(self, target: Target) -> Counters | None:
        """Running totals, or None where the engine has none."""

    def speculative(self, config: Config) -> bool:
        """Whether the config decodes speculatively, so that an accept length is expected."""

    def round_warnings(self, log: Path, start: int, end: int) -> tuple[list[str], list[str]]:
        """What the log between two byte offsets says against a round: (reasons it is invalid, warnings)."""


@runtime_checkable
class Attaches(Protocol):
    """An engine may have this besides: its servers run already and are never started or stopped."""

    def target(self, config: Config, site: Site) -> Target:
        """Where the config's server runs. Raises InputError when nobody has said so."""


class Rehearsal(Struct, frozen=True, kw_only=True):
    """A config made cheap to start, so that `gpuserve check --start` can see how its start ends."""

    config: Config
    """With its own settings as they are: they are what a dead end is about."""
    changes: tuple[str, ...]
    """What was changed, and what had to stay and why, a sentence each."""


@runtime_checkable
class Rehearses(Protocol):
    """An engine may have this besides: its servers can be started without the cost of their weights."""

    def rehearsal(self, config: Config, site: Site, version: str, *, whole: bool) -> Rehearsal:
        """The config as it starts without reading weights, and with few layers where that is possible.

        `version` is the installed engine's. `whole` keeps every layer: what is asked is about memory.
        """
