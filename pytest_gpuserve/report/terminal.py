"""What pytest's terminal shows of us: progress while it runs, the tables when it is over."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pytest

from .. import __version__
from ..errors import InputError
from . import summary
from .cases import tables
from .figures import FAILING, counts, simulated
from .progress import Progress as Said
from .store import RunInfo
from .table import DEFAULT_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..record import Record
    from .store import RunFolder

CASE_FIXTURE = "gpuserve_case"
"""Whoever asks for it is a case of a suite."""

LEAST_TERMINAL = 80
_COLOURS = {"ok": "green", "recorded": "green", "improved": "yellow", "inconclusive": "yellow"} | {
    verdict.value: "red" for verdict in FAILING
}
"""Of verdicts; a dead end as documented and a measured hypothesis are no news and stay plain."""


class Progress(Said):
    """Shows on the terminal at `-v`, through a worker's stderr under pytest-xdist at `-v`, else only in the
    log; what is urgent unless `-q` is asked for.
    """

    def __init__(self, config: pytest.Config) -> None:
        worker = getattr(config, "workerinput", None)
        write = _through_stderr(config, str(worker["workerid"])) if worker else _through_terminal(config)
        verbosity = config.get_verbosity()
        super().__init__(write if verbosity > 0 else None, write if verbosity >= 0 else None)


class HasFolder(Protocol):
    """What the summary needs of a run."""

    folder: RunFolder


class Summary:
    """A pytest plugin, registered on the controller only: ends the run's folder and shows what is in it."""

    def __init__(self, config: pytest.Config, session: HasFolder, *, simulated: str | None = None) -> None:
        self._config = config
        self._folder = session.folder
        self._info = RunInfo(
            command=["pytest", *config.invocation_params.args],
            versions=versions(),
            started=_now(),
            simulated=simulated,
        )
        self._workers = False
        self._unreadable = ""
        self._records: list[Record] = []

    # A folder that the user names may hold an earlier run, whose cases would pass for this one's. It matters
    # when a case is going to run: known after collection, under pytest-xdist not before there are workers.

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not config.option.collectonly and any(
            CASE_FIXTURE in getattr(item, "fixturenames", ()) for item in items
        ):
            self._refuse_used_folder()
            self._reserve_folder()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_configure_node(self) -> None:
        if not self._workers:
            self._refuse_used_folder()
        self._workers = True

    def _refuse_used_folder(self) -> None:
        if self._folder.used:
            raise pytest.UsageError(
                f"{self._folder.path} holds the records of an earlier run: name another folder or remove it"
            )

    def _reserve_folder(self) -> None:
        """Before anything is started that leaves nothing behind where nothing can be written."""
        try:
            self._folder.logs  # noqa: B018
        except (InputError, OSError) as error:
            raise pytest.UsageError(f"no folder for records and logs: {error}") from None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        try:
            self._records = self._folder.read()
            host = self._records[0].host if self._records else None
            self._folder.finish(
                msgspec.structs.replace(
                    self._info, host=host, ended=_now(), exit_status=int(session.exitstatus)
                )
            )
        except (InputError, OSError) as error:
            self._unreadable = str(error)  # told below: it must not turn a run into an internal error

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._unreadable:
            terminalreporter.write_line(f"gpuserve: no summary: {self._unreadable}", red=True)
        elif self._records:
            write_summary(
                terminalreporter,
                self._records,
                run=self._folder.path,
                root=self._config.invocation_params.dir,
            )


def versions() -> dict[str, str]:
    """Of what produced a run, engines aside: those are in the records."""
    return {
        "pytest-gpuserve": __version__,
        "pytest": pytest.__version__,
        "python": platform.python_version(),
    }


def write_summary(
    terminal: pytest.TerminalReporter,
    records: Sequence[Record],
    *,
    run: Path | None = None,
    root: Path | None = None,
) -> None:
    """The tables and the line that counts verdicts; the tables not under `--no-summary`.

    `run` is the run's folder, `root` the folder that names are relative to. Under GitHub Actions the
    annotations follow and the job summary is written.
    """
    if not terminal.config.getoption("no_summary", False):
        paint = _painter(terminal)
        for table in tables(records):
            terminal.section(f"gpuserve: {table.title}")
            for line in table.text(_width(), paint).splitlines():
                terminal.write_line(line)  # a terminal that lacks a letter spoils that line alone
        terminal.write_line("")
        mark = ", simulated" if all(map(simulated, records)) else ""
        terminal.write_line(f"gpuserve: {counts(records)}{mark}")
        if run is not None:
            terminal.write_line(f"gpuserve: records and server logs in {_short(run, root)}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in summary.workflow_commands(records, root=root):
            terminal.write_line(line)
    summary.write_job_summary(records, run=run.name if run is not None else "")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _short(path: Path, root: Path | None) -> str:
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)


def _width() -> int:
    """Columns to lay a table out for: the terminal's, or a fixed width where nobody looks through a
    window."""
    if not sys.stdout.isatty():
        return DEFAULT_WIDTH
    return max(shutil.get_terminal_size().columns, LEAST_TERMINAL)


def _painter(terminal: pytest.TerminalReporter) -> Callable[[str, str], str]:
    def paint(column: str, cell: str) -> str:
        colour = _COLOURS.get(cell) if column == "verdict" else None
        return terminal._tw.markup(cell, **{colour: True}) if colour else cell

    return paint


def _uncaptured(config: pytest.Config) -> AbstractContextManager[Any]:
    """Lift pytest's capturing for a moment; without the capture plugin (`-p no:capture`) there is nothing to
    lift."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    lifted: AbstractContextManager[Any] = capture.global_and_fixture_disabled() if capture else nullcontext()
    return lifted


def _through_terminal(config: pytest.Config) -> Callable[[str], None]:
    def write(text: str) -> None:
        reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        with _uncaptured(config):
            reporter.ensure_newline()
            reporter.write_line(f"    gpuserve: {text}", cyan=True)

    return write


def _through_stderr(config: pytest.Config, worker: str) -> Callable[[str], None]:
    """A worker has no terminal reporter and no channel for events, but its stderr is the terminal's."""

    def write(text: str) -> None:
        with _uncaptured(config):
            print(f"[{worker}] gpuserve: {text}", file=sys.stderr, flush=True)

    return write
