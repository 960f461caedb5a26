from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_gpuserve.record import Record
from pytest_gpuserve.report import draw, store, summary

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path, story: list[Record]) -> Path:
    folder = store.RunFolder(tmp_path / "2026-11-29T12-00-00Z")
    for record in story:
        folder.write(record)
    folder.finish(store.RunInfo(command=["pytest", "suites"], exit_status=0))
    return folder.path


def test_text(run: Path) -> None:
    text = draw.report(run, "text", width=120)
    assert text.startswith(
        "2026-11-29T12-00-00Z: 1 ok, 3 dead-end, 1 skipped, simulated\n\n"
        "results on rtx-pro-6000-blackwell-x8, sglang 0.5.10 patched, simulated\n\n"
        "case            verdict      output"
    )
    assert text.endswith("pcie-ipc-allreduce-decode  needs sglang>=0.5.21, this is 0.5.10\n")


def test_markdown_is_the_job_summary(run: Path, story: list[Record]) -> None:
    assert draw.report(run, "markdown") == summary.markdown(story, run=run.name)


def test_json_holds_everything(run: Path, story: list[Record]) -> None:
    found = json.loads(draw.report(run, "json"))
    assert found["run"]["command"] == ["pytest", "suites"]
    assert msgspec.convert(found["records"], list[Record]) == story
    lines = json.loads(draw.report(run / "records.jsonl", "json"))
    assert lines["run"] is None
    assert lines["records"] == found["records"]


def test_csv_has_a_row_a_case(run: Path, story: list[Record]) -> None:
    rows = list(csv.DictReader(io.StringIO(draw.report(run, "csv"))))
    assert [row["case"] for row in rows] == [record.case for record in story]
    assert rows[0]["output_throughput"] == "90.2"
    assert rows[0]["simulated"] == "true"
    assert rows[0]["dead_end_kind"] == ""
    assert rows[2]["failure"] == "KeyError: 12"


def test_an_empty_run(tmp_path: Path) -> None:
    (tmp_path / "x" / "records").mkdir(parents=True)
    assert draw.report(tmp_path / "x", "text") == "x: no cases\n"
    assert draw.report(tmp_path / "x", "csv") == "\r\n"


@pytest.fixture
def other(tmp_path: Path, story: list[Record], trouble: list[Record]) -> Path:
    folder = store.RunFolder(tmp_path / "2026-11-30T12-00-00Z")
    for record in [*story[:1], trouble[0]]:
        folder.write(record)
    return folder.path


def test_comparison_as_text(run: Path, other: Path) -> None:
    text = draw.comparison(run, other, "text", width=120)
    assert text.startswith("B (2026-11-30T12-00-00Z) against A (2026-11-29T12-00-00Z)\n\ncase")
    assert "kimi_k2_5::no-spec-decode (simulated)  output tok/s" in text
    assert "\n\nonly in A (2026-11-29T12-00-00Z)\n\n" in text
    assert "\n\nonly in B (2026-11-30T12-00-00Z)\n\n" in text
    assert "h200_smoke::no-spec-decode  regressed" in text


def test_comparison_for_other_tools(run: Path, other: Path) -> None:
    found = json.loads(draw.comparison(run, other, "json"))
    assert [case["state"] for case in found["cases"]][:2] == ["compared", "only-in-a"]
    assert found["cases"][0]["figures"][0]["ratio"] == 1.0
    rows = list(csv.DictReader(io.StringIO(draw.comparison(run, other, "csv"))))
    assert rows[0]["metric"] == "output_throughput"
    assert rows[-1]["state"] == "only-in-b"
    assert rows[-1]["ratio"] == ""
    assert draw.comparison(run, other, "markdown").startswith(
        "## gpuserve compare: 2026-11-30T12-00-00Z against 2026-11-29T12-00-00Z\n\n### B (2026-11-30"
    )


def test_nothing_on_either_side(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    assert draw.comparison(tmp_path, tmp_path, "text") == "no cases in either run\n"
