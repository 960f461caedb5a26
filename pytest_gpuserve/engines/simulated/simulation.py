"""The simulated host as the rest of the project meets it: a host, an engine, and what is not known."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import EngineMissing
from ...model import EngineBuild, Host
from ..base import Site
from ..flags import render
from ..sglang import SGLang
from . import arguments, known
from .perturb import Perturbation, parse
from .profile import DEFAULT_PROFILE, DEFAULT_VERSION, load_profile, load_version
from .version import ENGINE, parse_simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model import Case, Config
    from .profile import Profile, Version

TIME_SCALE = 1 / 20
STARTUP_SCALE = 1 / 200
PACKAGE_ROOT = Path(__file__).parents[3]


class Simulation:
    """What `--gpuserve-simulate` and `--gpuserve-perturb` ask for."""

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        perturbation: Perturbation | None = None,
        *,
        profile: str = DEFAULT_PROFILE,
        time_scale: float = TIME_SCALE,
        startup_scale: float = STARTUP_SCALE,
    ) -> None:
        """Raises InputError for a profile or version that does not exist."""
        self.profile_name, self.version_name = profile, version
        self.profile = load_profile(profile)
        self.version = load_version(profile, version)
        self.perturbation = perturbation or Perturbation()
        self._time_scale = time_scale
        self._startup_scale = startup_scale

    @classmethod
    def from_options(cls, simulate: str | None, perturb: Iterable[str] = ()) -> Simulation:
        """From the options' values. Raises InputError that names the value."""
        _, version = parse_simulate(simulate)
        return cls(version, parse(perturb))

    @property
    def title(self) -> str:
        """One line for the heads of reports."""
        version = self.version
        text = f"simulated host {self.profile_name}, {ENGINE} {version.version} ({version.build} build"
        text += ", the founding story's)" if self.version_name == DEFAULT_VERSION else ")"
        changed = self.perturbation.texts()
        return f"{text}, perturbed: {', '.join(changed)}" if changed else text

    def host(self) -> Host:
        facts = self.profile.host
        return Host(
            profile=self.profile_name,
            product=facts.product,
            count=facts.count,
            compute_capability=facts.compute_capability,
            topology=facts.topology,
            driver=facts.driver,
            memory_gib=facts.memory_gib,
            simulated=True,
        )

    def engine(self, name: str) -> Simulated:
        """Raises EngineMissing for an engine that no profile describes."""
        if name != ENGINE:
            raise EngineMissing(f"the simulated host has no engine {name!r}, only {ENGINE}")
        return Simulated()

    def site(self, config: Config) -> Site:
        """Where the simulated engine lives: in our own interpreter."""
        return Site(
            python=sys.executable,
            build=self.version.build,
            time_scale=self._time_scale,
            startup_scale=self._startup_scale,
            options={
                "profile": self.profile_name,
                "version": self.version_name,
                "perturbation": self.perturbation,
            },
        )

    def unknown(self, case: Case) -> str | None:
        """Why the profile cannot say what a case would do; None when it can."""
        config = case.config
        if config.engine != ENGINE:
            return f"the simulated host's profile describes {ENGINE}, and nothing of {config.engine}"
        found = knows(self.profile, self.version, config)
        if isinstance(found, known.Unknown):
            return f"simulated host: {found.reason}"
        if found is None:
            return None  # it is refused when its arguments are read, whatever the load
        opens = self.perturbation.of(config.id).action == "opens"
        if found.dies and not opens:
            return None
        serving = {**self.profile.serving, **self.version.serving}[found.serves]
        lacking = known.load(serving, case.workload)
        return f"simulated host: {lacking.reason}" if lacking else None


def knows(profile: Profile, version: Version, config: Config) -> known.Unknown | Any:
    """The route of a config, Unknown, or None when its flags are refused, which is known too."""
    argv = ["--model-path", config.model.id, *render(config.args), *config.extra_args]
    try:
        fields = arguments.parse(version.flags, argv)
    except arguments.Refused:
        return None
    return known.route(profile, version, fields, config.env)


class Simulated(SGLang):
    """SGLang with the simulated server in its place: the same API, flags, log lines and name."""

    def build(self, site: Site) -> EngineBuild:
        version = load_version(site.options["profile"], site.options["version"])
        return EngineBuild(
            name=self.name,
            version=version.version,
            build=version.build,
            packages=dict(version.packages),
            python=site.python,
        )

    def program(self, config: Config, site: Site) -> tuple[str, ...]:
        options = site.options
        change = options["perturbation"].of(config.id)
        own = {
            "profile": options["profile"],
            "version": options["version"],
            "time-scale": site.time_scale,
            "startup-scale": site.startup_scale,
        }
        if change.slowdown:
            own["slowdown"] = change.slowdown
        if change.action:
            own["action"] = change.action
        env = [word for name in config.env for word in ("--env", name)]
        return (site.python, "-m", __package__, *render(own), *env, "--")

    def environment(self, config: Config, site: Site, gpus: tuple[int, ...]) -> dict[str, str | None]:
        """This package must be found from wherever the server is started, also when it is not installed."""
        env = super().environment(config, site, gpus)
        inherited = env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        return env | {"PYTHONPATH": os.pathsep.join(filter(None, (str(PACKAGE_ROOT), inherited)))}

    def model(self, config: Config, site: Site) -> str:
        """No files are needed."""
        return config.model.id

    def settings(self, config: Config, site: Site) -> dict[str, Any] | None:
        """What of the model's config.json the profile tells."""
        return load_profile(site.options["profile"]).settings
