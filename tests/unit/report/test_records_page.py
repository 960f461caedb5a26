"""docs/records.md is the schema that other tools read: it names every field of every struct, in order."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pytest_gpuserve import model, record
from pytest_gpuserve.report.store import RunInfo

PAGE = (Path(__file__).parents[3] / "docs" / "records.md").read_text()
STRUCTS: list[type[msgspec.Struct]] = [
    record.Record,
    model.Place,
    model.Host,
    model.EngineBuild,
    record.Launch,
    record.ProbeAnswer,
    record.PhaseTime,
    record.Round,
    record.Requests,
    record.Metrics,
    record.Spread,
    record.ClientHealth,
    record.Comparison,
    record.Failure,
    RunInfo,
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_stands_on_the_page(struct: type[msgspec.Struct]) -> None:
    section = re.search(rf"^## {struct.__name__}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    assert section, f"no section {struct.__name__}"
    assert re.findall(r"^\| `(\w+)` \|", section[1], re.M) == list(struct.__struct_fields__)


def test_no_struct_that_a_record_reaches_is_left_out() -> None:
    reached = {name for root in (record.Record, RunInfo) for name in msgspec.json.schema(root)["$defs"]}
    assert reached - {"Verdict"} == {struct.__name__ for struct in STRUCTS}


def test_every_verdict_stands_on_the_page() -> None:
    told = re.search(r"^Verdicts: (.*?)\. \[ci\.md\]", PAGE, re.S | re.M)
    assert told
    assert re.findall(r"`([\w-]+)`", told[1]) == [verdict.value for verdict in record.Verdict]


def test_the_schema_version_stands_on_the_page() -> None:
    assert f"`schema` is {record.SCHEMA}." in PAGE
