"""The runs under docs/runs: their summaries are what `gpuserve report` draws from their records today."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuserve.report import draw, store

RUNS = sorted(path.parent for path in (Path(__file__).parents[3] / "docs" / "runs").glob("*/*/records.jsonl"))


def test_there_are_runs() -> None:
    assert RUNS


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}/{run.name}")
def test_a_summary_is_drawn_from_its_records(run: Path) -> None:
    assert draw.report(run, "markdown").strip() == (run / "summary.md").read_text().strip()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}/{run.name}")
def test_what_was_measured_is_not_simulated(run: Path) -> None:
    records = store.read(run)
    assert records
    assert not any(record.simulated for record in records)
