from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_gpuserve.gate.baseline_file import BaselineFile, write
from pytest_gpuserve.gate.show import show

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_gpuserve.gate.baseline import Baseline


@pytest.fixture
def folder(tmp_path: Path, make_baseline: Callable[..., Baseline], reported: Baseline) -> Path:
    measured = make_baseline(tolerance=0.04)
    told = msgspec.structs.replace(reported, case="eagle3-decode")
    for profile in ("rtx-pro-6000-blackwell-x8", "other-x8"):
        write(
            tmp_path / profile / "kimi.yaml",
            BaselineFile(
                suite="kimi",
                host=measured.host,
                cases={measured.case: measured, told.case: told},
            ),
        )
    return tmp_path


def test_everything_stored_is_a_line(folder: Path) -> None:
    lines = [each.line for each in show(folder)]
    assert len(lines) == 4
    assert lines[0] == ("other-x8 kimi::eagle3-decode: output_throughput 89.5 tok/s; reported: a forum")
    assert lines[1] == (
        "other-x8 kimi::no-spec-decode: output_throughput 89.5 tok/s ±0.505 %, tpot_ms 11.17 ms ±0.505 %; "
        "8 launches; tolerance 4 %; measured 2026-11-01, sglang 0.5.15"
    )


def test_what_is_shown_can_be_narrowed(folder: Path) -> None:
    (only,) = show(folder, ["no-spec-*"], profile="rtx-pro-6000-blackwell-x8")
    assert only.case == "no-spec-decode"
    assert only.launches == 8
    assert show(folder, ["nothing"]) == []


def test_an_empty_folder_shows_nothing(tmp_path: Path) -> None:
    assert show(tmp_path / "none") == []
