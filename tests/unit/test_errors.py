"""Texts of errors are for a terminal, whatever they quote."""

from __future__ import annotations

import pytest

from pytest_gpuserve.errors import CaseError, GpuserveError, SuiteError
from pytest_gpuserve.model import Place


@pytest.mark.parametrize("kind", [GpuserveError, SuiteError, CaseError])
def test_a_terminal_obeys_nothing_that_is_quoted(kind: type[GpuserveError]) -> None:
    assert str(kind("root error:\n\t\x1b[2J\x00 \x9b ü")) == "root error:\n\t\\x1b[2J\\x00 \\x9b ü"


def test_an_input_error_names_its_place() -> None:
    error = SuiteError("what is wrong", Place("s.yaml", 3))
    assert str(error) == "s.yaml:3: what is wrong"
    assert error.place == Place("s.yaml", 3)
