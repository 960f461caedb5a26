"""The test that every case gets. `collect.SuiteFile` presents this module as the content of a suite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .collect import CaseRun


def test_serving(gpuserve_case: CaseRun) -> None:
    """Start the engine, drive the workload, hold the figures against the baseline."""
    __tracebackhide__ = True
    gpuserve_case.verify()
