from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pytest_gpuserve.errors import InputError
from pytest_gpuserve.record import Record, Verdict
from pytest_gpuserve.report import store
from pytest_gpuserve.report.store import RunFolder, RunInfo

if TYPE_CHECKING:
    from pathlib import Path
    from types import SimpleNamespace

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


def test_a_run_comes_back_as_it_was_in_the_order_of_its_suite(tmp_path: Path, story: list[Record]) -> None:
    folder = RunFolder(runs=tmp_path / "runs")
    for record in reversed(story):
        folder.write(record)
    assert folder.read() == story
    folder.finish(RunInfo(command=["pytest"], exit_status=0))
    assert store.read(folder.path) == story
    assert store.read(folder.path / "records.jsonl") == story
    assert store.info_of(folder.path) == RunInfo(command=["pytest"], exit_status=0)
    lines = (folder.path / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["case"] for line in lines] == [record.case for record in story]


def test_a_run_whose_single_files_are_gone_is_read_from_its_lines(
    tmp_path: Path, story: list[Record]
) -> None:
    folder = RunFolder(runs=tmp_path)
    path = folder.write(story[0])
    folder.finish(RunInfo())
    path.unlink()
    assert store.read(folder.path) == story[:1]


def test_one_records_file_can_be_read_alone(tmp_path: Path, story: list[Record]) -> None:
    assert store.read(RunFolder(tmp_path).write(story[2])) == [story[2]]


def test_a_run_without_cases_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(runs=tmp_path / ".gpuserve" / "runs")
    assert folder.read() == []
    folder.finish(RunInfo())
    assert not (tmp_path / ".gpuserve").exists()


def test_a_folder_that_was_only_reserved_is_removed(tmp_path: Path) -> None:
    folder = RunFolder(runs=tmp_path / ".gpuserve" / "runs")
    folder.logs.rmdir()
    assert folder.path.is_dir()
    folder.finish(RunInfo())
    assert not (tmp_path / ".gpuserve").exists()


def test_another_runs_folder_stays_when_a_reserved_one_goes(tmp_path: Path, story: list[Record]) -> None:
    runs = tmp_path / ".gpuserve" / "runs"
    other = RunFolder(runs=runs)
    other.write(story[0])
    reserved = RunFolder(runs=runs)
    assert reserved.path != other.path
    reserved.finish(RunInfo())
    assert list(runs.iterdir()) == [other.path]


def test_logs_alone_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(runs=tmp_path / ".gpuserve" / "runs")
    (folder.logs / "x.log").write_text("killed before any record")
    folder.finish(RunInfo())
    assert (folder.path / "logs" / "x.log").exists()


def test_folders_are_named_by_utc_and_never_shared(tmp_path: Path) -> None:
    local = NOON.astimezone(timezone(timedelta(hours=9)))
    names = [store.new_folder(tmp_path, local).name for _ in range(3)]
    assert names == ["2026-11-29T12-00-00Z", "2026-11-29T12-00-00Z-2", "2026-11-29T12-00-00Z-3"]


def test_the_latest_run_is_the_newest_that_has_records(tmp_path: Path, story: list[Record]) -> None:
    """One that goes on has none before its first case has ended."""
    RunFolder(store.new_folder(tmp_path, NOON - timedelta(days=1))).write(story[0])
    for _ in range(10):
        RunFolder(store.new_folder(tmp_path, NOON)).write(story[0])
    going_on = RunFolder(store.new_folder(tmp_path, NOON))
    assert going_on.logs.exists()
    (tmp_path / "not-a-run").mkdir()
    assert store.latest(tmp_path).name.endswith("-10")
    assert store.newest(tmp_path) == going_on.path
    going_on.write(story[0])
    assert store.latest(tmp_path) == going_on.path


def test_no_run_has_records_yet(tmp_path: Path) -> None:
    folder = store.new_folder(tmp_path, NOON)
    with pytest.raises(
        InputError, match=rf"has records: {folder.name} goes on, or ended before its first case"
    ):
        store.latest(tmp_path)
    assert store.newest(tmp_path / "nowhere") is None


def test_no_run_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no run in .*: run pytest first"):
        store.latest()


def test_runs_are_found_from_below_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: list[Record]
) -> None:
    folder = RunFolder(runs=tmp_path / ".gpuserve" / "runs")
    folder.write(story[0])
    below = tmp_path / "suites"
    below.mkdir()
    monkeypatch.chdir(below)
    assert store.find(None) == folder.path
    assert store.find(folder.path.name) == folder.path
    assert store.find(str(folder.path)) == folder.path
    with pytest.raises(InputError, match="no run at yesterday, nor in"):
        store.find("yesterday")


def test_distinct_cases_never_share_a_file() -> None:
    pairs = [
        ("a", "b"),
        ("a--b", "c"),
        ("a", "b--c"),
        ("a-", "b"),
        ("a", "-b"),
        ("a/b", "c"),
        ("a%2Fb", "c"),
        ("../a", "b"),
        ("a", "Ä"),
        ("x" * 300, "1"),
        ("x" * 300, "2"),
    ]
    names = [store.file_name(*pair) for pair in pairs]
    assert len(set(names)) == len(pairs)
    assert all(re.fullmatch(r"[^/]{1,220}\.json", name) for name in names)
    assert store.file_name("kimi_k2_5", "no-spec-decode") == "kimi_k2_5--no-spec-decode.json"


def test_a_second_record_of_a_case_replaces_the_first(tmp_path: Path, story: list[Record]) -> None:
    folder = RunFolder(tmp_path)
    folder.write(story[0])
    folder.write(replace(story[0], verdict=Verdict.STOP_FAILED))
    assert [record.verdict for record in folder.read()] == [Verdict.STOP_FAILED]
    assert len(list((tmp_path / "records").iterdir())) == 1, "no temporary file is left"


def test_a_write_that_fails_leaves_the_old_record(
    tmp_path: Path, story: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.write(story[0])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.write(replace(story[0], text="new"))
    assert folder.read() == story[:1]
    assert len(list((tmp_path / "records").iterdir())) == 1


def test_a_comparison_that_json_cannot_hold_becomes_a_warning(tmp_path: Path, made: SimpleNamespace) -> None:
    good, bad = made.comparison(90.0, 89.5), made.comparison(90.0, float("nan"))
    folder = RunFolder(tmp_path)
    folder.write(made.record("x", Verdict.NOT_COMPARABLE, comparisons=[good, bad], warnings=["w"]))
    (read,) = folder.read()
    assert read.comparisons == [good]
    assert read.warnings == ["w", bad.text]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schema": 99}', r"a\.json: written by newer pytest-gpuserve \(schema 99, this one reads 1\)"),
        (b'{"schema": 0}', r"a\.json: written by older pytest-gpuserve \(schema 0"),
        (b'{"schema": 1, "suite": "x"}', r"a\.json: not what pytest-gpuserve writes: .*missing required"),
        (b'{"schema": 1, "sui', r"a\.json: not what pytest-gpuserve writes: "),
        (b"[]", r"a\.json: not what pytest-gpuserve writes: "),
        (b"", r"a\.json: not what pytest-gpuserve writes: "),
        (b"\xff\xfe", r"a\.json: not what pytest-gpuserve writes: "),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        store.read(tmp_path)


def test_a_bad_line_is_named(tmp_path: Path, story: list[Record]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write(story[0])
    folder.finish(RunInfo())
    lines = tmp_path / "records.jsonl"
    lines.write_bytes((folder.path / "records.jsonl").read_bytes() + b"\n{oops\n")
    with pytest.raises(InputError, match=r"records\.jsonl:3: not what"):
        store.read(lines)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a run: it has neither records/ nor records\.jsonl"):
        store.read(tmp_path)


def test_fields_of_a_later_version_with_the_same_schema_do_not_matter(
    tmp_path: Path, story: list[Record]
) -> None:
    path = RunFolder(tmp_path).write(story[0])
    path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": "blue"}))
    assert store.read(tmp_path) == story[:1]
