"""From a file to a `model.Suite`: read, convert, merge, and check what only the whole file can tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import SuiteError
from ..model import Config, Launches, Suite
from ..yaml_source import Source, load
from .merge import build_config, build_defaults
from .spec import LaunchesSpec, SuiteSpec
from .workloads import build_workloads

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from ..yaml_types import Keys

_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
"""Names of suites and configs: they stand in test ids and in file names, where `--` separates."""
MOST_CHARACTERS = 80
"""Of a name: a suite's and a config's together must leave room in a file name."""

NOT_LABELS: Mapping[str, str] = {
    "benchmark": "every case has it",
    "dead_end": "write `xfail:` or `known:` in the config",
    "filterwarnings": "it is set in pytest's own configuration",
    "parametrize": "list `configs` and `workloads`",
    "skip": "say what is missing under `requires`",
    "skipif": "say what is missing under `requires`",
    "usefixtures": "a case has no fixtures but its own",
    "xdist_group": "configs joined by `compare_to` share a worker",
    "xfail": "write `xfail:` in the config",
}
"""Registered markers with which pytest and its plugins do something, and what to do instead."""


def load_suite(
    path: Path,
    *,
    known: Collection[str] | None = None,
    engines: Collection[str] | None = None,
    markers: Collection[str] | None = None,
    failure_classes: Collection[str] | None = None,
) -> Suite:
    """Read one suite file.

    `known` are the names in the registry of dead ends, `engines` the engines there are, `markers` those that
    pytest has registered, `failure_classes` those that the classifier gives; what is None is not checked.
    Raises SuiteError: `<file>:<line>: <key>: what is wrong; did you mean 'x'?`
    """
    source = load(path, SuiteError)
    if source.data is None:
        raise source.error((), "is empty")
    spec = source.convert((), SuiteSpec)
    name = spec.suite or path.stem
    _check_name(source, ("suite",), "name", name)
    if not spec.workloads:
        raise source.error(("workloads",), "no workloads; a suite needs at least one")
    if not spec.configs:
        raise source.error(("configs",), "no configs; a suite needs at least one")
    workloads = build_workloads(source, spec.workloads)
    names = {written: tuple(w.name for w in built) for written, built in workloads.items()}
    defaults = build_defaults(source, spec)
    configs = tuple(build_config(source, i, c, defaults, names) for i, c in enumerate(spec.configs))
    suite = Suite(
        name=name,
        path=str(path),
        markers=tuple(spec.markers),
        workloads={w.name: w for built in workloads.values() for w in built},
        configs=configs,
        launches=_launches(source, spec.launches),
        place=source.place("suite"),
    )
    _check_ids(source, configs)
    _check_partners(source, suite)
    for i, config in enumerate(configs):
        keys: Keys = ("configs", i)
        own = spec.configs[i]
        _check_word(
            source, (*(keys if own.engine else ("server",)), "engine"), "engine", config.engine, engines
        )
        if config.known not in (None, "none"):
            at = (*keys, "known") if own.known else (*keys, "xfail", "known")
            _check_word(source, at, "entry in the registry of dead ends", config.known or "", known)
        _check_markers(source, keys, own.markers, markers)
        _check_classes(source, keys, config, failure_classes)
    _check_markers(source, (), spec.markers, markers)
    return suite


def _launches(source: Source, spec: LaunchesSpec) -> Launches:
    if spec.max < spec.min:
        raise source.error(("launches", "max"), f"is less than min ({spec.min})")
    return Launches(min=spec.min, max=spec.max, baseline=spec.baseline)


def _check_ids(source: Source, configs: Sequence[Config]) -> None:
    seen: dict[str, int] = {}
    for i, config in enumerate(configs):
        at = ("configs", i, "id")
        _check_name(source, at, "id", config.id)
        if config.id in seen:
            first = source.place("configs", seen[config.id], "id").line
            raise source.error(at, f"the id {config.id!r} is taken (line {first})")
        seen[config.id] = i


def _check_name(source: Source, keys: Keys, what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise source.error(
            keys, f"the {what} {name!r} may hold ASCII letters and digits, joined by one of . _ -"
        )
    if len(name) > MOST_CHARACTERS:
        raise source.error(keys, f"the {what} has {len(name)} characters; at most {MOST_CHARACTERS}")


def _check_partners(source: Source, suite: Suite) -> None:
    """Every `compare_to` names a config that is measured with the same workloads, and none leads back."""
    configs = {config.id: config for config in suite.configs}
    measured = {id_: set(config.workloads or suite.workloads) for id_, config in configs.items()}
    for i, config in enumerate(suite.configs):
        at = ("configs", i, "compare_to")
        partner = config.compare_to
        if partner is None:
            continue
        if partner not in configs:
            raise source.error(at, f"no config {partner!r} in this suite", near=(partner, configs))
        if missing := sorted(measured[config.id] - measured[partner]):
            raise source.error(at, f"{partner} is not measured with {', '.join(missing)}")
        _check_probes(source, ("configs", i, "probe"), config, configs[partner])
        chain = [config.id]
        while partner is not None:
            chain.append(partner)
            if partner in chain[:-1]:
                raise source.error(at, f"leads back to where it began: {' -> '.join(chain)}")
            partner = configs[partner].compare_to if partner in configs else None


def _check_probes(source: Source, keys: Keys, config: Config, partner: Config) -> None:
    """`same` needs an answer of the partner to the same prompt."""
    one, other = config.probe, partner.probe
    if one is None or one.demand != "same":
        return
    if other is None:
        raise source.error(keys, f"the same as what? {partner.id} has no probe")
    if (one.prompt, one.output_tokens) != (other.prompt, other.output_tokens):
        raise source.error(keys, f"{partner.id} is asked for something else")


def _check_word(source: Source, keys: Keys, what: str, word: str, words: Collection[str] | None) -> None:
    if words is not None and word not in words:
        few = f" among {', '.join(sorted(words))}" if 0 < len(words) <= 8 else ""
        raise source.error(keys, f"no {what} {word!r}{few}", near=(word, words))


def _check_markers(
    source: Source, keys: Keys, written: Sequence[str], markers: Collection[str] | None
) -> None:
    for i, marker in enumerate(written):
        at = (*keys, "markers", i)
        if not marker.isidentifier():
            raise source.error(at, f"{marker!r} is no name for a marker")
        if marker in NOT_LABELS:
            raise source.error(
                at, f"the marker {marker!r} is no label, pytest acts on it; {NOT_LABELS[marker]}"
            )
        if markers is not None and marker not in markers:
            raise source.error(
                at,
                f"the marker {marker!r} is not registered (pytest's `markers` setting)",
                near=(marker, markers),
            )


def _check_classes(source: Source, keys: Keys, config: Config, classes: Collection[str] | None) -> None:
    for match in config.dead_end.match if config.dead_end else ():
        for failure_class in match.failure_class:
            _check_word(source, (*keys, "xfail", "match", "class"), "failure class", failure_class, classes)
