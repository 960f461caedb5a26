"""Follows tracebacks through a log in which ranks, processes and other output mix.

A traceback becomes a `Report`: the exceptions of its chain, the innermost cause first, as Python prints them.
Both chaining phrases are followed. Abridged reports are understood too: frames without a header, an exception
without frames, a chaining phrase followed at once by the next exception. C++ exceptions that end a process
are reports without an exception type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from .prefix import Line

HEADER = "Traceback (most recent call last)"
_DIRECT = "The above exception was the direct cause"
_CHAINING = ("During handling of the above exception", _DIRECT)
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+(?:, in (?P<function>.+))?$')
_NAME = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
_EXCEPTION = re.compile(rf"(?P<name>{_NAME})(?:\({_NAME}\))?(?:: ?(?P<message>.*))?$")
_SURE = re.compile(
    rf"(?:[A-Za-z][\w -]{{0,23}}: +)?(?P<name>{_NAME}(?:Error|Exception|OutOfResources|Interrupt)|Exception)"
    rf"(?:\({_NAME}\))?(?:: ?(?P<message>.*))?$"
)
"""An exception that stands alone; a short label may precede it."""
_TERMINATE = re.compile(r"terminate called (?:after throwing an instance of '(?P<name>[^']+)'|.*)")
_WHAT = re.compile(r"\s*what\(\):\s*(?P<message>.*)")
_DYING = re.compile(
    r"Fatal Python error: |!!!!!!! Segfault encountered|\*\*\* SIG[A-Z]+ \(|\*\*\* stack smashing"
    r"|free\(\): |malloc\(\): |double free or corruption|munmap_chunk\(\)"
)
_ADVICE = "Possible solutions:"
"""SGLang's advice on memory follows whatever failed during capture, so it is no part of the message."""
_QUIET = frozenset({"debug", "info", "warning"})
_IGNORED = "Exception ignored in"

MOST_RAW = 160
MOST_MESSAGE = 60
PATIENCE = 400
"""Foreign lines after which an unfinished traceback is given up."""


class Frame(Struct):
    place: str
    """`File "...", line 12, in f`"""
    file: str
    code: str = ""


class Link(Struct):
    """One exception of a chain."""

    line: int
    """Of the log, from 1: the exception's own line, or where its traceback began while that is not known."""
    exception: str | None = None
    """As printed, with its module."""
    native: str | None = None
    """Type of a C++ exception."""
    direct: bool = False
    """Raised on purpose from the one before it, as its translation (`raise ... from`)."""
    message: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    """Lines of frames and code, the first and the last where there are too many."""
    finished: bool = False

    @property
    def frames(self) -> list[Frame]:
        """The frames, the outermost first."""
        found: list[Frame] = []
        for line in self.raw:
            if frame := _FRAME.match(line):
                found.append(Frame(line.strip(), frame["file"]))
            elif found and not found[-1].code and line.strip(" ^~"):
                found[-1].code = line.strip()
        return found

    def indented(self, line: str) -> None:
        """Take a line of a frame."""
        self.raw.append(line)
        if len(self.raw) > MOST_RAW:  # keep the outer half, let the inner half move on
            del self.raw[MOST_RAW // 2 : MOST_RAW * 3 // 4]

    @property
    def text(self) -> str:
        return "\n".join(self.message).strip("\n")


class Report(Struct):
    """A traceback, or a native abort, with its chain."""

    header: str
    """What the engine says before the traceback."""
    line: int
    rank: int | None
    links: list[Link]
    quiet: bool = False
    """Logged as a warning or less: the engine goes on."""
    native: bool = False

    @property
    def finished(self) -> bool:
        return self.links[0].finished


class _Open(Struct):
    """A traceback that is still being read. `state`: frames, message, chained, what, done."""

    report: Report
    state: str
    direct: bool = False
    foreign: int = 0

    @property
    def link(self) -> Link:
        return self.report.links[-1]


class Follower:
    """Fed with lines that may belong to tracebacks."""

    def __init__(self) -> None:
        self.fresh: Report | None = None
        """The report whose first exception came with the last line."""
        self._open: dict[str | None, _Open] = {}
        self._waiting: list[Report] = []
        """Headers of the common stream that another one interrupted, the oldest first."""
        self._ignore_next = False

    @property
    def busy(self) -> bool:
        """Whether the next line may belong to an open traceback."""
        return bool(self._open)

    @property
    def framing(self) -> Link | None:
        """The exception of the common stream whose frames are being read: indented lines are its own."""
        reading = self._open.get(None)
        return reading.link if reading is not None and reading.state == "frames" else None

    def feed(self, line: Line, number: int) -> bool:
        """Take a line; True when it was part of a traceback."""
        text = line.text
        self.fresh = None
        if HEADER in text:
            self._header(line, number)
            return True
        reading = self._open.get(line.source)
        if reading is not None:
            if self._continue(reading, line, number):
                return True
            reading.foreign += 1
            if reading.foreign > PATIENCE:
                self._close(line.source)
        return self._alone(line, number)

    def end(self) -> None:
        """No more lines."""
        self._open.clear()

    def _header(self, line: Line, number: int) -> None:
        header = line.text[: line.text.index(HEADER)].rstrip(": ")
        reading = self._open.get(line.source)
        if reading is not None and reading.state == "chained":
            reading.report.links.append(Link(line=number, direct=reading.direct))
            reading.state = "frames"
            return
        if reading is not None and reading.state == "frames" and line.source is None:
            self._waiting.append(reading.report)
        quiet = line.level in _QUIET or self._ignore_next
        self._ignore_next = False
        report = Report(header, number, line.rank, [Link(line=number)], quiet)
        self._open[line.source] = _Open(report, "frames")

    def _continue(self, reading: _Open, line: Line, number: int) -> bool:
        """Whether the line belongs to the traceback that is being read."""
        text = line.text
        if text.startswith(_CHAINING):
            reading.state, reading.direct = "chained", text.startswith(_DIRECT)
            return True
        frame = _FRAME.match(text)
        if frame is not None and reading.state != "what":
            if reading.state != "frames":  # a traceback inside a message, as Ray prints it
                reading.report.links.append(Link(line=number))
                reading.state = "frames"
            reading.link.indented(text)
            return True
        new_record = line.stamped and line.source is None
        match reading.state:
            case "frames":
                return not new_record and self._in_frames(reading, text, number)
            case "chained":
                return self._in_chain(reading, text, number) if not new_record else self._close(line.source)
            case "what":
                what = _WHAT.match(text)
                if what:
                    reading.link.message[0] += f": {what['message']}"
                    reading.state = "message"
                return what is not None
            case "message":
                if new_record or (line.source is not None and line.level in _QUIET):
                    return self._close(line.source)
                return self._in_message(reading, text)
            case _:
                return self._close(line.source) if new_record else False

    def _in_frames(self, reading: _Open, text: str, number: int) -> bool:
        if text.startswith("  ") or not text:
            reading.link.indented(text)
            return True
        match = _EXCEPTION.match(text)
        if match is None or not _plausible(match["name"]):
            return False
        self._exception(reading.report, match["name"], match["message"] or "", number)
        reading.state = "message"
        return True

    def _in_chain(self, reading: _Open, text: str, number: int) -> bool:
        if not text.strip():
            return True
        match = _SURE.match(text)
        if match is None:
            return False
        reading.report.links.append(Link(line=number, direct=reading.direct))
        self._exception(reading.report, match["name"], match["message"] or "", number)
        reading.state = "message"
        return True

    def _in_message(self, reading: _Open, text: str) -> bool:
        message = reading.link.message
        if text.startswith(_ADVICE) or len(message) >= MOST_MESSAGE:
            reading.state = "done"
            return True
        sure = _SURE.match(text)
        if sure is not None and not sure["name"].startswith("nccl"):
            reading.state = "done"
            return False
        message.append(text)
        return True

    def _alone(self, line: Line, number: int) -> bool:
        """A line that begins a report without a header."""
        text = line.text
        if text.startswith(_IGNORED):
            self._ignore_next = True
            return False
        if line.level in _QUIET:
            return False
        frame = _FRAME.match(text) if text.startswith(" ") else None
        if frame is not None and frame["function"]:
            report = Report("", number, line.rank, [Link(line=number)])
            report.links[0].indented(text)
            self._open[line.source] = _Open(report, "frames")
            return True
        if text.startswith(("terminate called", "  what():")):
            match = _TERMINATE.match(text)
            name = match["name"] if match else None
            link = Link(line=number, native=name, message=[name or text.strip()], finished=True)
            self._native(Report("", number, line.rank, [link], native=True), line.source, "what")
            return True
        if _DYING.match(text):
            link = Link(line=number, message=[text.strip()], finished=True)
            self._native(Report("", number, line.rank, [link], native=True), line.source, "done")
            return True
        match = _SURE.match(text) if "rror" in text or "xception" in text else None
        if match is None:
            return False
        report = Report("", number, line.rank, [Link(line=number)])
        self._exception(report, match["name"], match["message"] or "", number)
        self._open[line.source] = _Open(report, "message")
        return True

    def _exception(self, report: Report, name: str, message: str, number: int) -> None:
        link = report.links[-1]
        link.exception, link.line, link.finished = name, number, True
        link.message = [message]
        if len(report.links) == 1:
            if self._waiting:  # ranks mixed line by line: the first exception belongs to the first header
                first = self._waiting.pop(0)
                report.header, report.rank, first.rank = (
                    first.header or report.header,
                    first.rank,
                    report.rank,
                )
            self.fresh = report

    def _native(self, report: Report, source: str | None, state: str) -> None:
        self._open[source] = _Open(report, state)
        self.fresh = report

    def _close(self, source: str | None) -> bool:
        self._open.pop(source, None)
        return False


def _plausible(name: str) -> bool:
    """Whether a word before a colon is an exception's name, and not a level or a program's."""
    last = name.rpartition(".")[2]
    return not last.isupper() and (last[0].isupper() or "." in name or last.endswith(("Error", "Exception")))
