"""A suite file as a pytest module: its cases as parameters of one test, what the suite says of them as marks.

Collection reads files only. What needs the host or the engine (which dead end applies, what is missing) is planned
once the items are selected, in `plan_items`.
"""

from __future__ import annotations

import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .errors import CaseError, InputError
from .model import Case, DeadEnd, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    from .failures.known import Registry
    from .session import Plan, Result, Session

CASE = pytest.StashKey[Case]()
"""On an item: the case that it is."""
RESULT: pytest.StashKey[Result] = pytest.StashKey()
"""On an item that ran: how it ended."""
SESSION: pytest.StashKey[Session] = pytest.StashKey()
"""On the config: the run."""
SUITES = pytest.StashKey[dict[str, Path]]()
"""On the config: the suites collected so far, by name."""

MARKERS = (
    "blackwell: needs Blackwell GPUs",
    "hopper: needs Hopper GPUs",
    "sm120: about compute capability 12.0",
    "sm100: about compute capability 10.0",
    "sm90: about compute capability 9.0",
    "local: runs without a GPU",
    "slow: takes long even for a suite",
    "dead_end(kind): documented not to work; kind is start, serve, slower, inert, missing or garbage",
)


class PytestGpuserveWarning(pytest.PytestWarning):
    """Something about a case that does not fail it and should be seen."""


class SuiteFile(pytest.Module):
    """A YAML suite, collected like a module whose tests are the plugin's own."""

    suite: Suite
    cases: dict[str, Case]
    """By id."""

    def _getobj(self) -> ModuleType:
        from . import suite_tests
        from .engines.registry import names
        from .failures.classes import classes
        from .suite import load_suite

        try:
            self.suite = load_suite(
                self.path,
                known=registry_of(self.config).names,
                engines=names(),
                markers=registered_markers(self.config),
                failure_classes=classes(),
            )
            self.cases = {case.id: case for case in self.suite.cases()}
            self._claim_name()
            self._load_engines()
        except InputError as error:
            raise self.CollectError(str(error)) from None
        return suite_tests

    def funcnamefilter(self, name: str) -> bool:
        """Ours is the test whatever the user's own are called (ini `python_functions`)."""
        return name == "test_serving"

    def _load_engines(self) -> None:
        """Other people's are loaded now, so that what is wrong with one is told before anything starts.

        Raises InputError at the config.
        """
        from .engines.registry import OWN

        here = self.config.stash[SESSION].here
        if here.options.simulation is None:
            for config in self.suite.configs:
                if config.engine not in OWN:
                    here.engine(config)

    def _claim_name(self) -> None:
        taken = self.config.stash.setdefault(SUITES, {})
        other = taken.setdefault(self.suite.name, self.path)
        if other != self.path:
            from .yaml_source import shown

            raise InputError(
                f"suite: the name {self.suite.name!r} is taken by {shown(other)}; give one of them another "
                "`suite:`, since baselines are filed under the name",
                self.suite.place,
            )


def is_suite(path: Path, config: pytest.Config) -> bool:
    """A YAML file below a folder named `suites`, or one that fits the ini setting `gpuserve_suites`."""
    if path.suffix not in {".yaml", ".yml"}:
        return False
    try:
        relative = path.relative_to(config.rootpath)
    except ValueError:
        relative = path
    if "suites" in (config.rootpath.name, *relative.parts[:-1]):
        return True
    return any(fnmatch.fnmatch(relative.as_posix(), pattern) for pattern in config.getini("gpuserve_suites"))


def registered_markers(config: pytest.Config) -> frozenset[str]:
    """Names that `pytest --markers` lists: ours, pytest's, and those of the user's ini file."""
    lines: Iterable[str] = config.getini("markers")
    return frozenset(line.partition(":")[0].partition("(")[0].strip() for line in lines)


def registry_of(config: pytest.Config) -> Registry:
    return config.stash[SESSION].here.registry


def parameters(suite: Suite, config: pytest.Config) -> list[Any]:
    """One `pytest.param` a case; the id is all that it carries, so that reports and archives stay readable."""
    from .report import bench

    registry, timed = registry_of(config), bench.mark(config)
    found = []
    for case in suite.cases():
        names = dict.fromkeys((*suite.markers, *case.config.markers))
        marks = [getattr(pytest.mark, name) for name in names]
        possible: Sequence[DeadEnd] = (
            (case.config.dead_end,) if case.config.dead_end else registry.possible(case.config)
        )
        marks += [pytest.mark.dead_end(kind=kind) for kind in dict.fromkeys(end.kind for end in possible)]
        found.append(pytest.param(case.id, id=case.id, marks=[*marks, *timed]))
    return found


def attach_case(item: pytest.Item) -> None:
    """Hang the case on the item that runs it, which then lies where its config does."""
    parent = item.getparent(SuiteFile)
    callspec = getattr(item, "callspec", None)
    if parent is None or callspec is None or "gpuserve_case" not in callspec.params:
        return
    case = item.stash[CASE] = parent.cases[callspec.params["gpuserve_case"]]
    # Warnings and JUnit's files name it; the function's own place is within this package.
    item.location = (item.nodeid.partition("::")[0], case.config.place.line - 1, item.name)


def check_perturbation(session: Session, items: Iterable[pytest.Item]) -> None:
    """A perturbation of a config that no collected suite has would do nothing. Raises RequestError."""
    if session.options.simulation is None:
        return
    suites = {id(parent): parent.suite for item in items if (parent := item.getparent(SuiteFile))}
    session.options.simulation.perturbation.check(
        {one.id for suite in suites.values() for one in suite.configs}
    )


# --- once the items are selected ------------------------------------------------------------------


def plan_items(session: Session, items: list[pytest.Item], *, runxfail: bool) -> None:
    """Order the cases of each suite and mark what is known of them; other items keep their places."""
    for item in items:
        if (parent := item.getparent(SuiteFile)) is not None:
            session.suites[parent.suite.name] = parent.suite
    places = [index for index, item in enumerate(items) if CASE in item.stash]
    ordered = in_order([items[index] for index in places], session)
    for index, item in zip(places, ordered, strict=True):
        items[index] = item
        _mark(session, item, runxfail)


def in_order(items: Sequence[pytest.Item], session: Session) -> list[pytest.Item]:
    """Suite by suite: dead ends that are decided before weights are loaded first, a partner before who names it."""
    suites: dict[str, list[pytest.Item]] = {}
    for item in items:
        suites.setdefault(item.stash[CASE].suite, []).append(item)
    ordered: list[pytest.Item] = []
    for members in suites.values():
        ordered += sorted(members, key=_rank_in(members, session))
    return ordered


def _rank_in(members: Sequence[pytest.Item], session: Session) -> Callable[[pytest.Item], tuple[int, int]]:
    configs = {item.stash[CASE].config.id: item.stash[CASE].config for item in members}
    positions = {config_id: position for position, config_id in enumerate(configs)}

    def root(config_id: str) -> str:
        partner = configs[config_id].compare_to
        return root(partner) if partner in configs else config_id

    def depth(config_id: str) -> int:
        partner = configs[config_id].compare_to
        return 1 + depth(partner) if partner in configs else 0

    def rank(item: pytest.Item) -> tuple[int, int]:
        config_id = item.stash[CASE].config.id
        if session.plan(item.stash[CASE]).early:
            return (0, positions[config_id])
        # Later than every early one; a family stands where its root stands, nearer relations first.
        return (1 + positions[root(config_id)], depth(config_id) * len(positions) + positions[config_id])

    return rank


def _mark(session: Session, item: pytest.Item, runxfail: bool) -> None:
    plan = session.plan(item.stash[CASE])
    if plan.skip:
        item.add_marker(pytest.mark.skip(reason=plan.skip))
        return
    end = plan.dead_end
    if end is None:
        return
    if runxfail and plan.never(session.options):
        item.add_marker(pytest.mark.skip(reason=never_started(plan)))
    item.add_marker(
        pytest.mark.xfail(
            reason=end.reason,
            strict=True,
            run=not plan.never(session.options),
            raises=pytest.RaisesExc(CaseError, check=partial(fits, end)),
        )
    )


def never_started(plan: Plan) -> str:
    reason = plan.dead_end.reason if plan.dead_end else ""
    return f"never started ({reason}); --gpuserve-run-dangerous starts it all the same"


def fits(end: DeadEnd, error: CaseError) -> bool:
    """Whether an error is the documented one."""
    from .failures.dead_end import judge_failure

    return judge_failure(end, error).fits


class CaseRun:
    """What the test of a case holds: the case, and the cases of its config that are selected beside it."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._item = item = request.node
        self._session = item.config.stash[SESSION]
        self.case = item.stash[CASE]

    def verify(self) -> None:
        """Measure and judge; raises the CaseError with which the case ended, if it did."""
        __tracebackhide__ = True
        from .report.bench import archive

        self._skip_unmarked()
        result = self._session.run(self.case, self._siblings(), self._item.nodeid)
        self._item.stash[RESULT] = result
        archive(self._request, result.record)
        try:
            for warning in result.record.warnings:
                self._item.warn(PytestGpuserveWarning(f"{result.record.case}: {warning}"))
        except PytestGpuserveWarning:  # `-W error`
            if result.error is None:
                raise
        if result.error is not None:
            raise result.error

    def _skip_unmarked(self) -> None:
        """Without its marks (`-p no:skipping`) what must not be started is not started either."""
        __tracebackhide__ = True
        plan = self._session.plan(self.case)
        if plan.skip:
            pytest.skip(plan.skip)
        if plan.never(self._session.options):
            pytest.skip(never_started(plan))

    def finish(self) -> None:
        """Raise what stopping the server brought up, at the case that owned it."""
        __tracebackhide__ = True
        error = self._session.take_stop_error(self.case)
        if error is None:
            return
        if (result := self._item.stash.get(RESULT, None)) is not None:
            self._item.stash[RESULT] = self._session.stop_failed(result, error)
        raise error

    def _siblings(self) -> list[Case]:
        mine = (self.case.suite, self.case.config.id)
        cases = [item.stash[CASE] for item in self._item.session.items if CASE in item.stash]
        # Once each: `--keep-duplicates` lists an item as often as it is named.
        return list({one.id: one for one in cases if (one.suite, one.config.id) == mine}.values())
