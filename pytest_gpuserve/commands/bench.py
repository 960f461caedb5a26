"""`gpuserve bench`: measure any running server, without pytest and without a suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..load import bench_options
from . import command

if TYPE_CHECKING:
    import argparse

    from . import Subcommands


def add(commands: Subcommands) -> None:
    bench_options.add_arguments(
        command(commands, "bench", bench, "measure a running server; exit status 1 when a request failed")
    )


def bench(options: argparse.Namespace) -> int:
    from ..load import bench

    return bench.run(options)
