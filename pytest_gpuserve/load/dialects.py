"""What each engine's HTTP API takes, for `gpuserve bench`, which knows a URL and no config."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import InputError
from .api import Api, Target

if TYPE_CHECKING:
    from ..model import ApiKind

PROBE_S = 5.0


def _apis(*kinds: ApiKind, token_ids: bool = True, **traits: Any) -> dict[ApiKind, Api]:
    paths = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}
    return {
        kind: Api(
            kind=kind,
            path=paths[kind],
            model="",
            token_ids=token_ids and kind != "chat",
            **traits,
        )
        for kind in kinds
    }


DIALECTS: dict[str, dict[ApiKind, Api]] = {
    "sglang": _apis("generate", "completions", "chat", chunk_usage=True),
    "vllm": _apis("completions", "chat", chunk_usage=True),
    "llamacpp": _apis(
        "completions", "chat", vocabulary=8000, keep_alive=False, extra={"cache_prompt": False}
    ),
    "transformers": _apis(
        "chat", "completions", token_ids=False, promises_done=False, ignore_eos=False, keep_alive=None
    ),
    "openai": _apis("chat", "completions", "generate", token_ids=False, keep_alive=None),
}
"""By engine, the most exact kind of API first. `openai` is any other server: prompts are text."""

OWNERS = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llamacpp"}
"""`owned_by` in the list of models -> engine."""


class Found(NamedTuple):
    """What a server says of itself."""

    engine: str | None
    model: str
    vocabulary: int | None = None
    """Its size in tokens; None where the server does not tell."""


def ask(target: Target, base: str) -> Found:
    """The engine and its first model, from `GET /v1/models`; whatever cannot be had stays empty."""
    from http.client import HTTPException

    said: Any = None
    with contextlib.suppress(OSError, HTTPException, ValueError):
        said = _get(target, f"{base}/v1/models")
    models = said.get("data") if isinstance(said, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    if not isinstance(first, dict):
        return Found(None, "")
    meta = first.get("meta")  # llama.cpp's
    size = meta.get("n_vocab") if isinstance(meta, dict) else None
    return Found(
        OWNERS.get(str(first.get("owned_by", "")).lower()),
        str(first.get("id", "")),
        size if type(size) is int and size > 0 else None,
    )


def _get(target: Target, path: str) -> Any:
    import http.client
    import ssl

    connection: http.client.HTTPConnection
    if target.tls:
        context = ssl.create_default_context(cafile=target.ca_file)
        if not target.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(target.host, target.port, timeout=PROBE_S, context=context)
    else:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=PROBE_S)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=target.headers)
        answer = connection.getresponse()
        if answer.status != 200 or "json" not in answer.headers.get("content-type", ""):
            return None
        return json.loads(answer.read(1 << 20))


def choose(
    target: Target, base: str, *, engine: str | None, kind: ApiKind | None, model: str | None
) -> tuple[str, Api]:
    """The engine's name and the API to measure with. Asks the server only for what was not said.

    Raises InputError for an engine that is not known and for a kind of API that the engine does not have.
    """
    found = Found(engine, model or "")
    if (engine is None and kind is None) or (model is None and kind != "generate"):
        found = ask(target, base)
    name = engine or found.engine or ("sglang" if kind == "generate" else "openai")
    if name not in DIALECTS:
        raise InputError(f"--engine {name}: not one of {', '.join(DIALECTS)}")
    kinds = DIALECTS[name]
    chosen = kind or next(iter(kinds))
    if chosen not in kinds:
        raise InputError(f"--api {chosen}: {name} has {', '.join(kinds)}")
    api = kinds[chosen]
    if engine is None and found.engine is None:
        api = msgspec.structs.replace(api, keep_alive=None)  # supposed from the API alone: nobody knows
    if found.vocabulary is not None:
        # The smaller one: the ids at the end of a large vocabulary are special ones, or none at all.
        api = msgspec.structs.replace(api, vocabulary=min(api.vocabulary, found.vocabulary))
    return name, msgspec.structs.replace(
        api, path=base + api.path, model=model if model is not None else found.model or "default"
    )
