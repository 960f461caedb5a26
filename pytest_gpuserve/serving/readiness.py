"""Whether it is our own process that answers on a port."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from . import processes, sockets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..load.api import Target

CONNECT_S, ANSWER_S = 2, 15
"""SGLang's health check takes a second at least, and longer under load."""


class Answer(NamedTuple):
    state: Literal["ready", "foreign", "not yet"]
    why: str


def ask(target: Target, path: str, members: Sequence[int]) -> Answer:
    """Who listens, and what GET `path` says; `members` are the processes of the launch.

    A server that could not bind may still say that it is ready while another one answers (SGLang does), so
    the listening socket must be held by one of ours.
    """
    inodes = sockets.listeners(target.port)
    if not inodes:
        return Answer("not yet", f"nothing listens on port {target.port}")
    if not sockets.holders(inodes, members) and not any(_hidden(pid) for pid in members):
        owners = sorted(sockets.holders(inodes, processes.table()))
        who = ", ".join(processes.describe(pid) for pid in owners) or "that may not be seen"
        return Answer("foreign", f"port {target.port} is answered by another process: {who}")
    said = _get(target, path)
    if said == "200":
        return Answer("ready", said)
    return Answer("not yet", f"{target.url}{path} does not answer 200: {said}")


def _hidden(pid: int) -> bool:
    """Whether a process may not be looked into: it could be the one that listens, so the answer has to do."""
    folder = f"/proc/{pid}/fd"
    return os.access(folder, os.F_OK) and not os.access(folder, os.R_OK)


def _get(target: Target, path: str) -> str:
    """The status of the answer as text, or why there is none."""
    import requests

    with requests.Session() as session:
        session.trust_env = False  # never through a proxy
        try:
            answer = session.get(
                target.url + path, headers=target.headers, timeout=(CONNECT_S, ANSWER_S), verify=False
            )
        except requests.RequestException as error:
            return type(error).__name__
        return str(answer.status_code)
