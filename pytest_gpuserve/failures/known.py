"""The registry of dead ends: named paths, and how each behaves by engine version, build and host.

An entry is selected by a config that names it (`known:`) or that sets one of its flags or variables *itself*;
the first of its behaviours whose conditions hold applies. Ours lie in `known/<engine>.yaml`; a user's folders
(ini `gpuserve_known`) come first, and an entry of theirs replaces ours of the same name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SuiteError
from .entry import NONE
from .known_file import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model import Config, DeadEnd, EngineBuild, Host
    from .entry import Entry

FOLDER = Path(__file__).with_suffix("")


class Registry:
    """Entries by name, the users' before ours."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    @classmethod
    def load(cls, folders: Sequence[Path] = ()) -> Registry:
        """Our entries, and those of the files in `folders`, which replace ours of the same name.

        Raises SuiteError with file, line and key.
        """
        found: dict[str, Entry] = {}
        for folder in folders:
            if not folder.is_dir():
                raise SuiteError(f"the folder {folder} (ini gpuserve_known) does not exist")
            for file in sorted(folder.glob("*.yaml")):
                for entry in read(file):
                    if entry.name in found:
                        first = found[entry.name].place
                        raise SuiteError(
                            f"the entry {entry.name!r} is already written at {first}", entry.place
                        )
                    found[entry.name] = entry
        ours = {entry.name: entry for entry in _ours() if entry.name not in found}
        return cls([*found.values(), *ours.values()])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def selected(self, config: Config) -> tuple[Entry, ...]:
        """The entries that a config is about: the one it names, or those that its own settings mark."""
        if config.known == NONE:
            return ()
        if config.known is not None:
            found = self._entries.get(config.known)
            return (found,) if found is not None and found.engine == config.engine else ()
        return tuple(entry for entry in self._entries.values() if entry.selected_by(config))

    def possible(self, config: Config) -> tuple[DeadEnd, ...]:
        """Every dead end that a config may be, on whatever host and version its demands allow."""
        return tuple(
            behaviour.dead_end
            for entry in self.selected(config)
            for behaviour in entry.behaviours
            if not any(behaviour.excluded_by(demand, entry.engine) for demand in config.requires)
        )

    def resolve(self, config: Config, build: EngineBuild | None, host: Host | None) -> DeadEnd | None:
        """The dead end that a config is here, or None when it is an ordinary case.

        An inert path of which the engine says nothing is a dead end only where the config brings its own
        proof (`active_if`): otherwise nothing would show that it is.
        """
        for entry in self.selected(config):
            for behaviour in entry.behaviours:
                end = behaviour.dead_end
                silent = end.kind == "inert" and end.inert_log is None and config.active_if is None
                if behaviour.applies(build, host) and not silent:
                    return end
        return None


@cache
def _ours() -> tuple[Entry, ...]:
    return tuple(entry for file in sorted(FOLDER.glob("*.yaml")) for entry in read(file))
