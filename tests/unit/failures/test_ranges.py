from __future__ import annotations

import pytest

from pytest_gpuserve.failures.ranges import contains, disjoint, problem

WHEELS = (
    "0.5.7 0.5.8.post1 0.5.9 0.5.10.post1 0.5.11 0.5.13.post1 0.5.14 0.5.15.post1 0.5.16 0.5.19 0.5.21 0.5.22 "
    "0.5.23"
)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (">=0.5.7,<0.5.14", "0.5.7 0.5.8.post1 0.5.9 0.5.10.post1 0.5.11 0.5.13.post1"),
        (">=0.5.14", "0.5.14 0.5.15.post1 0.5.16 0.5.19 0.5.21 0.5.22 0.5.23"),
        (">=0.5.13,<0.5.22", "0.5.13.post1 0.5.14 0.5.15.post1 0.5.16 0.5.19 0.5.21"),
        ("==0.5.9", "0.5.9"),
        ("", WHEELS),
    ],
)
def test_wheels_lie_on_their_side(text: str, inside: str) -> None:
    assert " ".join(wheel for wheel in WHEELS.split() if contains(text, wheel)) == inside


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        ("0.5.13", True, False),
        ("0.5.13.post1", True, False),
        ("0.5.13.post2+cu130", True, False),
        ("0.5.13rc0", True, False),
        ("0.5.14rc1", False, True),
        ("0.5.14a0", False, True),
        ("0.5.14.dev12+gabc123", False, True),
        ("0.5.14", False, True),
        ("0.5.14.post1", False, True),
        ("0.5.14+cu130", False, True),
        ("0.6.0", False, True),
    ],
)
def test_every_version_is_on_one_side_of_a_bound(version: str, before: bool, after: bool) -> None:
    assert (contains(">=0.5.7,<0.5.14", version), contains(">=0.5.14", version)) == (before, after)


def test_what_is_no_version_is_in_no_range_but_the_open_one() -> None:
    assert not contains(">=0.5.7", "main")
    assert contains("", "main")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (">=0.5.7,<0.5.21", ">=0.5.21", True),
        (">=0.5.7,<0.5.21", ">=0.5.20", False),
        (">=0.5.21", "", False),
        ("<=0.6.18", ">0.6.18", True),
        ("<=0.6.18", ">=0.6.18", False),
        (">=9.0,<12.0", "==12.0", True),
        (">=12.0", "==12.0", False),
        ("==0.5.*", ">=0.6", False),
    ],
)
def test_ranges_without_a_version_in_common(one: str, other: str, expected: bool) -> None:
    assert disjoint(one, other) is disjoint(other, one) is expected


@pytest.mark.parametrize("text", ["", ">=0.5.7", ">=0.5.7,<0.5.14", "==0.5.9"])
def test_good_ranges(text: str) -> None:
    assert problem(text) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0.5.7", "no version range"),
        (">=0.5.7,<=0.5.13", "the upper bound is exclusive"),
        ("~=0.5.7", "is none of"),
        ("!=0.5.7", "is none of"),
        (">=banana", "no version range"),
    ],
)
def test_bad_ranges(text: str, told: str) -> None:
    assert told in str(problem(text))
