"""JSON Schema of suite files for editors, made from the structs: `python -m pytest_gpuserve.suite.schema`.

Writes `schema.json` beside this file: what editors can check while one types. `load_suite` checks more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def suite_schema() -> dict[str, Any]:
    """The schema as data."""
    import msgspec

    from ..written import DeadEndSpec
    from .spec import KnownDeadEnd, SuiteSpec

    (top, *_), components = msgspec.json.schema_components(
        [SuiteSpec, DeadEndSpec, KnownDeadEnd], ref_template="#/$defs/{name}"
    )
    suite = components.pop(top["$ref"].rsplit("/", 1)[1])
    suite |= {"title": "pytest-gpuserve suite", "required": ["workloads", "configs"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **suite,
        "$defs": {name: components[name] for name in sorted(components)},
    }


def schema_text() -> str:
    """The schema as it stands in the file."""
    return json.dumps(suite_schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
