"""A log is read while it grows, once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_gpuserve.record import Failure, PhaseTime
from pytest_gpuserve.serving import log_file
from pytest_gpuserve.serving.log_watch import LONGEST_LINE, LogWatch

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gpuserve.model import Phase


class Words:
    """A classifier to which the first word of a line is the phase, and `fatal` hopeless."""

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self.root: Failure | None = None
        self.hopeless = False
        self.lines: list[str] = []

    def feed(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith(("args", "weights_load", "ready", "shutdown")):
            self.phase = line.split()[0]  # type: ignore[assignment]
        self.hopeless = self.hopeless or line == "fatal"

    def finish(self, exit_status: int | None, *, timed_out: bool = False) -> Failure | None:
        name = "hang_startup" if timed_out else "unknown"
        return Failure(failure_class=name, phase=self.phase, exit_status=exit_status)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(path: Path) -> tuple[LogWatch, Words, Clock]:
    words, clock = Words(), Clock()
    return LogWatch(path, words, "^ready to roll", clock=clock), words, clock


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, words, _ = watch(path)
    assert log.poll() == 0
    add(path, "one\ntw")
    assert log.poll() == 6
    assert words.lines == ["one"]
    add(path, "o\r\n")
    log.poll()
    assert log.poll() == 0
    assert words.lines == ["one", "two"]
    assert log.offset == path.stat().st_size
    log.close()


def test_the_last_line_counts_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, words, _ = watch(path)
    add(path, "one\nKeyError: 12")
    failure = log.finish(-9)
    assert words.lines == ["one", "KeyError: 12"]
    assert failure is not None
    assert (failure.failure_class, failure.exit_status) == ("unknown", -9)
    late = log.finish(None, timed_out=True)
    assert late is not None
    assert late.failure_class == "hang_startup"
    log.close()


def test_phases_have_times_and_limits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, _, clock = watch(path)
    clock.now = 5.0
    add(path, "args\n")
    log.poll()
    clock.now = 7.0
    add(path, "weights_load 1\n")
    log.poll()
    limits: dict[Phase, float] = {"weights_load": 10.0}
    clock.now = 17.0
    assert log.overdue(limits) is None
    clock.now = 17.5
    assert log.overdue(limits) == ("weights_load", 10.0)
    assert log.phases() == [PhaseTime("import", 5.0), PhaseTime("args", 2.0), PhaseTime("weights_load", 10.5)]
    add(path, "args again\n")
    log.poll()
    add(path, "weights_load of the draft\n")
    log.poll()
    assert log.overdue(limits) is None, "a phase that comes again has its limit anew"
    log.enter("serving")
    assert log.overdue(limits) is None
    log.close()


def test_what_fails_once_it_serves_fails_in_that_phase(tmp_path: Path) -> None:
    """The classifier of an engine whose log tells of no request still is where the ready line was."""
    path = tmp_path / "log"
    log, _, _ = watch(path)
    add(path, "ready to roll\n")
    log.poll()
    early = log.finish(1)
    log.enter("serving")
    late = log.finish(1)
    assert early is not None
    assert late is not None
    assert (early.phase, late.phase) == ("ready", "serving")


def test_nobody_asked_a_server_that_fails_to_shut_down(tmp_path: Path) -> None:
    """llama.cpp says `cleaning up before exit` as well when a start fails: it failed in the phase before."""
    path = tmp_path / "log"
    log, _, _ = watch(path)
    add(path, "weights_load\nshutdown\n")
    log.poll()
    failed = log.finish(1)
    assert failed is not None
    assert (log.phase, log.working, failed.phase) == ("shutdown", "weights_load", "weights_load")


def test_silence_counts_from_the_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, _, clock = watch(path)
    clock.now = 3.0
    assert log.silence == 3.0
    add(path, "progress without an end")
    log.poll()
    assert log.silence == 0.0
    log.close()


def test_readiness_and_hopelessness(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, _, clock = watch(path)
    add(path, "not ready to roll\n")
    log.poll()
    assert not log.said_ready
    add(path, "ready to roll!\n")
    clock.now = 9.0
    add(path, "fatal\n")
    log.poll()
    assert log.said_ready
    assert log.hopeless_since == 9.0
    assert LogWatch(path, Words()).said_ready, "without an expression any log will do"
    log.close()


def test_a_progress_bar_is_its_last_state(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, words, _ = watch(path)
    add(path, "10%\r50%\r100%\nnext\n")
    log.poll()
    assert words.lines == ["100%", "next"]
    log.close()


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, words, _ = watch(path)
    add(path, "x" * (LONGEST_LINE + 10))
    log.poll()
    add(path, "y\n")
    log.poll()
    assert [len(line) for line in words.lines] == [LONGEST_LINE + 10, 1]
    log.close()


def test_a_watch_that_was_late_steps_over_the_hole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, words, _ = watch(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    capped = log_file.Capped(descriptor, head=8192, tail=8192)
    for number in range(2000):
        os.write(descriptor, b"%07d......................\n" % number)
        capped.trim()
    log.poll()
    assert capped.possible
    assert log.offset == path.stat().st_size
    assert words.lines[0].startswith("0000000.")
    assert words.lines[-1].startswith("0001999.")
    assert 500 < len(words.lines) < 1500
    assert not any("\0" in line for line in words.lines)
    os.close(descriptor)
    log.close()
