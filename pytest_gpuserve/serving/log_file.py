"""A server's log: written by the server itself, so that nothing can block it, and capped by punching out its
middle.

The head holds the start-up, the tail what happened last; both are kept. Because the middle is punched out in
place, offsets stay true while the server runs. When it has ended the file is made small for good. Standard
library only.
"""

# ruff: noqa: PTH105, PTH123
# pathlib would slow the supervisor's start.
from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 4096
KEEP_SIZE, PUNCH_HOLE = 1, 2
MIN_FREE = 128 << 20
"""Below so many free bytes the disk counts as full: the records of the run must still fit."""


class Capped:
    """Keeps an open log within `head + 2 * tail` bytes on disk."""

    def __init__(self, descriptor: int, *, head: int, tail: int) -> None:
        self._descriptor = descriptor
        self._head = _up(head)
        self._tail = tail
        self._punched = self._head
        self.possible = True
        """False once the file system has refused."""

    def trim(self) -> None:
        """Punch out what is neither head nor tail. Cheap when there is nothing to do."""
        size = os.fstat(self._descriptor).st_size
        if not self.possible or size - self._punched <= 2 * self._tail:
            return
        end = (size - self._tail) // BLOCK * BLOCK
        try:
            _punch(self._descriptor, self._punched, end - self._punched)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM):
                raise
            self.possible = False
        else:
            self._punched = end


def _up(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _punch(descriptor: int, start: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(descriptor, KEEP_SIZE | PUNCH_HOLE, start, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def free_bytes(folder: str) -> int:
    """Bytes that this user can still write to the file system of `folder`."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def data_range(descriptor: int, offset: int) -> tuple[int, int]:
    """Start and end of the first stretch of data at or after `offset`; empty at the end of the file."""
    try:
        start = os.lseek(descriptor, offset, os.SEEK_DATA)
        return start, os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole, or nothing at all
            return offset, offset
        return offset, os.fstat(descriptor).st_size


def pieces(descriptor: int, offset: int = 0, chunk: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of a log from `offset` to its end, holes left out."""
    while True:
        start, end = data_range(descriptor, offset)
        data = os.pread(descriptor, min(chunk, end - start), start) if end > start else b""
        if not data:
            return
        yield start, data
        offset = start + len(data)


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Lines of a log without their ends, with a line that says how much is missing where its middle was
    punched out.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        rest, expected = b"", 0
        for offset, data in pieces(descriptor):
            block = data
            if offset != expected:
                if rest:
                    yield rest.decode(errors="replace")
                yield gap(offset - expected)
                rest, block = b"", data.partition(b"\n")[2]
            *lines, rest = (rest + block).split(b"\n")
            yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
            expected = offset + len(data)
        if rest:
            yield rest.decode(errors="replace")
    finally:
        os.close(descriptor)


def gap(size: int) -> str:
    """What stands in a log for what was left out."""
    return f"[gpuserve: {size} bytes of the log's middle were left out here]"


def compact(path: str) -> None:
    """Replace a log that has a hole by a short one. Those who have the old one open can go on reading it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0 or os.lseek(descriptor, 0, os.SEEK_HOLE) >= size:
            return
        expected = 0
        with open(f"{path}.short", "wb") as short:
            for offset, data in pieces(descriptor):
                block = data
                if offset != expected:
                    short.write(f"\n{gap(offset - expected)}\n".encode())
                    block = data.partition(b"\n")[2]
                short.write(block)
                expected = offset + len(data)
        os.replace(f"{path}.short", path)
    finally:
        os.close(descriptor)
