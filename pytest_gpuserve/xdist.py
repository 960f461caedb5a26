"""Scheduling under pytest-xdist: a config, and configs joined by `compare_to`, stay on one worker.

The controller never collects: all that a scheduler has are node ids, so families are read from the suite files that
the ids name. Nothing else in this package knows of workers, but for who writes what in `plugin`.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from .model import Case


class ServeScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """`LoadScopeScheduling` whose scope is a family of configs, and which never runs again what killed a worker.

    `--dist loadgroup` cannot do it: it writes the group into the node id, which pytest 9.2 computes anew
    (pytest-xdist#1386), so its groups are scattered without a word.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # Our order (what is decided early first) is worth more than starting the largest group first.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        path, _, rest = nodeid.partition("::")
        if not path.endswith((".yaml", ".yml")) or "[" not in rest:
            return str(super()._split_scope(nodeid))
        case_id = rest.partition("[")[2].rstrip("]")
        config_id = case_id.rpartition("-")[0]
        return f"{path}::{families(file_of(self.config, path)).get(config_id, config_id)}"

    def remove_node(self, node: WorkerController) -> str | None:
        """Like its parent, but what ran when the worker died is done: a case that kills hosts is not tried twice."""
        workload = self.assigned_work.pop(node)
        crashed: str | None = next(
            (nodeid for unit in workload.values() for nodeid, done in unit.items() if not done), None
        )
        if crashed is None:
            return None
        for scope, unit in workload.items():
            if crashed in unit:
                unit[crashed] = True
            if not all(unit.values()):
                self.workqueue[scope] = unit
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed


def file_of(config: pytest.Config, name: str) -> Path:
    """The file that a node id names: relative to the root, or, outside of it, to what pytest was asked to run."""
    path = config.rootpath / name
    if not path.exists():
        for argument in config.args:
            asked = config.invocation_params.dir / argument.partition("::")[0]
            for folder in (asked, asked.parent):
                if (folder / name).is_file():
                    return folder / name
    return path


@cache
def families(path: Path) -> dict[str, str]:
    """Config id -> the config that its chain of `compare_to` ends at, for one suite file."""
    from .errors import InputError
    from .suite import load_suite

    try:
        partners = {config.id: config.compare_to for config in load_suite(path).configs}
    except InputError:
        return {}  # the workers report it as a collection error

    def root(config_id: str) -> str:
        partner = partners.get(config_id)
        return root(partner) if partner else config_id

    return {config_id: root(config_id) for config_id in partners}


def case_of(config: pytest.Config, nodeid: str) -> Case | None:
    """The case of a node id, on the controller, which has no items; None for other tests."""
    from .collect import is_suite
    from .errors import InputError
    from .suite import load_suite

    name, _, rest = nodeid.partition("::")
    path = file_of(config, name)
    if not is_suite(path, config):
        return None
    case_id = rest.partition("[")[2].removesuffix("]")
    try:
        return next((case for case in load_suite(path).cases() if case.id == case_id), None)
    except InputError:
        return None


def workers_that_fit(config: pytest.Config, gpus_here: Callable[[], int]) -> int | None:
    """For `-n auto`: how many of the smallest configs the GPUs hold; 0 (no workers) for one.

    None, which leaves the number to xdist, where other tests than those of suites are asked for.
    """
    from .errors import InputError
    from .suite import load_suite

    paths: list[Path] = []
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        found = suites_alone(path, config)
        if not found:
            return None
        paths += found
    sizes: list[int] = []
    for path in paths:
        try:
            sizes += [one.gpus for one in load_suite(path).configs]
        except InputError:
            continue
    gpus = gpus_here()
    fitting = gpus // min(sizes) if sizes and gpus else 1
    return 0 if fitting <= 1 else fitting


def suites_alone(path: Path, config: pytest.Config) -> list[Path]:
    """The suites at or below a path; none when there are other tests as well."""
    from .collect import is_suite

    if not path.is_dir():
        return [path] if is_suite(path, config) else []
    others, pruned = config.getini("python_files"), config.getini("norecursedirs")
    found = []
    for folder, folders, files in os.walk(path):
        if any(fnmatch(file, pattern) for file in files for pattern in others):
            return []
        folders[:] = [name for name in folders if not any(fnmatch(name, pattern) for pattern in pruned)]
        here = Path(folder)
        found += [here / file for file in files if is_suite(here / file, config)]
    return found
