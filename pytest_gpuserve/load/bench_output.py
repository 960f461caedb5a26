"""What `gpuserve bench` shows and writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from ..errors import InputError
from .figures import figures

if TYPE_CHECKING:
    from ..model import Lengths, Workload
    from ..record import Round, Spread
    from .api import Api
    from .client import Progress
    from .sample import Sample

SHOW_S = 0.5
"""Between two redrawings of the live line."""
SHOW_LOG_S = 10.0
"""Between two lines when stderr is no terminal."""


class Live:
    """A line on stderr that is redrawn; where it is no terminal, a new one every 10 s."""

    def __init__(self, stream: IO[str], *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._redraw = stream.isatty()
        self._next = time.monotonic() + (0 if self._redraw else SHOW_LOG_S)
        self._width = 0
        self._before = (0.0, 0)

    def show(self, progress: Progress) -> None:
        if self._quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (SHOW_S if self._redraw else SHOW_LOG_S)
        then, chunks = self._before
        if progress.elapsed_s <= then:
            then, chunks = 0.0, 0
        rate = (progress.chunks - chunks) / max(progress.elapsed_s - then, 1e-9)
        self._before = (progress.elapsed_s, progress.chunks)
        line = (
            f"{progress.elapsed_s:6.1f} s  sent {progress.sent}  in flight {progress.in_flight}  "
            f"done {progress.finished}  {rate:,.0f} chunks/s"
        )
        end = "" if self._redraw else "\n"
        self._stream.write(("\r" if self._redraw else "") + line.ljust(self._width) + end)
        self._stream.flush()
        self._width = len(line)

    def clear(self) -> None:
        if self._redraw and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


class Writer:
    """`--samples`: a line of JSON for each request."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.failed: str | None = None
        """Why not all of it could be written: a full disk must not cost the figures of a round."""
        if path is not None:
            try:
                self._file = Path(path).open("wb")  # noqa: SIM115
            except OSError as error:
                raise InputError(f"--samples {path}: {error.strerror}") from None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._fail(error)

    def write(self, sample: Sample) -> None:
        if self._file is None or self.failed:
            return
        try:
            self._file.write(msgspec.json.encode(sample_line(sample)) + b"\n")
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failed = self.failed or f"--samples {self._path}: {error.strerror}"


def sample_line(sample: Sample) -> dict[str, Any]:
    """A request as `--samples` writes it; times in ms since the round's clock started."""

    def ms(ns: int | None) -> float | None:
        return None if ns is None else ns / 1e6

    found = figures(sample)
    return {
        "index": sample.index,
        "failure": sample.failure,
        "detail": sample.detail,
        "finish_reason": sample.finish_reason,
        "due_ms": ms(sample.due_ns),
        "sent_ms": ms(sample.sent_ns),
        "end_ms": ms(sample.end_ns),
        "input_tokens": sample.input_tokens,
        "output_tokens": sample.output_tokens,
        "cached_tokens": sample.cached_tokens,
        "ttft_ms": found.ttft_ms,
        "ttfot_ms": found.ttfot_ms,
        "tpot_ms": found.tpot_ms,
        "e2e_ms": found.e2e_ms,
        "token_times_ms": [stamp / 1e6 for stamp in sample.stamps],
        "tokens": None if sample.tokens is None else list(sample.tokens),
    }


def as_json(url: str, engine: str, api: Api, load: Workload, result: Round) -> str:
    """One object with the record's names."""
    said = {
        "url": url,
        "engine": engine,
        "api": api.kind,
        "model": api.model,
        "workload": msgspec.to_builtins(load),
        **msgspec.to_builtins(result),
    }
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"


def report(url: str, engine: str, api: Api, load: Workload, result: Round) -> str:
    """The result for people."""
    asked = result.requests
    rows: list[tuple[str, str]] = [
        ("server", f"{url} ({engine}, {api.kind}, model {api.model or '-'})"),
        ("load", _load(load) + f", seed {result.seed}"),
        ("requests", f"{asked.ok} ok, {asked.failed} failed, in {result.duration_s:.2f} s"),
    ]
    if asked.ok:  # else every figure is unknown
        rows += _figures(load, result)
    rows += [("failed", f"{count} x {reason}") for reason, count in result.failures.items()]
    rows += [("INVALID", reason) for reason in result.invalid]
    rows += [("note", warning) for warning in result.warnings]
    return "\n".join(f"{name:<13}{value}" for name, value in rows)


def _figures(load: Workload, result: Round) -> list[tuple[str, str]]:
    found, health = result.metrics, result.client
    rows: list[tuple[str, str]] = [
        (
            "output",
            f"{_number(found.output_throughput)} tok/s in the steady state, "
            f"{_number(found.output_throughput_total)} over all, "
            f"peak {_number(found.peak_output_throughput)}",
        ),
        ("input", f"{_number(found.input_throughput)} tok/s, {_number(found.request_throughput)} requests/s"),
    ]
    if load.slo is not None:
        rows.append(("goodput", f"{_number(found.goodput)} requests/s"))
    if found.accept_length is not None:
        rows.append(("accept", f"{found.accept_length:.2f} tokens per verify pass"))
    for name, spread in (
        ("TTFT", found.ttft_ms),
        ("first answer", found.ttfot_ms),
        ("TPOT", found.tpot_ms),
        ("ITL", found.itl_ms),
        ("chunk gap", found.chunk_gap_ms),
        ("end to end", found.e2e_ms),
    ):
        if spread is not None or name != "first answer":
            rows.append((name, _spread(spread)))
    rows.append(
        (
            "client",
            f"{_number(health.cpu_us_per_token)} us of CPU per token, lag p99 "
            f"{_number(health.lag_ms_p99)} ms, stamps: {health.stamp_source}, off by at most "
            f"{_number(health.error_bound_ms)} ms (p99)",
        )
    )
    return rows


def _load(load: Workload) -> str:
    if load.request_rate is not None:
        how = f"{load.request_rate:g} requests/s ({load.arrival})"
    else:
        how = f"{load.concurrency} at a time" if load.concurrency else "all at once"
    many = f"{load.requests} requests" if load.requests else f"{load.duration:g} s"
    return f"{many}, {how}, {_length(load.input_tokens)} -> {_length(load.output_tokens)} tokens"


def _length(lengths: Lengths) -> str:
    if lengths.kind == "uniform":
        return f"{lengths.low}-{lengths.high}"
    return f"{lengths.mean:g}" + (f" (sigma {lengths.sigma:g})" if lengths.kind == "lognormal" else "")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "unknown"
    figures = ", ".join(f"{name} {getattr(spread, name):.3f}" for name in ("mean", "p50", "p90", "p99"))
    return f"{figures} ms (n {spread.n:,})"
