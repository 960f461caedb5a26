"""Takes off what loggers and launchers put before a line: time stamps, ranks, processes, levels."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINE = 8192
"""Characters of a line that are looked at; a batch dump can be megabytes of token ids."""


class Line(NamedTuple):
    """A line without its prefixes."""

    text: str
    rank: int | None = None
    """Tensor-parallel or global rank, where the prefix tells one."""
    source: str | None = None
    """Whose line it is, where every line of a process is marked; None for the common stream."""
    level: str | None = None
    """`debug`, `info`, `warning`, `error`, `critical`."""
    stamped: bool = False
    """Whether anything was taken off: a record of a logger begins here."""


_LEVELS = {
    "d": "debug", "debug": "debug", "i": "info", "info": "info", "w": "warning", "warn": "warning",
    "warning": "warning", "e": "error", "error": "error", "f": "critical", "critical": "critical",
    "fatal": "critical",
}  # fmt: skip
_WORDS = r"DEBUG|INFO|WARNING|ERROR|CRITICAL"
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
_PREFIX = re.compile(
    "|".join(
        (
            # SGLang: [2026-11-29 16:51:05 DP0 TP1 EP1], on the first line of a record alone
            rf"\[{_STAMP}(?:[.,]\d+)?(?P<ranks>(?: [A-Z]{{2,4}}\d+)*)\] ?",
            # vLLM and Ray: (Worker_TP4_EP4 pid=2532), (RayWorker pid=1, ip=10.0.0.1)
            r"\((?P<name>[A-Za-z_][\w.:-]*)(?: rank=\d+)? pid=(?P<pid>\d+)(?:, ip=[\d.:a-f]+)?\) ?",
            # vLLM's logger: ERROR 12-29 15:21:11 [multiproc_executor.py:751]
            rf"(?P<level1>{_WORDS}) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[\w./-]+:\d+\] ?",
            r"\[[\w./-]+\.py:\d+\] ",
            # uvicorn
            rf"(?P<level2>{_WORDS}):[ \t]+",
            # torchrun and torch's C++: [rank3]:[E1129 15:58:51.428253401 ProcessGroupNCCL.cpp:632] [Rank 3]
            r"\[(?:rank|Rank )(?P<rank>\d+)\]:? ?",
            r"\[?(?P<level3>[DIWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+ (?: *\d+ )?[\w./-]+:\d+\] ?",
            # TensorRT-LLM: [06/29/2025-18:02:11] [TRT-LLM] [E], [TensorRT-LLM][ERROR]
            r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[TRT-LLM\] (?:\[RANK \d+\] )?\[(?P<level4>[A-Z])\] ?",
            r"\[TensorRT-LLM\]\[(?P<level5>DEBUG|INFO|WARNING|ERROR)\] ?",
            # llama.cpp: 0.00.009.516 E
            r"\d+\.\d\d\.\d{3}\.\d{3} (?P<level6>[DIWEF]) ",
            # docker logs, Kubernetes, docker compose, journald, mpirun, Python's own logging
            rf"{_STAMP}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)(?: std(?:out|err)(?: [FP])?)? ",
            r"[a-z0-9][\w.-]*-\d+ +\| ",
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w.@/-]+\[\d+\]: ",
            r"\[\d+,(?P<rank2>\d+)\]<std(?:out|err)>: ?",
            rf"{_STAMP}[.,]\d+ - (?:[\w.]+ - )?(?P<level7>{_WORDS}) - ",
            # NCCL: host:2303:2303 [1]
            r"[\w.-]+:\d+:\d+ \[\d+\] ",
        )
    )
)
_TENSOR_RANK = re.compile(r"TP(\d+)")
_OTHER_RANK = re.compile(r"(?:DP|PP|EP)(\d+)")
_AFTER_PROGRESS = re.compile(rf"(?:it|s)/(?:s|it)\]\s*(?=\[{_STAMP})")
_MOST = 6


def strip(line: str) -> Line:
    """Take the prefixes off a line, as many as there are."""
    text = line[:MAX_LINE].rstrip("\n")
    if text.startswith("  "):  # a frame of a traceback, a page of usage
        return Line(text)
    if "|" in text and (bar := _AFTER_PROGRESS.search(text)):
        text = text[bar.end() :]  # a progress bar without its line end
    rank: int | None = None
    source: str | None = None
    level: str | None = None
    at = 0
    for _ in range(_MOST):
        match = _PREFIX.match(text, at)
        if match is None:
            break
        at = match.end()
        kind = match.lastgroup
        if kind is None:
            continue
        found = match[kind]
        if kind == "pid":
            source = found
            rank = _rank(match["name"], rank)
        elif kind == "ranks":
            rank = _rank(found, rank)
        elif kind in ("rank", "rank2"):
            rank = int(found)
            source = source or f"rank{rank}"
        elif kind.startswith("level"):
            level = _LEVELS.get(found.lower(), level)
    return Line(text[at:] if at else text, rank, source, level, at > 0)


def _rank(text: str, known: int | None) -> int | None:
    match = _TENSOR_RANK.search(text) or _OTHER_RANK.search(text)
    return int(match.group(1)) if match else known
