"""Calls that steer a server and are not measured: what it says of itself, its counters, its caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from requests import Response

    from ..load.api import Target

PATIENCE_S = 30


def ask(method: str, target: Target, path: str) -> Response:
    """Never through a proxy: the server is on this machine. Raises RequestException if it is mute."""
    import requests

    with requests.Session() as session:
        session.trust_env = False
        return session.request(
            method, target.url + path, headers=target.headers, timeout=PATIENCE_S, verify=False
        )
