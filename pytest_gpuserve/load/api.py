"""How a server is asked for tokens: what the client must know of an HTTP API, and nothing of the engine
behind it."""

from __future__ import annotations

from msgspec import Struct, field

from ..model import ApiKind


class Api(Struct, frozen=True, kw_only=True):
    """A streaming endpoint, as one engine offers it."""

    kind: ApiKind
    path: str
    """Such as `/generate` or `/v1/completions`."""
    model: str
    """Value of the request's `model`; unused by `generate`."""
    token_ids: bool
    """Prompts may be sent as token ids, so that their length is exact."""
    promises_done: bool = True
    """The stream ends with `data: [DONE]`; without it a request has not succeeded."""
    chunk_usage: bool = False
    """Each chunk can carry the count of tokens so far (`continuous_usage_stats`, or `meta_info` of
    `generate`)."""
    keep_alive: bool | None = True
    """A connection carries another request after a stream; False where the server closes it unsaid, None
    where nobody knows and the client has to find out."""
    ignore_eos: bool = True
    """The server takes `ignore_eos`."""
    vocabulary: int = 32000
    """Token ids for generated prompts are drawn below this; never the special ones at the start."""
    extra: dict[str, object] = field(default_factory=dict)
    """Further fields of the request body, as the engine needs them."""


class Target(Struct, frozen=True, kw_only=True):
    """Where a server listens."""

    host: str
    port: int
    tls: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    """Such as Authorization; never recorded."""
    verify: bool = True
    """Over TLS: the certificate must be trusted."""
    ca_file: str | None = None
    """Over TLS: trust these certificates (PEM) instead of the system's."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"
