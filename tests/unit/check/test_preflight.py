from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.check.engine_flags import Known
from pytest_gpuserve.check.help_page import Flag, Page
from pytest_gpuserve.check.preflight import Surroundings, check_case, check_suites, suite_files
from pytest_gpuserve.check.preflight_text import as_dict, as_text
from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.engines.sglang import SGLang
from pytest_gpuserve.errors import EngineMissing, InputError
from pytest_gpuserve.failures.known import Registry
from pytest_gpuserve.model import EngineBuild, Evidence, Host
from pytest_gpuserve.suite import load_suite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_gpuserve.check.finding import Finding
    from pytest_gpuserve.check.preflight import Report
    from pytest_gpuserve.model import Config, DeadEnd, Suite

CPU = Host(
    profile="cpu",
    product="CPU",
    count=0,
    compute_capability="",
    topology="none",
    driver="",
    memory_gib=0.0,
)
PAGE = Page(
    flags=(
        Flag(names=("tp-size",)),
        Flag(names=("moe-a2a-backend",), choices=("none", "deepep")),
        Flag(names=("load-format",)),
        Flag(names=("nccl-port",)),
    )
)

KNOWN = Known(page=PAGE, variables=frozenset({"SGLANG_LOG_MS"}))

SUITE = """
server: {{engine: sglang, model: {model}, args: {{load-format: dummy}}}}
workloads:
  decode: {{concurrency: 1, requests: 1, input_tokens: 8, output_tokens: 8}}
configs:
{configs}
"""


class FakeFlags:
    """Stands in for EngineFlags, and remembers how it was asked."""

    def __init__(self, known: Known | None) -> None:
        self.known = known
        self.asked: list[str] = []

    def get(self, build: EngineBuild, site: Site, *, how: str = "ask") -> Known | None:
        self.asked.append(how)
        return self.known


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def write(tmp_path: Path, model: Path) -> Callable[..., Path]:
    folder = tmp_path / "suites"
    folder.mkdir()

    def suite(configs: str, name: str = "one") -> Path:
        file = folder / f"{name}.yaml"
        listed = textwrap.indent(textwrap.dedent(configs).strip("\n"), "  ")
        file.write_text(SUITE.format(model=model, configs=listed))
        return file

    return suite


def around(
    tmp_path: Path,
    *,
    version: str | None = "0.5.23",
    host: Host = CPU,
    known: Known | None = KNOWN,
    registry: Registry | None = None,
) -> Surroundings:
    def build(config: Config) -> EngineBuild:
        if version is None:
            raise EngineMissing("python does not have sglang")
        return EngineBuild(name="sglang", version=version)

    return Surroundings(
        host=host,
        registry=registry or Registry(()),
        engine=lambda config: SGLang(),
        site=lambda config: Site(python="python"),
        build=build,
        flags=FakeFlags(known),  # type: ignore[arg-type]
        root=tmp_path,
    )


def load(path: Path) -> Suite:
    return load_suite(path)


def check(path: Path, surroundings: Surroundings) -> Report:
    return check_suites([path], surroundings, load)


def found(report: Report) -> list[tuple[str, str]]:
    return [(one.severity, one.topic) for config in report.configs for one in config.findings]


def test_nothing_is_wrong(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("- id: plain\n- id: deepep\n  args: {moe-a2a-backend: deepep}"), around(tmp_path))
    assert found(report) == []
    assert report.exit_status(strict=True) == 0
    assert [one.cases for one in report.configs] == [("plain-decode",), ("deepep-decode",)]
    assert report.configs[0].engine == "sglang 0.5.23"


def test_a_wrong_flag_is_a_problem(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("- id: typo\n  args: {moe-a2a-backnd: deepep}"), around(tmp_path))
    assert found(report) == [("error", "flag")]
    assert report.exit_status() == 1
    text = as_text(report)
    assert "one::typo  (" in text and "one.yaml:6)" in text
    assert "error: sglang 0.5.23 has no flag --moe-a2a-backnd. Did you mean --moe-a2a-backend?" in text
    assert text.endswith("1 suite, 1 config, 1 case: 1 error, 0 warnings, 0 notes\n")


def test_warnings_are_problems_if_strict(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("- id: env\n  env: {SGLANG_LOG_MSS: '1'}"), around(tmp_path))
    assert found(report) == [("warning", "variable")]
    assert (report.exit_status(), report.exit_status(strict=True)) == (0, 1)


def test_flags_that_are_ours(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("- id: port\n  args: {port: 30000}"), around(tmp_path))
    assert "the flag `port` is set by gpuserve" in report.configs[0].findings[0].text


def test_what_the_host_lacks_is_no_problem_and_flags_are_checked_all_the_same(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    report = check(
        write("- id: big\n  requires: {gpus: 8}\n  model: owner/name\n  args: {tp-sise: 8}"), around(tmp_path)
    )
    (config,) = report.configs
    assert config.skipped == "needs 8 GPUs, this host has none"
    assert found(report) == [("error", "flag"), ("note", "host")]  # nothing of the model, which is not needed


def test_another_engine_version_is_needed(tmp_path: Path, write: Callable[..., Path]) -> None:
    configs = "- id: newer\n  requires: {engine: 'sglang>=0.6'}\n  args: {new-flag: 1}"
    report = check(write(configs), around(tmp_path))
    assert found(report) == [("note", "host")]  # nobody would start it, so its flags do not matter
    assert report.exit_status() == 0


def test_the_engine_is_missing(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write("- id: plain\n- id: big\n  requires: {gpus: 8}")
    report = check(path, around(tmp_path, version=None))
    assert found(report) == [("error", "engine"), ("note", "engine"), ("note", "host")]
    assert report.exit_status() == 1


def test_suites_that_cannot_be_used(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("- id: fine")
    write("- ids: broken", name="two")
    report = check(tmp_path / "suites", around(tmp_path))
    assert report.exit_status() == 2
    assert "two.yaml:6" in report.suites[0].text
    assert [one.config for one in report.configs] == ["fine"]  # the others are checked all the same


def test_two_suites_of_one_name(tmp_path: Path, write: Callable[..., Path]) -> None:
    first = write("- id: a")
    second = tmp_path / "suites" / "other.yaml"
    second.write_text("suite: one\n" + first.read_text())
    report = check(tmp_path / "suites", around(tmp_path))
    assert "and so is" in report.suites[0].text and report.exit_status() == 2


def test_there_are_no_suites(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no suite files"):
        suite_files([tmp_path])
    with pytest.raises(InputError, match="there is no such suite file or folder"):
        suite_files([tmp_path / "nowhere"])


XFAIL = """
- id: known
  args: {old-flag: 1}
  xfail:
    kind: start
    phases: [args]
    reason: the flag is gone
    match: {class: configuration, message: old-flag}
"""


def test_a_documented_dead_end_may_have_wrong_flags(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write(XFAIL), around(tmp_path))
    assert found(report) == [("warning", "flag"), ("note", "dead end")]
    (config,) = report.configs
    assert config.dead_end == "start"
    assert "documented dead end (start): the flag is gone" in config.findings[1].text
    serve = check(write(XFAIL.replace("phases: [args]", "phases: [weights_load]")), around(tmp_path))
    assert found(serve)[0] == ("error", "flag")


class OneEntry(Registry):
    def __init__(self, end: DeadEnd) -> None:
        super().__init__(())
        self.end = end

    def resolve(self, config: Config, build: Any, host: Any) -> DeadEnd | None:
        return self.end


def dead_end(**more: Any) -> DeadEnd:
    from pytest_gpuserve.model import DeadEnd, Place

    return DeadEnd(
        **{
            "kind": "missing",
            "reason": "no DeepEP",
            "place": Place("known.yaml", 3),
            "entry": "sglang-deepep-missing",
            "way_out": "install it",
            "evidence": Evidence(kind="observed"),
            **more,
        }
    )


def test_registry_hits_come_with_their_way_out(tmp_path: Path, write: Callable[..., Path]) -> None:
    registry = OneEntry(dead_end(run=False))
    report = check(write("- id: plain"), around(tmp_path, registry=registry))
    (one,) = report.configs[0].findings
    assert one.severity == "warning"  # nothing in the suite says that somebody knows of it
    assert str(one) == (
        "documented dead end sglang-deepep-missing (missing): no DeepEP; it is never started. "
        "Way out: install it"
    )
    unknown = check(write("- id: plain"), around(tmp_path, registry=registry, version=None))
    assert unknown.configs[0].findings[1].text.startswith("may be a documented dead end")


def test_flags_of_other_engines_are_not_checked(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("- id: plain\n  args: {whatever: 1}"), around(tmp_path, known=None))
    assert found(report) == [("note", "flag")]


def test_where_the_flags_come_from_is_told(tmp_path: Path, write: Callable[..., Path]) -> None:
    known = Known(page=PAGE, problem="its --help failed: ImportError: libcuda.so.1")
    report = check(write("- id: plain"), around(tmp_path, known=known))
    assert "checked against the source of sglang 0.5.23: its --help failed" in as_text(report)
    assert "its --help failed" not in as_text(report, quiet=True)


def test_what_many_configs_share_is_told_once(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("\n".join(f"- id: c{n}\n  args: {{tp: 8}}" for n in range(4))), around(tmp_path))
    assert as_text(report).count("is an abbreviation") == 1
    assert "warning: 4 configs: --tp is an abbreviation of --tp-size" in as_text(report)


def test_json(tmp_path: Path, write: Callable[..., Path]) -> None:
    report = check(write("- id: typo\n  args: {nope: 1}"), around(tmp_path))
    told = json.loads(json.dumps(as_dict(report)))
    assert (told["exit_status"], told["counts"]["error"]) == (1, 1)
    (finding,) = told["configs"][0]["findings"]
    assert finding["topic"] == "flag"


# --- before a launch ---


def before(path: Path, surroundings: Surroundings, end: DeadEnd | None = None) -> Sequence[Finding]:
    return check_case(load(path).cases()[0], surroundings, end)


def test_a_case_before_its_launch(tmp_path: Path, write: Callable[..., Path]) -> None:
    surroundings = around(tmp_path)
    (one,) = before(write("- id: typo\n  args: {nope: 1}"), surroundings)
    assert one.severity == "error"
    # The engine's --help would take half a minute: never run here.
    assert surroundings.flags.asked == ["source"]  # type: ignore[attr-defined]


def test_notes_are_no_matter_before_a_launch(tmp_path: Path, write: Callable[..., Path]) -> None:
    assert before(write("- id: plain"), around(tmp_path, known=None)) == ()


def test_a_dead_end_may_have_wrong_flags_before_its_launch_too(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    path = write("- id: typo\n  args: {nope: 1}")
    end = dead_end(kind="start")
    assert [one.severity for one in before(path, around(tmp_path), end)] == ["warning"]


def test_a_model_that_is_gone_before_a_launch(
    tmp_path: Path, write: Callable[..., Path], model: Path
) -> None:
    path = write("- id: plain")
    (model / "config.json").unlink()
    assert [one.topic for one in before(path, around(tmp_path))] == ["model"]
