"""The HTTP APIs that engines have, and which of them a workload is measured with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import SuiteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model import ApiKind, Config, Workload


class Endpoint(Struct, frozen=True):
    path: str
    token_ids: bool
    """Prompts go as token ids, so that their length is exact."""


OPENAI: Mapping[ApiKind, Endpoint] = {
    "completions": Endpoint("/v1/completions", True),
    "chat": Endpoint("/v1/chat/completions", False),
}


def chosen(
    offered: Mapping[ApiKind, Endpoint], workload: Workload, config: Config, *, engine: str
) -> tuple[ApiKind, Endpoint]:
    """The kind that the workload names, else the first that is offered, which is the most exact one.

    Raises SuiteError for one that the engine does not have.
    """
    kind = next(iter(offered)) if workload.api is None else workload.api
    if kind not in offered:
        raise SuiteError(
            f"workload {workload.name!r}: {engine} has no api {kind!r}, only {' and '.join(offered)}",
            config.place,
        )
    return kind, offered[kind]
