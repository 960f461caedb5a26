"""An entry of the registry: a path that is known not to work, what selects it, and where it behaves how."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..model import DeadEnd, Place, Requires
from . import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..model import ArgValue, Config, EngineBuild, Host

NONE = "none"
"""`known: none` opts out of every entry that a config's flags would select."""


class Settings(Struct, frozen=True):
    """Flags and variables with the values that count; None: any value."""

    args: dict[str, tuple[str, ...] | None] = {}
    env: dict[str, tuple[str, ...] | None] = {}

    def __bool__(self) -> bool:
        return bool(self.args or self.env)

    def hold(self, args: Mapping[str, ArgValue], env: Mapping[str, str]) -> bool:
        """Whether all of them are among these."""
        given = {as_flag(name): value for name, value in args.items()}
        return all(among(values, given.get(name)) for name, values in self.args.items()) and all(
            among(values, env.get(name)) for name, values in self.env.items()
        )

    def told(self) -> Iterator[str]:
        """As somebody would write them on a command line."""
        for name, values in self.args.items():
            yield f"--{name}" if values in (None, ("true",)) else f"--{name} {'|'.join(values or ())}"
        for name, values in self.env.items():
            yield f"{name}={'|'.join(values or ('...',))}"


class Selects(Struct, frozen=True):
    settings: Settings
    unless: Settings = Settings()

    def fits(self, config: Config) -> bool:
        """Whether a config sets all of the settings itself, and none that makes it another path."""
        own_args = {name: value for name, value in config.args.items() if name in config.own_args}
        own_env = {name: value for name, value in config.env.items() if name in config.own_env}
        if not self.settings or not self.settings.hold(own_args, own_env):
            return False
        return not (self.unless and self.unless.hold(config.args, config.env))


class Example(Struct, frozen=True):
    source: str
    log: str


class Behaviour(Struct, frozen=True, kw_only=True):
    """A dead end, and where it is one."""

    dead_end: DeadEnd
    engine: str = ""
    """Version range; empty: every version."""
    build: str | None = None
    host: Requires = Requires()
    packages: tuple[str, ...] = ()
    missing_packages: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    def applies(self, build: EngineBuild | None, host: Host | None) -> bool:
        """Whether its conditions hold, or may hold, where engine or host is not known."""
        return (build is None or self._engine_fits(build)) and (host is None or _host_fits(self.host, host))

    def excluded_by(self, demand: Requires, engine: str) -> bool:
        """Whether it cannot apply where a config's demand is met."""
        from packaging.requirements import Requirement

        asked = {one.name: str(one.specifier) for one in map(Requirement, (*demand.engine, *demand.packages))}
        wanted = {one.name: str(one.specifier) for one in map(Requirement, self.packages)} | {
            engine: self.engine
        }
        return (
            any(ranges.disjoint(asked[name], wanted[name]) for name in asked.keys() & wanted.keys())
            or _differ(self.build, demand.build)
            or _differ(self.host.topology, demand.topology)
            or ranges.disjoint(_as_range(self.host.compute_capability), _as_range(demand.compute_capability))
        )

    def _engine_fits(self, build: EngineBuild) -> bool:
        return (
            ranges.contains(self.engine, build.version)
            and self.build in (None, build.build)
            and all(_package_fits(text, build) for text in self.packages)
            and not any(_package_fits(text, build) for text in self.missing_packages)
        )


class Entry(Struct, frozen=True, kw_only=True):
    """A path that is known not to work somewhere."""

    name: str
    engine: str
    title: str
    place: Place
    selects: tuple[Selects, ...]
    behaviours: tuple[Behaviour, ...]

    def selected_by(self, config: Config) -> bool:
        return config.engine == self.engine and any(one.fits(config) for one in self.selects)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _as_range(capability: str | None) -> str:
    """`12.0` as the range that it stands for."""
    return f"=={capability}" if re.fullmatch(r"\d+\.\d+", capability or "") else capability or ""


def _host_fits(demand: Requires, host: Host) -> bool:
    from packaging.specifiers import SpecifierSet

    wanted = demand.compute_capability
    if wanted is not None:
        exact = re.fullmatch(r"\d+\.\d+", wanted)
        if not host.compute_capability:
            return False
        if (
            host.compute_capability != wanted
            if exact
            else host.compute_capability not in SpecifierSet(wanted)
        ):
            return False
    return (
        host.count >= (demand.gpus or 0)
        and (demand.product is None or re.search(demand.product, host.product) is not None)
        and demand.topology in (None, host.topology)
        and host.memory_gib >= (demand.memory_gib or 0)
    )


def _package_fits(text: str, build: EngineBuild) -> bool:
    """Whether a distribution is installed in a version that a requirement allows."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    wanted = Requirement(text)
    versions = {canonicalize_name(name): version for name, version in build.packages.items()}
    found = versions.get(canonicalize_name(wanted.name))
    return found is not None and ranges.contains(str(wanted.specifier), found)


def among(values: tuple[str, ...] | None, given: Any) -> bool:
    """Whether a value that is set is one of those that count."""
    return given is not None and (values is None or as_text(given) in values)


def as_text(value: Any) -> str:
    """A flag's value as it is compared."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_flag(name: str) -> str:
    """A flag's name as it is compared."""
    return name.replace("_", "-")
