"""The engine that docs/engines.md shows, taken from the page and used."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from pytest_gpuserve.engines.base import Engine, Site
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import Config, Lengths, ModelRef, Place, Workload

PAGE = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()


def example() -> Any:
    code = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert code is not None
    space: dict[str, Any] = {}
    exec(textwrap.dedent(code[1]), space)
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


def test_every_member_is_described() -> None:
    for name in members():
        assert re.search(rf"`{name}[`(]", PAGE), name
