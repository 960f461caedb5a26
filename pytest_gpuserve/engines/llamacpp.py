"""llama.cpp: `llama-server` on the PATH, or the same server embedded in a Python package (`pip install
xllamacpp`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EngineMissing, SiteError
from ..failures.phases import phase_rules
from ..load.api import Api, Target
from ..model import Config, EngineBuild, ModelRef, Phase, PhaseRule, Workload
from . import llamacpp_server
from .base import Command, Counters, Site
from .control import ask
from .endpoints import OPENAI, chosen
from .exposition import totals
from .flags import refuse, render
from .installed import installed
from .model_folder import locate, ordinary_tokens
from .round_log import RoundRule, read_round

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PROGRAM = "llama-server"
PACKAGE = "xllamacpp"
EMBEDDED = "embedded"
"""In the site's option `server`: do not look for llama-server."""

RESERVED = {
    "model": "write `model:`",
    "hf-repo": "write `model:`",
    "host": "it listens on the loopback address",
    "port": "a free one is taken for every start",
}

DRAFT_MODEL = "model-draft"
SPECULATIVE = (DRAFT_MODEL, "spec-draft-model", "spec-type", "hf-repo-draft")

ROUND_RULES = (
    RoundRule(
        r"\btruncated = 1\b",
        "{n} requests were truncated: they did not fit in the context of a slot (ctx-size / parallel)",
        invalid=True,
    ),
    RoundRule(
        r"failed to find (a memory slot|free space in the KV cache)", "the KV cache was full {n} times"
    ),
)


class LlamaCpp:
    """Fulfils `engines.base.Engine`. Seen with xllamacpp 2026.10 and llama-server built from the same
    source.
    """

    name: str = "llamacpp"
    ready: str = r"listening on http"
    ready_path: str = "/health"  # 503 while the model loads
    timeouts: dict[Phase, float] = {  # noqa: RUF012  (the protocol's own type)
        "import": 120,
        "args": 120,
        "download": 7200,
        "weights_load": 1800,
        "kv_alloc": 600,
        "http_bind": 60,
        "warmup": 600,
        "shutdown": 15,  # with requests in flight it lives on for 30 s and more
    }
    secret_args: frozenset[str] = frozenset({"api-key", "hf-token"})

    def __init__(self) -> None:
        self.phases: tuple[PhaseRule, ...] = phase_rules(self.name)

    def rules(self) -> Traversable | None:
        """None: the classifier has llama.cpp's rules of its own."""
        return None

    def build(self, site: Site) -> EngineBuild:
        """The version is llama.cpp's build number, in both forms."""
        if server := program(site):
            number = _build_number(server)
            return EngineBuild(name=self.name, version=number, build=site.build, python=server)
        found = installed(site.python, site.env, module=PACKAGE, engine=self.name)
        version = found.distributions.get(PACKAGE)
        if version is None:
            raise EngineMissing(
                f"there is no {PROGRAM} on the PATH, and {site.python} (Python {found.python_version}) does "
                f"not have {PACKAGE}: pip install 'pytest-gpuserve[local]', or name a {PROGRAM} as `server:` "
                f"under `engines: {{{self.name}: {{options: ...}}}}` in gpuserve.local.yaml"
            )
        return EngineBuild(
            name=self.name,
            version=version.split(".", 2)[-1],  # 2026.10.11549 holds llama.cpp's build 11549
            build=site.build,
            packages={PACKAGE: version},
            python=site.python,
        )

    def command(self, config: Config, site: Site, target: Target, gpus: tuple[int, ...]) -> Command:
        refuse(config, RESERVED)
        server = program(site)
        args = dict(config.args)
        if isinstance(draft := args.get(DRAFT_MODEL), str):
            args[DRAFT_MODEL] = str(gguf(ModelRef(id=draft), site))
        model = locate(config.model, site)
        if server and not Path(model).exists():
            wanted = ("--hf-repo", model)  # llama-server fetches it
        else:
            wanted = ("--model", str(gguf(config.model, site)))
        argv = (
            *((server,) if server else _embedded(site)),
            *wanted,
            *("--host", target.host, "--port", str(target.port)),
            *(() if "metrics" in args else ("--metrics",)),
            *render(args),
            *config.extra_args,
        )
        # GPU numbers as NVML counts them, so that the leased ones are the ones used.
        visible = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
        return Command(argv=argv, env={**site.env, **(visible if gpus else {}), **config.env})

    def api(self, config: Config, workload: Workload, site: Site | None = None) -> Api:
        kind, endpoint = chosen(OPENAI, workload, config, engine="llama.cpp")
        return Api(
            kind=kind,
            path=endpoint.path,
            model=str(config.args.get("alias") or config.model.id),
            token_ids=endpoint.token_ids,
            vocabulary=ordinary_tokens(self._beside(config, site)),
            keep_alive=False,  # closed after each stream, although the answer's head says Keep-Alive
            # A slot that happens to hold the beginning of a prompt would be used otherwise.
            extra={} if workload.cache == "warm" else {"cache_prompt": False},
        )

    def _beside(self, config: Config, site: Site | None) -> Path | None:
        """The folder of the GGUF, which may hold a config.json."""
        if site is None:
            return None
        where = Path(locate(config.model, site))
        return where if where.is_dir() else where.parent

    def info(self, target: Target) -> dict[str, Any]:
        answer = ask("GET", target, "/props")
        answer.raise_for_status()
        found = answer.json()
        return found if isinstance(found, dict) else {}

    def flush(self, target: Target) -> None:
        """Nothing to do: requests of a cold workload ask not to use the cache (`api`)."""

    def counters(self, target: Target) -> Counters | None:
        total = totals(target, "llamacpp:", absent=(404, 501))
        if total is None:
            return None
        return Counters(
            generated_tokens=total("tokens_predicted_total"),
            prompt_tokens=total("prompt_tokens_total"),
            cached_tokens=total("prompt_tokens_cached_total"),
            verify_passes=total("spec_decode_num_drafts_total"),
            accepted_tokens=total("spec_decode_num_accepted_tokens_total"),
        )

    def speculative(self, config: Config) -> bool:
        return any(config.args.get(flag) not in (None, "none") for flag in SPECULATIVE)

    def round_warnings(self, log: Path, start: int, end: int) -> tuple[list[str], list[str]]:
        return read_round(log, start, end, ROUND_RULES)


def program(site: Site) -> str | None:
    """The llama-server to start; None: the embedded one. Raises EngineMissing for one that the site names and
    that does not exist."""
    named = site.options.get("server")
    if named == EMBEDDED:
        return None
    found = shutil.which(str(Path(named or PROGRAM).expanduser()))
    if named is not None and found is None:
        raise EngineMissing(f"gpuserve.local.yaml names the llama-server {named}, which cannot be run")
    return found


def gguf(model: ModelRef, site: Site) -> Path:
    """The model's file: itself, or the one GGUF in its folder. Raises SiteError when there is not exactly
    one.
    """
    path = Path(locate(model, site))
    if path.is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    # Of a model in parts llama.cpp is given the first.
    firsts = [file for file in files if not re.search(r"-\d{5}-of-\d{5}\.gguf$", file.name)] or files[:1]
    if len(firsts) != 1:
        told = f"{len(firsts)} GGUF files" if path.is_dir() else "no such file or folder"
        raise SiteError(
            f"{model.id}: {told} at {path}; llama.cpp needs one: map the model to it in gpuserve.local.yaml"
        )
    return firsts[0]


def _embedded(site: Site) -> tuple[str, ...]:
    """The launcher, by its path: the engine's interpreter need not have this package. -P keeps our modules
    off its path.
    """
    return (str(Path(site.python).expanduser()), "-P", llamacpp_server.__file__)


@lru_cache(maxsize=8)
def _build_number(server: str) -> str:
    """`version: 11549 (abc)` -> `11549`."""
    try:
        answer = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineMissing(f"{server} does not say its version: {error}") from error
    found = re.search(r"^version:\s*b?(\d+)", answer.stderr + answer.stdout, re.M)
    return found[1] if found else "0"
