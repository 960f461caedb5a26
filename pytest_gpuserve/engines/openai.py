"""Any server with OpenAI's HTTP API that already runs: nothing is started or stopped, `--gpuserve-attach
URL`.

Of such a server nothing is known but its API. For a running SGLang, vLLM or llama.cpp, name that engine in
the suite and attach to it: then its counters and its cache can be asked as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import InputError, SiteError, SuiteError
from ..load.api import Api, Target
from ..model import EngineBuild
from .control import ask
from .endpoints import OPENAI, chosen
from .model_folder import FEWEST_TOKENS

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from ..model import Config, Phase, PhaseRule, Workload
    from .base import Command, Counters, Site

KEY_VARIABLE = "OPENAI_API_KEY"


class Dialect(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """How this server speaks the API: what a config of this engine writes under `args`."""

    url: str | None = None
    """Where it runs, such as `http://127.0.0.1:8000`; --gpuserve-attach wins."""
    token_ids: bool = False
    """Completions take token ids as prompts, so that their length is exact (vLLM, SGLang and llama.cpp do)."""
    vocabulary: int = FEWEST_TOKENS
    """Token ids are drawn below this."""
    chunk_usage: bool = False
    """It knows `stream_options.continuous_usage_stats` (vLLM and SGLang do)."""
    ignore_eos: bool = True
    """It takes `ignore_eos`; the service of OpenAI itself refuses it."""
    done: bool = True
    """Its streams end with [DONE] (those of `transformers serve` do not)."""
    keep_alive: bool | None = None
    """It keeps a connection after a stream (llama.cpp does not); None: the client finds out."""


class OpenAI:
    """Fulfils `engines.base.Engine` and `engines.base.Attaches`."""

    name: str = "openai"
    ready: str = ""
    ready_path: str = "/v1/models"
    phases: tuple[PhaseRule, ...] = ()
    timeouts: dict[Phase, float] = {}  # noqa: RUF012  (the protocol's own type)
    secret_args: frozenset[str] = frozenset()

    def rules(self) -> Traversable | None:
        """None: there is no log."""
        return None

    def target(self, config: Config, site: Site) -> Target:
        """The server's address, with the key of the environment where the suite passes it on. Raises
        InputError.
        """
        url = site.url or dialect(config).url or site.options.get("url")
        if url is None:
            raise SuiteError(
                f"config {config.id!r}: where does the server run? --gpuserve-attach URL, `args: {{url: ...}}`, or "
                f"`engines: {{{self.name}: {{options: {{url: ...}}}}}}` in gpuserve.local.yaml",
                config.place,
            )
        found = target_of(url)
        key = os.environ.get(KEY_VARIABLE) if KEY_VARIABLE in config.env_from else None
        return msgspec.structs.replace(found, headers={"Authorization": f"Bearer {key}"}) if key else found

    def build(self, site: Site) -> EngineBuild:
        """Nothing is installed that could be looked at."""
        return EngineBuild(name=self.name, version="unknown", build="attached")

    def command(self, config: Config, site: Site, target: Target, gpus: tuple[int, ...]) -> Command:
        """Never called: sessions attach to what has a `target`."""
        raise SiteError(f"config {config.id!r}: a server of engine {self.name} is attached to, never started")

    def api(self, config: Config, workload: Workload, site: Site | None = None) -> Api:
        """Completions, unless the workload says chat; usage at the end of the stream in both."""
        kind, endpoint = chosen(OPENAI, workload, config, engine="a server of OpenAI's API")
        spoken = dialect(config)
        return Api(
            kind=kind,
            path=endpoint.path,
            model=config.model.id,
            token_ids=spoken.token_ids,
            promises_done=spoken.done,
            chunk_usage=spoken.chunk_usage,
            keep_alive=spoken.keep_alive,
            ignore_eos=spoken.ignore_eos,
            vocabulary=spoken.vocabulary,
        )

    def info(self, target: Target) -> dict[str, Any]:
        answer = ask("GET", target, self.ready_path)
        answer.raise_for_status()
        found = answer.json()
        return found if isinstance(found, dict) else {}

    def flush(self, target: Target) -> None:
        """The API has no such call; that prompts are new in every round has to do, and cached ones are
        noticed where the server counts them.
        """

    def counters(self, target: Target) -> Counters | None:
        return None

    def speculative(self, config: Config) -> bool:
        return False

    def round_warnings(self, log: Path, start: int, end: int) -> tuple[list[str], list[str]]:
        return [], []


def dialect(config: Config) -> Dialect:
    """What a config says of its server. Raises SuiteError."""
    try:
        return msgspec.convert(config.args, Dialect)
    except msgspec.ValidationError as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(Dialect))
        raise SuiteError(
            f"config {config.id!r}: args of engine openai: {error}; there are: {known}", config.place
        ) from None


def target_of(url: str) -> Target:
    """`http://127.0.0.1:8000`, with or without `/v1` behind it. Raises InputError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no URL such as http://127.0.0.1:8000")
    if parts.path.rstrip("/") not in ("", "/v1") or parts.query or parts.username:
        raise InputError(f"{url!r}: give scheme, host and port alone, such as http://127.0.0.1:8000")
    tls = parts.scheme == "https"
    return Target(host=parts.hostname, port=port or (443 if tls else 80), tls=tls)
