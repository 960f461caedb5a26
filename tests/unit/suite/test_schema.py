from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pytest_gpuserve.suite.schema import SCHEMA_FILE, schema_text
from pytest_gpuserve.yaml_source import loads

from .conftest import SMALL
from .test_load import FULL

SUITES = sorted((Path(__file__).parents[3] / "suites").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> jsonschema.protocols.Validator:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def errors(validator: jsonschema.protocols.Validator, text: str) -> list[str]:
    return [error.json_path for error in validator.iter_errors(loads(text, "s.yaml").data)]


def test_the_file_is_fresh() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), "run: python -m pytest_gpuserve.suite.schema"


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_the_suites_here_are_valid(validator: jsonschema.protocols.Validator, path: Path) -> None:
    assert errors(validator, path.read_text()) == []
    assert path.read_text().startswith(
        "# yaml-language-server: $schema=../pytest_gpuserve/suite/schema.json\n"
    )


@pytest.mark.parametrize("text", [SMALL, FULL], ids=["small", "full"])
def test_what_the_loader_takes_is_valid(validator: jsonschema.protocols.Validator, text: str) -> None:
    assert errors(validator, text) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{}", "$"),
        (SMALL.replace("server:", "sever:"), "$"),
        (SMALL + "    compare-to: x", "$.configs[0]"),
        (SMALL + "    gate: outputs", "$.configs[0].gate"),
        (SMALL + "    env: {A: 1}", "$.configs[0].env.A"),
        (SMALL + "    args: {--tp-size: 8}", "$.configs[0].args"),
        (SMALL + "    timeouts: {weights_lod: 3}", "$.configs[0].timeouts"),
        (SMALL + "    timeouts: {weights_load: soon}", "$.configs[0].timeouts.weights_load"),
        (SMALL + "    xfail: {kind: slow, reason: r}", "$.configs[0].xfail"),
        (SMALL + "    xfail: {known: a, kind: slower}", "$.configs[0].xfail"),
        (SMALL + "    requires: {topology: nvlnk}", "$.configs[0].requires"),
        (SMALL + "tolerance: 15", "$.tolerance"),
        (SMALL.replace("decode:", "long-decode:"), "$.workloads"),
        (
            SMALL.replace("input_tokens: 128", "input_tokens: {unifrm: [1, 2]}"),
            "$.workloads.decode.input_tokens",
        ),
    ],
)
def test_an_editor_sees_mistakes(validator: jsonschema.protocols.Validator, text: str, path: str) -> None:
    assert path in errors(validator, text)
