"""Whatever a log holds, it is read: no line, no order of lines and no cut makes the classifier fail."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from pytest_gpuserve.failures.classes import classes
from pytest_gpuserve.failures.classify import Classifier, classify_file
from pytest_gpuserve.model import PHASES

CORPUS = Path(__file__).parents[2] / "corpus"
LINES = [
    line
    for file in sorted((CORPUS / "g1").glob("*.yaml"))
    for line in yaml.safe_load(file.read_text(encoding="utf-8"))["log"].split("\n")
]


@pytest.mark.parametrize("seed", range(40))
def test_lines_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    lines = chance.choices(LINES, k=400)
    if seed % 2:
        lines = [
            line[: chance.randrange(len(line) + 1)] + chance.choice(["", "\r", "\x00", "é"]) for line in lines
        ]
    classifier = Classifier(engine=chance.choice([None, "sglang", "vllm", "nobody's"]))
    for line in lines:
        classifier.feed(line)
    failure = classifier.finish(chance.choice([None, 0, 1, -9, 137, 255, -64]), timed_out=bool(seed % 3))
    if failure is not None:
        assert failure.failure_class in classes()
        assert failure.phase in (None, *PHASES)
        assert failure.line is None or 1 <= failure.line <= len(lines)
        assert len(failure.excerpt) < 20_000


@pytest.mark.parametrize("seed", range(10))
def test_bytes_that_are_no_text(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = tmp_path / "x.log"
    log.write_bytes(b"Traceback (most recent call last):\n" + chance.randbytes(20_000) + b"\nKeyError: 12")
    classify_file(log)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\r\r", b"no end", b"Traceback (most recent call last):"])
def test_next_to_nothing(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(content)
    assert classify_file(log) is None
