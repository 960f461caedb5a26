from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_gpuserve.suite import load_suite

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gpuserve.model import Suite

SMALL = """\
server: {engine: sglang, model: some/model}
workloads:
  decode: {concurrency: 1, requests: 4, input_tokens: 128, output_tokens: 512}
configs:
  - id: no-spec
"""


class Load(Protocol):
    def __call__(self, text: str, **known: Any) -> Suite: ...


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Read a text as `s.yaml` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def load(text: str, **known: Any) -> Suite:
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return load_suite(path, **known)

    return load
