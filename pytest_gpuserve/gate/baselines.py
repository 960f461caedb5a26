"""The folder of stored baselines, and what it holds for a case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .baseline_file import read

if TYPE_CHECKING:
    from ..model import Case, Host, Suite
    from .baseline import Baseline


class Baselines:
    """A folder of baselines: one folder a host profile, in it one file a suite.

    All methods raise BaselineError, with file, line and key, when a file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def path(self, profile: str, suite: str) -> Path:
        return self.folder / profile / f"{suite}.yaml"

    def find(self, host: Host, case: Case) -> Baseline | None:
        """The baseline of a case, or None when nobody recorded one."""
        return self.cases(host.profile, case.suite).get(case.id)

    def cases(self, profile: str, suite: str) -> dict[str, Baseline]:
        """All that is stored for a suite on a host, by case."""
        path = self.path(profile, suite)
        return read(path).cases if path.exists() else {}

    def orphans(self, profile: str, suite: Suite) -> list[Baseline]:
        """Entries that no case of the suite claims: a case was renamed or is gone."""
        claimed = {case.id for case in suite.cases()}
        return [each for name, each in self.cases(profile, suite.name).items() if name not in claimed]

    def files(self) -> list[tuple[str, str]]:
        """What there is, as (profile, suite), sorted."""
        return sorted((path.parent.name, path.stem) for path in self.folder.glob("*/*.yaml"))
