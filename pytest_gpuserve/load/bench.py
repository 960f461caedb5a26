"""`gpuserve bench URL`: measure any running server, without pytest and without a suite."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InputError
from . import bench_options, client, dialects, traffic
from .bench_output import Live, Writer, as_json, report
from .bench_target import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model import Workload
    from .api import Api, Target
    from .sample import Sample

add_arguments = bench_options.add_arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status: 1 when a request failed, 2 for bad usage, else 0."""
    parser = argparse.ArgumentParser(
        prog="gpuserve bench",
        description="Measure a running server. docs/load-client.md says how exact that is.",
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except InputError as error:
        print(f"gpuserve bench: {error}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """As `main`, for options that `add_arguments` has parsed. Raises InputError."""
    target, base = target_of(options)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    load = msgspec.structs.replace(bench_options.workload_of(options), seed=seed)
    engine, api = dialects.choose(target, base, engine=options.engine, kind=options.api, model=options.model)
    changes: dict[str, Any] = {}
    if options.path:
        changes["path"] = options.path
    if options.text:
        changes["token_ids"] = False
    if options.vocabulary:
        changes["vocabulary"] = options.vocabulary
    api = msgspec.structs.replace(api, **changes)
    live = Live(sys.stderr, quiet=options.quiet)
    stop = _Stop()
    with stop, Writer(options.samples) as writer:
        if (warm := traffic.warmup(load)) is not None:
            _run(target, api, warm, seed, -1, live, stop)
        samples = _run(target, api, load, seed, 0, live, stop, sink=writer.write)
    live.clear()
    from . import metrics

    result = metrics.summarise(samples, load)
    if samples.let_go.exact and (hint := refused_ids(result.failures, api.vocabulary)):
        result.warnings.append(hint)
    if "no_done" in result.failures:
        result.warnings.append("--engine transformers is for servers whose streams never end with [DONE]")
    if options.json:
        sys.stdout.write(as_json(options.url, engine, api, load, result))
    else:
        print(report(options.url, engine, api, load, result))
    sys.stdout.flush()
    if writer.failed is not None:
        raise InputError(writer.failed)
    return 1 if result.requests.failed else 0


REFUSED = frozenset({"http_400", "http_422"})


def refused_ids(failures: dict[str, int], vocabulary: int) -> str | None:
    """What to try when a server refuses requests whose prompts are token ids; None where it refused none."""
    if not REFUSED & failures.keys():
        return None
    return (
        f"prompts were sent as token ids below {vocabulary}: if the server refuses those, "
        "--vocabulary N says how many its model has, and --text sends text"
    )


def _run(
    target: Target,
    api: Api,
    load: Workload,
    seed: int,
    index: int,
    live: Live,
    stop: _Stop,
    sink: Callable[[Sample], None] | None = None,
) -> client.Samples:
    made = traffic.plan(load, api, seed=seed, round_index=index, folder=Path())
    return client.run(
        target, api, made, stall_s=load.stall, interrupt=stop.asked, progress=live.show, sink=sink
    )


class _Stop:
    """Ctrl-C ends the round; what was measured is still reported. A second one ends the program."""

    def __init__(self) -> None:
        self._asked = False

    def asked(self) -> bool:
        return self._asked

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._ask)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
