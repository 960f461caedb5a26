"""The engine that docs/engines.md shows, taken from the page and used."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpuserve.engines import llamacpp, llamacpp_server, tiny_model
from pytest_gpuserve.engines.base import Engine, Site
from pytest_gpuserve.engines.registry import GROUP, find
from pytest_gpuserve.failures.classify import Classifier
from pytest_gpuserve.failures.rules import rule_set
from pytest_gpuserve.host.site import load_site
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload

if TYPE_CHECKING:
    import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "engines.md").read_text()


def shown(language: str, first_line: str) -> str:
    """The page's block that begins so."""
    blocks = (
        textwrap.dedent(code) for code in re.findall(rf"^( *```{language}\n.*?)^ *```$", PAGE, re.S | re.M)
    )
    (found,) = [code.partition("\n")[2] for code in blocks if code.partition("\n")[2].startswith(first_line)]
    return found


def example() -> Any:
    space: dict[str, Any] = {}
    exec(shown("python", "# my_package/my_engine.py"), space)
    return space["MyEngine"]()


def members() -> set[str]:
    return {name for name in (*Engine.__annotations__, *vars(Engine)) if not name.startswith("_")}


def test_the_example_has_all_that_an_engine_needs() -> None:
    assert {name for name in members() if not hasattr(example(), name)} == set()


def test_the_example_can_be_asked() -> None:
    config = Config(
        id="c", place=Place("s", 1), engine="my-engine", model=ModelRef(id="m"), args={"fast": True}
    )
    workload = Workload(name="w", input_tokens=Lengths(mean=1), output_tokens=Lengths(mean=1))
    command = example().command(config, Site(python="python"), Target(host="127.0.0.1", port=5), (0, 1))
    assert command.argv == ("python", "-m", "my_engine", "m", "--port", "5", "--fast")
    assert command.env == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert example().api(config, workload).token_ids


def test_the_example_is_found_when_its_files_are_where_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, installed = tmp_path / "my_package", tmp_path / "my_package-1.dist-info"
    package.mkdir()
    installed.mkdir()
    (package / "__init__.py").touch()
    (package / "my_engine.py").write_text(shown("python", "# my_package/my_engine.py"))
    (package / "failures.yaml").write_text(shown("yaml", "# my_package/failures.yaml"))
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    points = tomllib.loads(shown("toml", "[project.entry-points"))["project"]["entry-points"]
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points[GROUP].items())]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)

    engine = find("my-engine")
    assert engine.name == "my-engine"
    log = ["Loading weights", "Traceback (most recent call last):", '  File "a.py", line 1, in f']
    classifier = Classifier(engine.phases, (engine.rules(),), engine="my-engine")  # type: ignore[arg-type]
    for line in (*log, "my_engine.OptionError: unknown option --fats"):
        classifier.feed(line)
    failure = classifier.finish(1)
    assert failure is not None
    assert (failure.failure_class, failure.phase) == ("config_invalid", "weights_load")


def test_the_rule_shown_under_failures_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    page = (DOCS / "failures.md").read_text()
    code = re.search(r"```yaml\n(rules:.*?)```", page, re.S)
    assert code is not None
    (tmp_path / "rules.yaml").write_text(code[1])
    first = next(iter(rule_set((tmp_path / "rules.yaml",))))
    assert (first.cls, first.phase) == ("hw_resource", "first_forward")


def test_the_page_says_how_the_embedded_server_is_chosen_and_started(tmp_path: Path) -> None:
    file = tmp_path / "gpuserve.local.yaml"
    blocks = re.findall(r"```yaml\n(# gpuserve.local.yaml\nengines:\n  llamacpp:.*?)```", PAGE, re.S)
    file.write_text(blocks[0])
    local = load_site(tmp_path, engines=("llamacpp",)).engine("llamacpp")
    assert llamacpp.program(Site(python="python", options=local.options)) is None
    start = re.search(r"-m pytest_gpuserve.engines.llamacpp_server (.*?)```", PAGE, re.S)
    assert start is not None
    given = dict(llamacpp_server.settings(shlex.split(start[1].replace("\\\n", " "))))
    assert given["port"] == 31877 and given["endpoint_metrics"] is True
    made = f"{tiny_model.folder.__module__} import folder; print(folder('gpuserve-small'))"
    assert made in PAGE
    assert given["model.path"].endswith(f"/gpuserve-small-{tiny_model.EDITION}/{tiny_model.GGUF}")


def test_every_member_is_described() -> None:
    for name in members():
        assert re.search(rf"`{name}[`(]", PAGE), name
