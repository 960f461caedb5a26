"""Secrets are removed from whatever is kept by their value, wherever it turns up."""

from __future__ import annotations

import json
import mmap
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

HIDDEN = "***"
SECRET_NAME = re.compile(
    r"(?:^|_)(?:[A-Z0-9]*(?:TOKEN|SECRET|PASSWORD|PASSWD|APIKEY)|KEY|CREDENTIALS?|PAT)(?=_|$)", re.I
)
"""Environment variables whose values are secrets: HF_TOKEN and OPENAI_API_KEY, but not MAX_TOKENS or
TOKENIZERS_...
"""
SHORTEST = 6
"""A shorter value (`KEY=1`) turns up everywhere by chance; it is hidden in its own place only."""


class Redactor:
    """Knows the secrets of one launch. `values` are secret whatever their names; empty ones are ignored."""

    def __init__(self, values: Iterable[str], environment: Mapping[str, str] | None = None) -> None:
        found = set(values) | {
            value for name, value in (environment or {}).items() if SECRET_NAME.search(name)
        }
        self._short = {value for value in found if value and len(value) < SHORTEST}
        forms = {
            form
            for value in found
            if len(value) >= SHORTEST
            for form in (value, quote(value, safe=""), json.dumps(value)[1:-1], repr(value)[1:-1])
        }
        either = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._pattern = re.compile(either) if forms else None
        self._bytes = re.compile(either.encode(errors="surrogateescape")) if forms else None

    def text(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text) if self._pattern else text

    def file(self, path: Path) -> int:
        """Overwrite the secrets in a file that nobody writes any more; how many there were. Every byte keeps
        its place. Raises OSError.
        """
        if self._bytes is None or not path.stat().st_size:
            return 0
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            spans = [found.span() for found in self._bytes.finditer(content)]
            for start, end in spans:
                content[start:end] = b"*" * (end - start)
        return len(spans)

    def data(self, data: Any) -> Any:
        """The same structure with every string, keys included, cleaned; values under secret names are hidden
        whole.
        """
        match data:
            case str():
                return self.text(data)
            case dict():
                return {
                    self.data(key): HIDDEN
                    if isinstance(key, str) and isinstance(value, str) and value and SECRET_NAME.search(key)
                    else self.data(value)
                    for key, value in data.items()
                }
            case list() | tuple():
                return [self.data(item) for item in data]
            case _:
                return data

    def words(self, argv: Iterable[str], secret_flags: Iterable[str] = ()) -> list[str]:
        """A command line; what follows a secret flag (named without dashes), or is joined to it by `=`, is
        hidden.
        """
        flags = {f"--{flag.lstrip('-')}" for flag in secret_flags}
        shown: list[str] = []
        hide = False
        for word in argv:
            flag, equals, _ = word.partition("=")
            if hide or word in self._short:
                shown.append(HIDDEN)
            elif equals and flag in flags:
                shown.append(f"{flag}={HIDDEN}")
            else:
                shown.append(self.text(word))
            hide = word in flags
        return shown
