from __future__ import annotations

import re

import pytest

from pytest_gpuserve.failures.literals import cover, literals
from pytest_gpuserve.failures.phases import engines, table
from pytest_gpuserve.failures.rules import own_files, rule_set


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("hit an exception", ("hit an exception",)),
        ("^(Prefill|Decode) batch", (" batch",)),
        (r"\.target 'sm_\d+[af]?'", (".target 'sm_",)),
        ("No module named|Foo +bar", ("No module named", "Foo ")),
        ("colou?red", ("colo",)),
        ("abc*def", ("def",)),
        (r"a{0,3}bcd", ("bcd",)),
        ("x.*?yyyy", ("yyyy",)),
        (r"\[[^\]|]*\] is long", ("] is long",)),
        ("(?i)anything", None),
        ("long enough|no", None),
        (r"\d+", None),
    ],
)
def test_the_longest_text_that_must_be_there(pattern: str, expected: tuple[str, ...] | None) -> None:
    assert literals(pattern) == expected


def every_pattern() -> list[str]:
    found = [rule.pattern for rule in rule_set(own_files(None)) if rule.pattern]
    for engine in engines():
        found += [rule.pattern for rule in (*table(engine).lines, *table(engine).hindsight)]
        found += table(engine).fatal
    return found


SAMPLES = [
    "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
    "Rank 3 scheduler died during initialization (exit code: -9). If exit code is -9",
    "[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
    "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",
    "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4, 8]",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.",
    "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
    "Watchdog timeout (self.watchdog_timeout=300)",
    "Received sigquit from a child process. It usually means the child failed.",
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_pattern_never_fits_a_text_without_its_literals(sample: str) -> None:
    for pattern in every_pattern():
        needles = literals(pattern)
        if needles is not None and re.search(pattern, sample):
            assert any(needle in sample for needle in needles), pattern


def test_what_stems_cover_is_not_looked_for_again() -> None:
    assert cover(["an error occurred", "Xid (PCI", "fatal or worse"], ("rror",)) == (
        "rror",
        "Xid ",
        "fatal or worse",
    )


def test_a_pattern_without_plain_text_lets_every_line_through() -> None:
    assert cover([r"\d+"], ("rror",)) == ("",)


def test_every_rule_for_lines_can_be_dismissed_cheaply() -> None:
    rules = rule_set(own_files(None))
    assert [rule.pattern for rule in (*rules.lines, *rules.ends) if rule.needles is None] == []
