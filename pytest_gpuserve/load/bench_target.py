"""Where `gpuserve bench` is to send its requests, and with which headers."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ..errors import InputError
from .api import Target

if TYPE_CHECKING:
    import argparse

EXAMPLE = "such as http://127.0.0.1:30000"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTED = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PATH = re.compile(r"/[!-~]*")


def target_of(options: argparse.Namespace) -> tuple[Target, str]:
    """Where the server listens, and the path before its endpoints. Raises InputError."""
    from urllib.parse import urlsplit

    url: str = options.url
    if "://" not in url:
        meant = f"; http://{url}?" if url else f", {EXAMPLE}"
        raise InputError(f"{url!r}: a URL begins with http:// or https://{meant}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{url}: not a URL {EXAMPLE}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InputError(f"{url}: not a URL {EXAMPLE}")
    try:
        host = parts.hostname.encode("idna").decode() if not parts.hostname.isascii() else parts.hostname
    except UnicodeError:
        raise InputError(f"{url}: no name of a host") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise InputError(f"{url}: no user, query or fragment can be sent; a key goes into --api-key-env")
    base = parts.path.rstrip("/").removesuffix("/v1")
    for given, path in ((url, base or "/"), (f"--path {options.path}", options.path or "/")):
        if not _PATH.fullmatch(path):
            raise InputError(f"{given}: a path begins with / and holds no blank and nothing beyond ASCII")
    tls = parts.scheme == "https"
    if options.ca_file is not None:
        _check_certificates(options.ca_file)
    target = Target(
        host=host,
        port=port or (443 if tls else 80),
        tls=tls,
        headers=_headers(options.header, options.api_key_env),
        verify=not options.insecure,
        ca_file=options.ca_file,
    )
    return target, base


def _headers(given: list[str], key_variable: str | None) -> dict[str, str]:
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        if not colon or not _NAME.fullmatch(name.strip()):
            raise InputError(f"--header {header!r}: not 'NAME: VALUE'")
        headers[name.strip()] = _sendable(value.strip(), f"--header {header!r}")
    if key_variable:
        if not (key := os.environ.get(key_variable)):
            raise InputError(f"--api-key-env {key_variable}: the variable is not set")
        headers["Authorization"] = f"Bearer {_sendable(key, f'--api-key-env {key_variable}')}"
    return headers


def _sendable(value: str, place: str) -> str:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise InputError(f"{place}: a header holds Latin-1 only") from None
    if _UNPRINTED.search(value):
        raise InputError(f"{place}: a header is one line, without control characters")
    return value


def _check_certificates(path: str) -> None:
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise InputError(f"--ca-file {path}: no certificates in PEM") from None
    except OSError as error:
        raise InputError(f"--ca-file {path}: {error.strerror or error}") from None
