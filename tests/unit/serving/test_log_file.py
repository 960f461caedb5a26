"""A log is capped in place: head, tail and offsets stay true."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.serving import log_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD, TAIL = 64 << 10, 128 << 10


def line(number: int) -> bytes:
    return b"line %07d " % number + b"." * 46 + b"\n"  # 60 bytes


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield path, descriptor
    os.close(descriptor)


def fill(path: Path, descriptor: int, lines: int) -> log_file.Capped:
    """Write as a server does, with the supervisor looking now and then."""
    capped = log_file.Capped(descriptor, head=HEAD, tail=TAIL)
    for start in range(0, lines, 500):
        os.write(descriptor, b"".join(line(n) for n in range(start, start + 500)))
        capped.trim()
    if not capped.possible:
        pytest.fail(f"the file system of {path} cannot punch holes")
    return capped


def test_disk_use_is_bounded_and_offsets_are_kept(log: tuple[Path, int]) -> None:
    path, descriptor = log
    fill(path, descriptor, 50_000)
    found = path.stat()
    assert found.st_size == 50_000 * 60
    assert found.st_blocks * 512 <= HEAD + 2 * TAIL + 500 * 60 + 2 * log_file.BLOCK
    assert os.pread(descriptor, 60, 0) == line(0)
    assert os.pread(descriptor, 60, 49_999 * 60) == line(49_999)


def test_reading_says_what_is_missing(log: tuple[Path, int]) -> None:
    path, descriptor = log
    fill(path, descriptor, 50_000)
    lines = list(log_file.read_lines(path))
    gaps = [n for n, text in enumerate(lines) if text.startswith("[gpuserve: ")]
    assert len(gaps) == 1
    assert lines[0] == line(0).decode().rstrip()
    assert lines[-1] == line(49_999).decode().rstrip()
    whole = [text for n, text in enumerate(lines) if n not in (gaps[0] - 1, *gaps)]
    assert all(len(text) == 59 and text.startswith("line ") for text in whole)
    assert not any("\0" in text for text in lines)


def test_a_small_log_is_left_alone(log: tuple[Path, int]) -> None:
    path, descriptor = log
    fill(path, descriptor, 1000)
    before = path.stat().st_ino
    log_file.compact(str(path))
    assert path.stat().st_ino == before
    assert list(log_file.read_lines(path)) == [line(n).decode().rstrip() for n in range(1000)]


def test_compacting_makes_it_small_for_good(log: tuple[Path, int]) -> None:
    path, descriptor = log
    fill(path, descriptor, 50_000)
    log_file.compact(str(path))
    text = path.read_bytes()
    assert len(text) < HEAD + 2 * TAIL + 500 * 60 + 4 * log_file.BLOCK
    assert text.startswith(line(0))
    assert text.endswith(line(49_999))
    assert text.count(b"bytes of the log's middle were left out here") == 1
    assert b"\0" not in text
    # Who had it open goes on reading the old one.
    assert os.pread(descriptor, 60, 49_999 * 60) == line(49_999)


def test_a_file_system_without_holes(log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, descriptor = log

    def refuse(*args: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(log_file, "_punch", refuse)
    capped = log_file.Capped(descriptor, head=HEAD, tail=TAIL)
    os.write(descriptor, b"x" * (HEAD + 3 * TAIL))
    capped.trim()
    capped.trim()
    assert not capped.possible
    assert path.stat().st_size == HEAD + 3 * TAIL


def test_an_unfinished_line_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\r\ntwo")
    assert list(log_file.read_lines(path)) == ["one", "two"]
    path.write_bytes(b"")
    assert list(log_file.read_lines(path)) == []
