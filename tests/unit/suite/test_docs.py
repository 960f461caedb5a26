"""docs/suites.md names every key that there is, with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from msgspec import NODEFAULT, structs

from pytest_gpuserve.host import site
from pytest_gpuserve.model import PHASES
from pytest_gpuserve.suite import spec
from pytest_gpuserve.written import METRICS, DeadEndSpec, MatchSpec, RequiresSpec

if TYPE_CHECKING:
    from .conftest import Load

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs/suites.md").read_text()


def section(title: str) -> str:
    return re.split(r"^#+ ", DOC.split(f"## {title}\n", 1)[1], flags=re.MULTILINE)[0]


def rows(text: str, header: str) -> dict[str, list[str]]:
    """The rows of the table whose header begins so, by the key in their first cell."""
    table = text.split(f"| {header} |", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


@pytest.mark.parametrize(
    ("title", "header", "struct", "inherited"),
    [
        ("The file", "key", spec.SuiteSpec, ()),
        ("server", "key", spec.ServerSpec, ()),
        ("configs", "key", spec.ConfigSpec, spec.ServerSpec.__struct_fields__),
        ("requires", "key", RequiresSpec, ()),
        ("workloads", "key", spec.WorkloadSpec, ()),
        ("launches", "key", spec.LaunchesSpec, ()),
        ("xfail", "key", DeadEndSpec, ()),
        ("xfail", "key of `match`", MatchSpec, ()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_key_is_documented(title: str, header: str, struct: type, inherited: tuple[str, ...]) -> None:
    documented = rows(section(title), header)
    fields = [f.encode_name for f in structs.fields(struct) if f.name not in inherited]
    assert sorted(documented) == sorted(fields)


@pytest.mark.parametrize(
    ("title", "struct"), [("workloads", spec.WorkloadSpec), ("launches", spec.LaunchesSpec)]
)
def test_plain_defaults_are_the_documented_ones(title: str, struct: type) -> None:
    documented = rows(section(title), "key")
    for field in structs.fields(struct):
        default = field.default
        if default is None or default is NODEFAULT:
            continue
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        if isinstance(default, float):
            shown = f"{default:g}"
        assert documented[field.encode_name][1].strip("`") == shown, field.encode_name


def test_phases_and_metrics_are_listed() -> None:
    assert re.findall(r"`(\w+)`", section("server").split("Phases:")[1].split("\n\n")[0]) == list(PHASES)
    listed = re.findall(r"`(\w+)`", section("gate").split("Metrics:")[1])
    assert sorted(listed) == sorted(METRICS)


def test_the_site_file_is_documented() -> None:
    keys = set(rows(section("gpuserve.local.yaml"), "key"))
    engine = {f"engines.<name>.{f.encode_name}" for f in structs.fields(site._EngineSpec)}
    top = {f.encode_name for f in structs.fields(site._SiteSpec)}
    assert keys == engine | {"models.<id>", "leases"}
    assert top == {"engines", "models", "leases"}


def test_the_examples_load(load: Load) -> None:
    smallest = section("The smallest suite").split("    # yaml-language-server", 1)[1].split("\n\n", 1)[0]
    assert [case.id for case in load(dedent("    #" + smallest)).cases()] == ["no-spec-decode"]
    readme = re.findall(r"```yaml\n(# suites/.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [load(text).name for text in readme] == ["s"]
