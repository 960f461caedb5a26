"""The stand-in as an engine, and how to make a server of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpuserve.engines.base import Command, Site
from pytest_gpuserve.load.api import Api
from pytest_gpuserve.model import Config, EngineBuild, ModelRef, PhaseRule, Place, Workload
from pytest_gpuserve.record import Failure
from pytest_gpuserve.serving.server import Server

if TYPE_CHECKING:
    from pytest_gpuserve.load.api import Target
    from pytest_gpuserve.serving.lease import Leases

SCRIPT = Path(__file__).with_name("stand_in.py")


class StandIn:
    name = "stand-in"
    ready = "fired up and ready to roll"
    ready_path = "/health"
    phases = (
        PhaseRule(phase="args", pattern="^server_args="),
        PhaseRule(phase="weights_load", pattern="^Load weight begin"),
        PhaseRule(phase="ready", pattern="fired up and ready to roll"),
        PhaseRule(phase="shutdown", pattern="^SIGTERM received"),
    )
    timeouts = {"import": 30.0, "args": 30.0, "weights_load": 30.0, "ready": 30.0, "shutdown": 3.0}  # noqa: RUF012
    secret_args = frozenset({"api-key"})

    def rules(self) -> None:
        return None

    def build(self, site: Site) -> EngineBuild:
        return EngineBuild(name=self.name, version="1.0")

    def command(self, config: Config, site: Site, target: Target, gpus: tuple[int, ...]) -> Command:
        argv = [site.python, "-S", str(SCRIPT), "--host", target.host, "--port", str(target.port)]
        for flag, value in config.args.items():
            argv += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
        return Command(argv=tuple(argv), env=dict(config.env))

    def api(self, config: Config, workload: Workload, site: Site) -> Api:
        return Api(kind="completions", path="/v1/completions", model="none", token_ids=True, chunk_usage=True)

    def info(self, target: Target) -> dict[str, Any]:
        return {}

    def flush(self, target: Target) -> None:
        pass

    def counters(self, target: Target) -> None:
        return None

    def speculative(self, config: Config) -> bool:
        return False

    def round_warnings(self, log: Path, start: int, end: int) -> tuple[list[str], list[str]]:
        return [], []


def config(**changes: Any) -> Config:
    """A config of the stand-in; `args` are the script's own flags."""
    fields: dict[str, Any] = {
        "id": "stand-in",
        "place": Place("suite.yaml", 1),
        "engine": "stand-in",
        "model": ModelRef(id="none"),
        "args": {},
    }
    return Config(**(fields | changes))


def server(folder: Path, leases: Leases, *, site: Site | None = None, **options: Any) -> Server:
    """A server of the stand-in under `folder`; `options` are fields of its config or arguments of Server."""
    of_config = {name: options.pop(name) for name in tuple(options) if name in Config.__struct_fields__}
    return Server(
        StandIn(),
        config(**of_config),
        site or Site(python=sys.executable),
        log=folder / "logs" / "stand-in-1.log",
        leases=leases,
        classifier=options.pop("classifier", None) or Reader(),
        **options,
    )


class Reader:
    """A classifier that knows the stand-in's one traceback, so that these tests depend on no rules."""

    def __init__(self) -> None:
        self.phase: Any = None
        self.root: Failure | None = None
        self.lines = 0

    @property
    def hopeless(self) -> bool:
        return self.root is not None

    def feed(self, line: str) -> None:
        self.lines += 1
        self.phase = next((r.phase for r in StandIn.phases if re.search(r.pattern, line)), self.phase)
        if found := re.match(r"(KeyError): (.*)", line):
            self.root = Failure(
                failure_class="software_bug",
                phase=self.phase,
                exception=found[1],
                message=found[2],
                line=self.lines,
                excerpt=line,
            )

    def finish(self, exit_status: int | None, *, timed_out: bool = False) -> Failure | None:
        return self.root
