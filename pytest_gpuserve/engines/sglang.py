"""SGLang: `python -m sglang.launch_server`, which all versions have (newer ones recommend `sglang serve`)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ..failures.phases import phase_rules
from ..load.api import Api, Target
from ..model import ApiKind, Config, EngineBuild, Phase, PhaseRule, Workload
from .base import Command, Counters, Rehearsal, Site
from .control import ask
from .endpoints import OPENAI, Endpoint, chosen
from .exposition import totals
from .flags import refuse, render
from .installed import installed, interpreter, missing
from .model_folder import local_folder, locate, ordinary_tokens, settings
from .round_log import RoundRule, read_round

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

RESERVED = {
    "model-path": "write `model:`",
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
    # setproctitle would otherwise wipe /proc/<pid>/environ, where the supervisor finds its nonce.
    "SPT_NOENV": "1",
    # Milliseconds in the log's time stamps; read by every version since 0.5.10 at the latest.
    "SGLANG_LOG_MS": "1",
}
"""What a server gets unless the environment, the site or the suite sets it."""

ENDPOINTS: Mapping[ApiKind, Endpoint] = {"generate": Endpoint("/generate", True), **OPENAI}

ROUND_RULES = (
    RoundRule(
        r"Decode batch.*?cuda graph: False",
        "{n} decode log lines say `cuda graph: False`: the batch is beyond the captured sizes",
        invalid=True,
        only_after=r"(?i)Capture (?!target prefill)[\w ]*cuda graph begin",
    ),
    RoundRule(
        r"Decode batch.*?accept len: 1\.00,",
        "{n} decode log lines say `accept len: 1.00`: no draft token was accepted (a draft model of "
        "another kind, such as EAGLE weights under EAGLE3, does that)",
    ),
    RoundRule(
        r"KV cache pool is full\. Retract requests", "requests were retracted {n} times: the KV cache is full"
    ),
)

MERGES_OVERRIDES = "0.5.19"
"""From here on a nested part of an override is merged into the model's (`hf_transformers/config.py`, `get_config`);
0.5.9 to 0.5.16 replace the whole part by it, which breaks the model. 0.5.17 and 0.5.18 were not read."""

FLUSH_PATIENCE_S = 60.0


class SGLang:
    """Fulfils `engines.base.Engine`. What it knows of SGLang was read in its source, 0.5.9 to 0.5.23."""

    name: str = "sglang"
    ready: str = r"The server is fired up and ready to roll!"
    # The ready line is printed after a served warm-up request; the path adds that our port answers.
    # /health would do too, but makes an idle server decode a token, taking a second.
    ready_path: str = "/model_info"
    timeouts: dict[Phase, float] = {  # noqa: RUF012  (the protocol's own type)
        "import": 300,  # 30-50 s seen for one server, more when several start together
        "args": 300,
        "device_init": 300,
        "comm_init": 600,
        "download": 7200,
        "weights_load": 1800,
        "draft_init": 600,
        "kv_alloc": 600,
        "compile": 1800,
        "cuda_graph_capture": 1200,
        "http_bind": 300,
        "warmup": 600,  # SGLang's own limit for its warm-up request
        "shutdown": 60,
    }
    secret_args: frozenset[str] = frozenset(
        {"api-key", "admin-api-key", "ssl-keyfile-password", "model-loader-extra-config"}
    )

    def __init__(self) -> None:
        self.phases: tuple[PhaseRule, ...] = phase_rules("sglang")

    def rules(self) -> Traversable | None:
        """None: the classifier has SGLang's rules of its own."""
        return None

    def build(self, site: Site) -> EngineBuild:
        found = installed(site.python, site.env, module="sglang", engine=self.name)
        version = found.distributions.get("sglang")
        if version is None:
            raise missing(site.python, self.name, found)
        return EngineBuild(
            name=self.name,
            version=version,
            build=site.build,
            packages=found.distributions,
            python=site.python,
        )

    def command(self, config: Config, site: Site, target: Target, gpus: tuple[int, ...]) -> Command:
        refuse(config, RESERVED)
        model = self.model(config, site)
        revision = {"revision": config.model.revision} if model == config.model.id else {}
        argv = (
            *self.program(config, site),
            *("--model-path", model),
            *render(revision),
            *("--host", target.host, "--port", str(target.port)),
            *render(config.args),
            *config.extra_args,
        )
        return Command(argv=argv, env=self.environment(config, site, gpus))

    def program(self, config: Config, site: Site) -> tuple[str, ...]:
        """Interpreter and module."""
        return (interpreter(site.python), "-m", "sglang.launch_server")

    def model(self, config: Config, site: Site) -> str:
        """What to pass as the model's path. Raises SiteError for a folder that does not exist."""
        return locate(config.model, site)

    def environment(self, config: Config, site: Site, gpus: tuple[int, ...]) -> dict[str, str | None]:
        """What differs from our own environment; the suite wins over the site, and both over our defaults."""
        env: dict[str, str | None] = {k: v for k, v in ENVIRONMENT.items() if k not in os.environ}
        if any(name.lower().endswith("_proxy") for name in os.environ):
            # SGLang's warm-up asks its own server through requests, which would send it to the proxy.
            for name in ("no_proxy", "NO_PROXY"):
                env[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1,localhost,::1")))
        env |= site.env
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        return env | config.env

    def api(self, config: Config, workload: Workload, site: Site | None = None) -> Api:
        kind, endpoint = chosen(ENDPOINTS, workload, config, engine="SGLang")
        served = config.args.get("served-model-name")
        return Api(
            kind=kind,
            path=endpoint.path,
            model=str(served or (site.models if site else {}).get(config.model.id, config.model.id)),
            token_ids=endpoint.token_ids,
            chunk_usage=True,
            vocabulary=ordinary_tokens(local_folder(config.model, site)),
        )

    def info(self, target: Target) -> dict[str, Any]:
        answer = ask("GET", target, "/server_info")
        if answer.status_code == 404:
            answer = ask("GET", target, "/get_server_info")
        answer.raise_for_status()
        found = answer.json()
        return found if isinstance(found, dict) else {}

    def flush(self, target: Target) -> None:
        """400: requests still run. `timeout` makes newer versions wait, older ones are asked again."""
        deadline = time.monotonic() + FLUSH_PATIENCE_S
        while True:
            answer = ask("POST", target, "/flush_cache?timeout=10")
            if answer.status_code != 400 or time.monotonic() > deadline:
                answer.raise_for_status()
                return
            time.sleep(0.2)

    def counters(self, target: Target) -> Counters | None:
        total = totals(target, "sglang:")
        if total is None:  # without --enable-metrics
            return None
        return Counters(
            generated_tokens=total("generation_tokens_total"),
            prompt_tokens=total("prompt_tokens_total"),
            cached_tokens=total("cached_tokens_total"),
            verify_passes=total("spec_verify_calls_total"),
            cuda_graph_misses=total("cuda_graph_passes_total", {"mode": "decode_none"}),
        )

    def speculative(self, config: Config) -> bool:
        return bool(config.args.get("speculative-algorithm"))

    def round_warnings(self, log: Path, start: int, end: int) -> tuple[list[str], list[str]]:
        return read_round(log, start, end, ROUND_RULES)

    def rehearsal(self, config: Config, site: Site, version: str, *, whole: bool) -> Rehearsal:
        """Random weights, and few layers unless a draft model or a question about memory needs them all."""
        from .rehearsal import Overrides, cheap, why_whole

        overrides = Overrides(flag="json-model-override-args", nested_since=MERGES_OVERRIDES)
        why = why_whole(memory=whole, draft=self.speculative(config))
        return cheap(config, self.settings(config, site), version, overrides, all_layers=why)

    def settings(self, config: Config, site: Site) -> dict[str, Any] | None:
        """The model's config.json, or None where it is not on this host."""
        folder = local_folder(config.model, site)
        return settings(folder) if folder else None
