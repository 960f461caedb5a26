"""What can be known of a suite's cases before anything is started.

`check_suites` looks at everything, for `gpuserve check`; `check_case` at one case just before its launch, and only
at what takes no time: it never runs the engine's `--help`, but takes the page that is kept from an earlier check,
or else the declarations in the engine's source (half a second, once).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..errors import EngineMissing, InputError, SuiteError
from .finding import SEVERITIES, Finding, Severity, worst
from .flags import check_flags
from .models import check_models
from .resources import check_host, check_ports
from .variables import check_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ..engines.base import Engine, Site
    from ..failures.known import Registry
    from ..model import Case, Config, DeadEnd, EngineBuild, Host, Suite
    from .engine_flags import EngineFlags, How

OK, PROBLEMS, BAD_INPUT = 0, 1, 2
"""Exit statuses: nothing that hinders a start; something that does; a suite that cannot be used at all."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Everything outside of a suite that a check depends on."""

    host: Host
    registry: Registry
    engine: Callable[[Config], Engine]
    """The engine of a config. Raises InputError."""
    site: Callable[[Config], Site]
    """Where that engine lives."""
    build: Callable[[Config], EngineBuild]
    """What is installed. Raises EngineMissing."""
    flags: EngineFlags
    root: Path
    """Where records and logs will be written."""


class Checked(Struct, frozen=True, kw_only=True):
    """A config, or a case of it, and what was found."""

    suite: str
    config: str
    cases: tuple[str, ...]
    place: str
    """File and line of the config."""
    engine: str = ""
    """Name and version of what is installed; empty when it is not."""
    dead_end: str = ""
    """Registry entry or kind, where it is a documented dead end here."""
    skipped: str = ""
    """What this host or engine lacks, so that it would be skipped."""
    findings: tuple[Finding, ...] = ()

    @property
    def severity(self) -> Severity | None:
        return worst(list(self.findings))


class Report(Struct, frozen=True, kw_only=True):
    """The whole check."""

    host: tuple[Finding, ...] = ()
    """About the machine, whatever the config."""
    suites: tuple[Finding, ...] = ()
    """Suites that cannot be used."""
    configs: tuple[Checked, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        return [*self.suites, *self.host, *(one for config in self.configs for one in config.findings)]

    def count(self, severity: Severity) -> int:
        return sum(one.severity == severity for one in self.findings)

    def exit_status(self, *, strict: bool = False) -> int:
        """`strict`: a warning is a problem too."""
        if self.suites:
            return BAD_INPUT
        bad: set[Severity] = {"error", "warning"} if strict else {"error"}
        return PROBLEMS if any(one.severity in bad for one in self.findings) else OK


def check_suites(
    paths: Sequence[Path],
    around: Surroundings,
    load: Callable[[Path], Suite],
    *,
    how: How = "ask",
) -> Report:
    """Check every suite file named, and those in the folders named. InputError when there are none."""
    suites, broken = load_all(paths, load)
    checked = tuple(
        check_config(suite, config, around, how=how) for suite in suites for config in suite.configs
    )
    needed = max((one.gpus for suite in suites for one in suite.configs if _runs(one, checked)), default=0)
    host = tuple(check_host(around.root, gpus_needed=needed if around.host.count else 0))
    return Report(host=host, suites=tuple(broken), configs=checked)


def _runs(config: Config, checked: Iterable[Checked]) -> bool:
    return any(one.place == str(config.place) and not one.skipped for one in checked)


def load_all(paths: Sequence[Path], load: Callable[[Path], Suite]) -> tuple[list[Suite], list[Finding]]:
    """Every suite, and what is wrong with those that cannot be used. InputError when there are no files."""
    suites: dict[str, Suite] = {}
    broken: list[Finding] = []
    for path in suite_files(paths):
        try:
            suite = load(path)
        except SuiteError as error:
            broken.append(Finding(severity="error", topic="suite", text=str(error)))
            continue
        other = suites.setdefault(suite.name, suite)
        if other is not suite:
            text = f"{path}: the suite is named {suite.name!r}, and so is {other.path}"
            broken.append(
                Finding(severity="error", topic="suite", text=text, advice="Give one another `suite:`")
            )
    return list(suites.values()), broken


def suite_files(paths: Sequence[Path]) -> list[Path]:
    """YAML files among the paths, and those in the folders among them. InputError when there are none."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.suffix in (".yaml", ".yml"))
            found.update(dict.fromkeys(inside))
        elif path.is_file():
            found[path] = None
        else:
            raise InputError(f"{path}: there is no such suite file or folder")
    if not found:
        raise InputError(f"no suite files (*.yaml) in {', '.join(str(path) for path in paths)}")
    return list(found)


def check_config(suite: Suite, config: Config, around: Surroundings, *, how: How = "ask") -> Checked:
    """Everything that can be known of a config; what it would be skipped for comes as a note."""
    from ..host.unmet import unmet

    lacks = unmet(config.requires, around.host, None)
    build, site, findings = _installed(config, around, needed=not lacks)
    unfit = [one for one in unmet(config.requires, around.host, build) if one not in lacks] if build else []
    skipped = "; ".join((*lacks, *unfit))
    if skipped:
        findings.append(Finding(severity="note", topic="host", text=f"skipped here: {skipped}"))
    # Flags are the engine's matter: another host with the same engine would take or refuse them alike.
    end = config.dead_end or around.registry.resolve(config, build, around.host)
    if build is not None and site is not None and not unfit:
        marked = end if config.dead_end is not None or config.known is not None else None
        findings += _expected(_with_engine(config, around, build, site, how), marked)
    if site is not None and not skipped:
        findings += [*check_models(config, site), *check_ports(config)]
    if end is not None:
        findings.append(_documented(config, end, certain=build is not None))
    return Checked(
        suite=suite.name,
        config=config.id,
        cases=tuple(case.id for case in suite.cases() if case.config.id == config.id),
        place=str(config.place),
        engine=f"{build.name} {build.version}" if build else "",
        dead_end=(end.entry or end.kind) if end else "",
        skipped=skipped,
        findings=_by_severity(findings),
    )


def _by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda one: SEVERITIES.index(one.severity)))


def _installed(
    config: Config, around: Surroundings, *, needed: bool
) -> tuple[EngineBuild | None, Site | None, list[Finding]]:
    """The engine; its absence is an error where the config would run."""
    severity: Severity = "error" if needed else "note"
    try:
        site = around.site(config)
        return around.build(config), site, []
    except EngineMissing as error:
        finding = Finding(severity=severity, topic="engine", text=f"flags not checked: {error}")
        return None, None, [finding]
    except InputError as error:
        return None, None, [Finding(severity="error", topic="engine", text=str(error))]


def _with_engine(
    config: Config, around: Surroundings, build: EngineBuild, site: Site, how: How
) -> Iterator[Finding]:
    known = around.flags.get(build, site, how=how)
    if known is None:
        yield Finding(
            severity="note", topic="flag", text=f"the flags of {build.name} {build.version} are not checked"
        )
        return
    if known.problem and how == "ask":
        yield Finding(
            severity="note",
            topic="flag",
            text=f"flags are checked against the source of {build.name} {build.version}: {known.problem}",
        )
    yield from _refused(config, around, site)
    yield from check_flags(config, known.page, build.version)
    yield from check_variables(config, known.variables, build.version)


def _refused(config: Config, around: Surroundings, site: Site) -> Iterator[Finding]:
    """What the engine's own adapter refuses, such as flags that we set."""
    from ..engines.tiny_model import MODELS
    from ..load.api import Target

    if config.model.id in MODELS:
        return  # to build its command would make the model
    try:
        around.engine(config).command(config, site, Target(host="127.0.0.1", port=1), ())
    except SuiteError as error:
        yield Finding(severity="error", topic="flag", text=str(error))
    except InputError:
        return  # about the model or the site, which have checks of their own


def _expected(findings: Iterable[Finding], end: DeadEnd | None) -> Iterator[Finding]:
    """A start that is documented to fail over its arguments may have wrong ones."""
    documented = end is not None and end.kind == "start" and (not end.phases or "args" in end.phases)
    for one in findings:
        yield replace(one, severity="warning") if documented and one.severity == "error" else one


def _documented(config: Config, end: DeadEnd, *, certain: bool) -> Finding:
    """A dead end that the suite says is one is no news; one that only the flags select may be."""
    may = "" if certain else "may be a "
    where = f"{may}documented dead end {end.entry or ''} ({end.kind})".replace("  ", " ")
    marked = config.dead_end is not None or config.known is not None
    never = "; it is never started" if not end.run else ""
    return Finding(
        severity="note" if marked else "warning",
        topic="dead end",
        text=f"{where}: {end.reason}{never}",
        advice=f"Way out: {end.way_out}" if end.way_out else "",
    )


def check_case(case: Case, around: Surroundings, dead_end: DeadEnd | None = None) -> tuple[Finding, ...]:
    """What is wrong with a case that is about to be launched; empty when nothing is known against it.

    Only errors and warnings. What the host lacks is planned for elsewhere, and so are dead ends: `dead_end` is
    the one that the case is expected to be, which may have wrong arguments. Takes milliseconds when the engine
    has been asked before, else about a second for the first case of an engine.
    """
    config = case.config
    build, site, findings = _installed(config, around, needed=True)
    if build is not None and site is not None:
        findings += _expected(_with_engine(config, around, build, site, "source"), dead_end)
        findings += check_models(config, site)
    findings += check_ports(config)
    return tuple(one for one in _by_severity(findings) if one.severity != "note")
