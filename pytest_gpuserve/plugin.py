"""The pytest plugin: options, markers, fixtures, hooks. Wiring only; the work is in the modules that it names.

Nothing here, and nothing imported at the top, may be slow or look at the hardware: every pytest run loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .collect import (
    CASE,
    MARKERS,
    RESULT,
    SESSION,
    CaseRun,
    PytestGpuserveWarning,
    SuiteFile,
    attach_case,
    check_perturbation,
    is_suite,
    parameters,
    plan_items,
)
from .errors import GpuserveError, InputError, RequestError
from .session import Options, Session

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from .record import Record
    from .session import Result


# --- options --------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuserve", "LLM serving benchmarks")
    group.addoption(
        "--gpuserve-simulate",
        nargs="?",
        const=True,
        default=None,
        metavar="ENGINE==VERSION",
        help="Run on the simulated host instead of this one, optionally as another engine version",
    )
    group.addoption(
        "--gpuserve-perturb",
        action="append",
        default=[],
        metavar="WHAT",
        help="Change the simulated host: slowdown=8%%, slowdown:CONFIG=8%%, opens:CONFIG, otherwise:CONFIG, "
        "crash:CONFIG or hang:CONFIG; may be repeated",
    )
    group.addoption(
        "--gpuserve-baselines",
        default=None,
        metavar="DIR",
        help="Folder of the stored baselines (default: baselines under the root folder)",
    )
    group.addoption(
        "--gpuserve-update-baselines",
        action="store_true",
        help="Record what is measured as the new baselines of the selected cases",
    )
    group.addoption(
        "--gpuserve-launches",
        type=int,
        default=None,
        metavar="N",
        help="Start each server exactly N times, whatever the suite says",
    )
    group.addoption(
        "--gpuserve-engine-python",
        action="append",
        default=[],
        metavar="[ENGINE=]PYTHON",
        help="Interpreter that has the engine; without a name it is SGLang's",
    )
    group.addoption(
        "--gpuserve-attach",
        default=None,
        metavar="URL",
        help="Measure the cases of one config on the server that runs there; nothing is started or stopped",
    )
    group.addoption(
        "--gpuserve-no-check",
        action="store_true",
        help="Start servers without looking at their flags, models and ports first",
    )
    group.addoption(
        "--gpuserve-wait",
        default="1h",
        metavar="DURATION",
        help="How long a server waits for GPUs that somebody else uses before its cases fail (default: 1h)",
    )
    group.addoption(
        "--gpuserve-run-dir",
        default=None,
        metavar="DIR",
        help="Folder for records, logs and reports (default: .gpuserve/runs/<time> under the root folder)",
    )
    group.addoption(
        "--gpuserve-run-dangerous",
        action="store_true",
        help="Start also what is documented as harmful to the host (run: false)",
    )
    group.addoption(
        "--gpuserve-strict-review",
        action="store_true",
        help="Fail the run when a dead end is past its review date",
    )
    group.addoption(
        "--gpuserve-require-run",
        action="store_true",
        help="Exit with 1 when every case was skipped or deselected",
    )
    group.addoption(
        "--gpuserve-strict-skips",
        action="store_true",
        help="Exit with 1 when a case other than a hypothesis (gate: none) was skipped",
    )
    parser.addini("gpuserve_suites", "Further files that are suites, as globs", type="args", default=[])
    parser.addini("gpuserve_known", "Folders of your own dead ends", type="paths", default=[])
    parser.addini("gpuserve_improved", "What a stale baseline does: warn or fail", default="warn")
    parser.addini("gpuserve_inconclusive", "What an undecided case does: warn or fail", default="warn")


def options_of(config: pytest.Config) -> Options:
    """Everything the command line and the ini file say, checked once. Raises UsageError."""
    root = config.rootpath
    chosen = config.getoption("gpuserve_baselines")
    baselines = config.invocation_params.dir / chosen if chosen else root / "baselines"
    if baselines.exists() and not baselines.is_dir():
        raise pytest.UsageError(f"the folder of the baselines, {baselines}, is a file")
    update = bool(config.getoption("gpuserve_update_baselines"))
    simulate = config.getoption("gpuserve_simulate")
    perturb = config.getoption("gpuserve_perturb")
    launches = config.getoption("gpuserve_launches")
    if launches is not None and launches < 1:
        raise pytest.UsageError(f"--gpuserve-launches: {launches} is less than 1")
    if perturb and simulate is None:
        raise pytest.UsageError("--gpuserve-perturb changes the simulated host: add --gpuserve-simulate")
    if simulate is not None and update:
        raise pytest.UsageError(
            "--gpuserve-update-baselines: what the simulated host yields is never stored as a baseline; "
            "leave out --gpuserve-simulate"
        )
    attach = config.getoption("gpuserve_attach")
    if attach is not None:
        from .engines.openai import target_of

        if simulate is not None:
            raise pytest.UsageError("--gpuserve-attach and --gpuserve-simulate: give one of the two")
        try:
            target_of(attach)
        except InputError as error:
            raise pytest.UsageError(f"--gpuserve-attach: {error}") from None
    simulation = None
    if simulate is not None:
        from .engines.simulated.simulation import Simulation

        try:
            simulation = Simulation.from_options(None if simulate is True else simulate, perturb)
        except InputError as error:
            raise pytest.UsageError(str(error)) from None
    from .yaml_values import duration

    wait = duration(config.getoption("gpuserve_wait"))
    if wait is None:
        raise pytest.UsageError(
            f"--gpuserve-wait: {config.getoption('gpuserve_wait')!r} is no duration; write 90s, 30m or 1h30m"
        )
    return Options(
        rootdir=root,
        baselines=baselines,
        known=tuple(config.getini("gpuserve_known")),
        simulation=simulation,
        check=not config.getoption("gpuserve_no_check"),
        update_baselines=update,
        run_dangerous=bool(config.getoption("gpuserve_run_dangerous")),
        engine_python=_interpreters(config.getoption("gpuserve_engine_python")),
        attach=attach,
        launches=launches,
        wait_s=wait,
        improved_fails=_warn_or_fail(config, "gpuserve_improved"),
        inconclusive_fails=_warn_or_fail(config, "gpuserve_inconclusive"),
    )


def _interpreters(given: list[str]) -> dict[str, str]:
    """By engine."""
    if not given:
        return {}
    from .engines.registry import interpreter

    try:
        return dict(interpreter(text, option="--gpuserve-engine-python") for text in given)
    except InputError as error:
        raise pytest.UsageError(str(error)) from None


def _warn_or_fail(config: pytest.Config, ini: str) -> bool:
    value = config.getini(ini)
    if value not in {"warn", "fail"}:
        raise pytest.UsageError(f"{ini} in the ini file is {value!r}; it takes warn or fail")
    return bool(value == "fail")


# --- a run ----------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    from .report.store import RUNS, RunFolder
    from .report.terminal import Progress, Summary

    given = getattr(config, "workerinput", {}).get("gpuserve_run_dir") or config.getoption("gpuserve_run_dir")
    folder = RunFolder(config.invocation_params.dir / given if given else None, runs=config.rootpath / RUNS)
    progress = Progress(config)
    session = config.stash[SESSION] = Session(options_of(config), folder, progress.say, progress.tell)
    config.add_cleanup(session.close)  # Ctrl-C in a start reaches no fixture's end
    if is_controller(config):
        simulation = session.options.simulation
        summary = Summary(config, session, simulated=simulation.title if simulation else None)
        config.pluginmanager.register(summary, "gpuserve-summary")


def is_controller(config: pytest.Config) -> bool:
    """True in a run without xdist as well."""
    return not hasattr(config, "workerinput")


def pytest_report_header(config: pytest.Config) -> str | None:
    simulation = config.stash[SESSION].options.simulation
    return f"gpuserve: {simulation.title}" if simulation is not None else None


# --- collection -----------------------------------------------------------------------------------


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    if file_path.suffix in {".yaml", ".yml"} and is_suite(file_path, parent.config):
        return SuiteFile.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parent = metafunc.definition.getparent(SuiteFile)
    if parent is not None and "gpuserve_case" in metafunc.fixturenames:
        metafunc.parametrize("gpuserve_case", parameters(parent.suite, metafunc.config), indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    attach_case(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Plan only what -m, -k and --lf have left: nothing else may make us look at the host."""
    serving = [item for item in items if CASE in item.stash]
    if not serving:
        return (yield)
    from .report.bench import counted_as_benchmarks

    with counted_as_benchmarks(serving):
        yield
    session = config.stash[SESSION]
    try:
        check_perturbation(session, serving)
        if not config.option.collectonly and not config.getoption("setupplan", False):
            runxfail = bool(config.getoption("runxfail", False))  # no option under `-p no:skipping`
            plan_items(session, items, runxfail=runxfail)
    except RequestError as error:
        if is_controller(config):
            raise pytest.UsageError(str(error)) from None
        # Raised in a worker it would be an internal error of pytest-xdist, and its text lost.
        told = pytest.CollectReport("", "failed", longrepr=str(error), result=[])
        config.hook.pytest_collectreport(report=told)
        items.clear()
    return None


# --- a case ---------------------------------------------------------------------------------------


@pytest.fixture
def gpuserve_case(request: pytest.FixtureRequest) -> Iterator[CaseRun]:
    """The case of a suite that this test is: `gpuserve_case.verify()` measures and judges it."""
    case = CaseRun(request)
    yield case
    case.finish()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A dead end that is never started is to be looked at again as well; one that runs warns when it is over."""
    if CASE not in item.stash:
        return
    session = item.config.stash[SESSION]
    plan = session.plan(item.stash[CASE])
    if plan.review_due and plan.never(session.options):
        item.warn(PytestGpuserveWarning(plan.review_due))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if CASE not in item.stash:
        return report
    if call.excinfo is not None and isinstance(call.excinfo.value, GpuserveError) and report.failed:
        shown = call.excinfo.getrepr(style="value", chain=False)  # our own frames and causes help nobody
        if shown.reprcrash is not None:
            shown.reprcrash.message = str(call.excinfo.value)  # the short summary, without our class's name
        report.longrepr = shown
    result = _result(item, call, report)
    if result is None:
        return report
    from .report.junit import PREFIX, properties

    others = [one for one in item.user_properties if not str(one[0]).startswith(PREFIX)]
    item.user_properties[:] = [*others, *properties(result.record)]
    report.user_properties = list(item.user_properties)
    if report.when == "call" and report.failed and result.note:
        if call.excinfo is None:
            report.longrepr = (
                f"{report.longrepr}\n{result.note}"  # keeps pytest's "[XPASS(strict)] reason" first
            )
        elif add_section := getattr(report.longrepr, "addsection", None):
            add_section("dead end changed", result.note)
    return report


def _result(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> Result | None:
    """How a case ended so far; what was not run, or ended by an error of nobody's making, gets its record here."""
    session, case, result = item.config.stash[SESSION], item.stash[CASE], item.stash.get(RESULT, None)
    xfailed = report.skipped and hasattr(report, "wasxfail")
    if result is not None:
        if report.when == "call":
            result = session.came_to(result, "xfailed" if xfailed else report.outcome)
    elif report.when == "teardown" or report.passed or item.config.getoption("setuponly", False):
        return None
    elif report.skipped:
        why = report.wasxfail if xfailed else report.longrepr
        told = str(why[2] if isinstance(why, tuple) else why).removeprefix("Skipped: ")
        result = session.not_run(case, item.nodeid, told, xfailed=xfailed)
    elif call.excinfo is not None:
        result = session.broken(case, item.nodeid, call.excinfo.exconly(tryshort=True))
    if result is not None:
        item.stash[RESULT] = result
    return result


# --- the end --------------------------------------------------------------------------------------


NOTES = pytest.StashKey[list[str]]()
"""On the config: lines for the end of the run."""


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if not is_controller(config):
        return
    try:
        records = config.stash[SESSION].folder.read()
        notes = config.stash[NOTES] = config.stash[SESSION].accept(records)
    except (GpuserveError, OSError) as error:
        config.stash[NOTES] = [str(error)]
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return
    fails = []
    ended_well = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    only_looked = config.option.collectonly or config.getoption("setuponly", False)
    required = config.getoption("gpuserve_require_run") and not only_looked and ended_well
    if required and not any(map(tried, records)):
        fails.append("nothing was run: every case was skipped or deselected (--gpuserve-require-run)")
    if config.getoption("gpuserve_strict_review") and any(record.review_due for record in records):
        fails.append("a dead end is past its review date (--gpuserve-strict-review)")
    skipped = [one.case for one in records if one.outcome == "skipped" and not one.hypothesis]
    if config.getoption("gpuserve_strict_skips") and skipped:
        fails.append(f"skipped, and no hypothesis: {', '.join(skipped)} (--gpuserve-strict-skips)")
    if fails and ended_well:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    notes += fails


def tried(record: Record) -> bool:
    """Whether a case came as far as to be started or to fail; a dead end that is never started did not."""
    return bool(record.launches) or record.outcome in {"passed", "failed"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(NOTES, []):
        terminalreporter.write_line(f"gpuserve: {line}")


# --- pytest-benchmark -----------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    session = config.stash[SESSION]
    if session.here.probed:
        from .report.bench import machine_info as of_host

        machine_info["gpuserve"] = of_host(session.here.host)


# --- pytest-xdist ---------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") not in {"load", "loadgroup"}:
        return None  # somebody asked for another mode
    from .xdist import ServeScheduling

    return ServeScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    from .session.here import Here
    from .xdist import workers_that_fit

    # Asked before `pytest_configure`.
    return workers_that_fit(config, lambda: Here(options_of(config)).host.count)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """A worker that died wrote no record of the case that it ran."""
    from .xdist import case_of

    case = case_of(sched.config, crashitem)
    if case is not None:
        sched.config.stash[SESSION].broken(case, crashitem, str(report.longrepr))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Every worker of a run writes into the one run folder."""
    try:
        node.workerinput["gpuserve_run_dir"] = str(node.config.stash[SESSION].folder.path)
    except OSError:
        pass  # nothing can be written here, which hurts only whoever has a case to record
