"""What a host and an engine lack of what a config requires, in words for a skip reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..model import EngineBuild, Host, Requires


def unmet(requires: Iterable[Requires], host: Host, engine: EngineBuild | None) -> list[str]:
    """Everything that is missing, such as `needs 8 GPUs, this host has none`; empty when the case can run.

    `engine` is None as long as nobody has looked at it; then only the host is judged. Version ranges include
    pre-releases: 0.5.22rc1 meets `>=0.5.21`, and 0.5.21rc1, which comes before 0.5.21, does not.
    """
    found: list[str] = []
    for demand in requires:
        lacking = [
            *(text for check in _HOST for text in check(demand, host)),
            *(text for check in _ENGINE if engine for text in check(demand, engine)),
        ]
        if lacking and demand.why:
            lacking[-1] += f" ({demand.why})"
        found += lacking
    return list(dict.fromkeys(found))


def _gpus(demand: Requires, host: Host) -> Iterator[str]:
    # What is asked of GPUs is asked of at least one.
    about_gpus = demand.product or demand.compute_capability or demand.memory_gib
    needed = demand.gpus or (1 if about_gpus or demand.topology not in (None, "none") else 0)
    if host.count < needed:
        note = f" ({host.note})" if host.note else ""
        yield f"needs {needed} {'GPU' if needed == 1 else 'GPUs'}, this host has {host.count or 'none'}{note}"


def _product(demand: Requires, host: Host) -> Iterator[str]:
    if demand.product is not None and host.count and not re.search(demand.product, host.product):
        yield f"needs a GPU that matches {demand.product!r}, this host has {host.product}"


def _capability(demand: Requires, host: Host) -> Iterator[str]:
    from packaging.specifiers import SpecifierSet

    wanted = demand.compute_capability
    if wanted is None or not host.count:
        return
    exact = re.fullmatch(r"\d+\.\d+", wanted)
    if not (
        host.compute_capability == wanted if exact else SpecifierSet(wanted).contains(host.compute_capability)
    ):
        yield f"needs compute capability {wanted}, this host has {host.compute_capability}"


def _topology(demand: Requires, host: Host) -> Iterator[str]:
    if demand.topology is not None and host.count and host.topology != demand.topology:
        yield f"needs topology {demand.topology}, this host has {host.topology}"


def _memory(demand: Requires, host: Host) -> Iterator[str]:
    if demand.memory_gib is not None and host.count and host.memory_gib < demand.memory_gib:
        yield f"needs {demand.memory_gib:g} GiB of memory on each GPU, this host has {host.memory_gib:g}"


def _engine_version(demand: Requires, engine: EngineBuild) -> Iterator[str]:
    from packaging.requirements import Requirement

    for text in demand.engine:
        name = Requirement(text).name
        if engine.name != name:
            yield f"needs {text}, this is {engine.name} {engine.version}"
        elif not _meets(text, engine.version):
            yield f"needs {text}, here is {engine.version}"


def _build(demand: Requires, engine: EngineBuild) -> Iterator[str]:
    if demand.build not in (None, engine.build):
        yield f"needs a {demand.build} build of {engine.name}, here is a {engine.build} one"


def _packages(demand: Requires, engine: EngineBuild) -> Iterator[str]:
    for text in demand.packages:
        name, version = _installed(text, engine)
        if version is None:
            yield f"needs {text}, {name} is not installed with the engine"
        elif not _meets(text, version):
            yield f"needs {text}, here is {version}"


def _missing_packages(demand: Requires, engine: EngineBuild) -> Iterator[str]:
    for text in demand.missing_packages:
        name, version = _installed(text, engine)
        if version is not None and _meets(text, version):
            yield f"is about {text} not being installed, here is {name} {version}"


def _installed(requirement: str, engine: EngineBuild) -> tuple[str, str | None]:
    """The distribution that a requirement names, and its version in the engine's environment."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    name = Requirement(requirement).name
    versions = {canonicalize_name(known): version for known, version in engine.packages.items()}
    return name, versions.get(canonicalize_name(name))


def _meets(requirement: str, version: str) -> bool:
    """Whether a version lies in a range; a text that is no version lies in the open range alone."""
    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion, Version

    specifier = Requirement(requirement).specifier
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return not specifier


_HOST: tuple[Callable[[Requires, Host], Iterator[str]], ...] = (
    _gpus,
    _product,
    _capability,
    _topology,
    _memory,
)
_ENGINE: tuple[Callable[[Requires, EngineBuild], Iterator[str]], ...] = (
    _engine_version,
    _build,
    _packages,
    _missing_packages,
)
