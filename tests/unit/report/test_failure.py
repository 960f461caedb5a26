from __future__ import annotations

from pytest_gpuserve.failures.documented import Documented
from pytest_gpuserve.record import Failure
from pytest_gpuserve.report.failure import KEYS, as_dict, as_text

OOM = Failure(
    failure_class="gpu_busy",
    phase="device_init",
    exception="RuntimeError",
    message="Not enough memory.\nPlease free some",
    rank=3,
    line=211,
    excerpt="a\nRuntimeError: Not enough memory.",
    environment=True,
    exit_status=-9,
    advice="Find who holds the memory.",
)


def test_text_says_what_where_meaning_and_way_on() -> None:
    text = as_text(OOM, "server.log")
    lines = text.splitlines()
    assert lines[0] == "gpu_busy in phase device_init: RuntimeError: Not enough memory."
    assert lines[1] == "  server.log:211, rank 3, exit status -9"
    assert lines[2].startswith("  means: ")
    assert "  note:  this is the state of the machine" in text
    assert "  try:   Find who holds the memory." in text
    assert lines[-3:] == ["", "  | a", "  | RuntimeError: Not enough memory."]


def test_text_without_more_than_a_class() -> None:
    text = as_text(Failure(failure_class="brand_new"), "x.log")
    assert text == "brand_new: brand_new\n  x.log\n"


def test_nothing_failed() -> None:
    assert as_text(None, "x.log") == "x.log: nothing failed, as far as the log tells\n"
    assert as_dict(None) == dict.fromkeys(KEYS) | {"dead_ends": []}
    assert as_text(None, "x.log", recognised=False).startswith("x.log: no engine's log is recognised in this")


def test_what_is_documented_of_it_is_named() -> None:
    end = Documented(entry="a-path", title="A path", engine=">=0.5.9", way_out="leave it out", link=None)
    bare = Documented(entry="another", title="Another path", engine="", way_out=None, link=None)
    lines = as_text(OOM, "x.log", [end, bare]).splitlines()
    assert lines[5:7] == [
        "  documented: a-path (>=0.5.9): leave it out",
        "  documented: another: Another path",
    ]
    assert [one["entry"] for one in as_dict(OOM, [end, bare])["dead_ends"]] == ["a-path", "another"]


def test_keys_for_other_tools() -> None:
    found = as_dict(OOM)
    assert tuple(found)[: len(KEYS)] == KEYS
    assert (found["class"], found["environment"], found["rank"]) == ("gpu_busy", True, 3)
