"""Failures of many kinds, in the engines' own words: see kinds.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_gpuserve.failures.classify import classify_text

KINDS = {
    kind["id"]: kind
    for kind in yaml.safe_load((Path(__file__).parent / "kinds.yaml").read_text(encoding="utf-8"))
}


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_told(name: str) -> None:
    kind = KINDS[name]
    failure = classify_text(kind["log"], engine=kind.get("engine"), exit_status=kind.get("exit"))
    assert (failure.failure_class if failure else None) in several(kind["class"])
    for field in ("phase", "exception", "rank"):
        if field in kind:
            assert failure is not None
            assert getattr(failure, field) in several(kind[field])
