"""What there is here: the host, its engines and where they live, baselines, the registry, leases.

Everything is looked up when it is first asked for, and once.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ..errors import EngineMissing, RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from ..check.preflight import Surroundings
    from ..engines.base import Engine, Site
    from ..failures.known import Registry
    from ..gate.baselines import Baselines
    from ..host.site import SiteFile
    from ..load.api import Target
    from ..model import Config, EngineBuild, Host
    from ..serving.lease import Leases
    from .options import Options


class Here:
    """This machine, or the simulated one, as a run finds it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._engines: dict[str, Engine] = {}
        self._builds: dict[str, EngineBuild | EngineMissing] = {}
        self._attached: str | None = None
        """Id of the config that a running server stands for."""

    @cached_property
    def host(self) -> Host:
        """The simulated host, or this machine; probed when first asked for."""
        if self.options.simulation is not None:
            return self.options.simulation.host()
        from ..host.probe import probe

        return probe()

    @property
    def probed(self) -> bool:
        """Whether anything has made us look at the host."""
        return "host" in self.__dict__

    @cached_property
    def registry(self) -> Registry:
        from ..failures.known import Registry

        return Registry.load(self.options.known)

    @cached_property
    def site_file(self) -> SiteFile:
        from ..engines.registry import names
        from ..host.site import load_site

        return load_site(self.options.rootdir, engines=names())

    def engine(self, config: Config) -> Engine:
        if self.options.simulation is not None:
            return self.options.simulation.engine(config.engine)
        if config.engine not in self._engines:
            from ..engines.registry import find

            # Once each: it reads the metadata of all that is installed.
            self._engines[config.engine] = find(config.engine, config.place)
        return self._engines[config.engine]

    def site(self, config: Config) -> Site:
        """Where the config's engine lives: command line before suite before `gpuserve.local.yaml`."""
        if self.options.simulation is not None:
            return self.options.simulation.site(config)
        from ..engines.base import Site

        local = self.site_file.engine(config.engine)
        return Site(
            python=self.options.engine_python.get(config.engine)
            or config.python
            or local.python
            or sys.executable,
            build=local.build,
            env=local.env,
            models=self.site_file.models,
            options=local.options,
            url=self.options.attach,
        )

    def attached(self, config: Config) -> Target | None:
        """The running server that the config is measured on, or None where one is started.

        Raises SiteError when nobody says where it runs, and RequestError when one server is to stand for two configs.
        """
        from ..engines.base import Attaches
        from ..engines.openai import target_of

        engine, site = self.engine(config), self.site(config)
        if site.url is not None:
            first = self._attached = self._attached or config.id
            if first != config.id:
                raise RequestError(
                    f"--gpuserve-attach: {first} and {config.id} are selected, and one server cannot be both; "
                    f"choose with -k or a test's id"
                )
        if isinstance(engine, Attaches):
            return engine.target(config, site)
        if site.url is None:
            return None
        key = config.args.get("api-key")
        headers = {"Authorization": f"Bearer {key}"} if isinstance(key, str) else {}
        return msgspec.structs.replace(target_of(site.url), headers=headers)

    def build(self, config: Config) -> EngineBuild:
        """The installed engine. Raises EngineMissing."""
        from ..serving import attached

        site, running = self.site(config), self.attached(config)
        where = running.url if running else site.python
        key = f"{config.engine} {where} {sorted(site.env.items())}"
        if key not in self._builds:
            engine = self.engine(config)
            try:
                self._builds[key] = attached.build(engine, running) if running else engine.build(site)
            except EngineMissing as error:
                self._builds[key] = error
        found = self._builds[key]
        if isinstance(found, EngineMissing):
            raise found
        return found

    @cached_property
    def baselines(self) -> Baselines:
        from ..gate.baselines import Baselines

        return Baselines(self.options.baselines)

    def leases(self, folder: Path) -> Leases:
        """GPUs of this host, shared with whoever else runs here; slots, with their locks in `folder`, where there are
        none."""
        from ..serving.lease import Leases

        if self.host.simulated:
            # The slots are this run's own, the ports are shared with whoever else runs here.
            return Leases(self.site_file.leases, slots=self.host.count, slots_folder=folder)
        return Leases(self.site_file.leases, slots=None if self.host.count else 1)

    def surroundings(self, *, refresh: bool = False) -> Surroundings:
        """The same for `check`; `refresh` asks engines again for what is remembered of their flags."""
        from ..check.engine_flags import EngineFlags
        from ..check.preflight import Surroundings

        return Surroundings(
            host=self.host,
            registry=self.registry,
            engine=self.engine,
            site=self.site,
            build=self.build,
            flags=EngineFlags(refresh=refresh),
            root=self.options.rootdir,
        )
