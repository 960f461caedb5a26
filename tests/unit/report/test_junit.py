from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_gpuserve.report.junit import properties

if TYPE_CHECKING:
    from pytest_gpuserve.record import Record


def test_properties_are_flat_texts(story: list[Record]) -> None:
    found = dict(properties(story[1]))
    assert found["gpuserve_verdict"] == "dead-end"
    assert found["gpuserve_output_throughput"] == "54.1"
    assert found["gpuserve_accept_length"] == "2.31"
    assert found["gpuserve_simulated"] == "true"
    assert found["gpuserve_partner_ratio"] == "0.599778"
    assert found["gpuserve_dead_end_kind"] == "slower"
    assert "gpuserve_baseline" not in found
    for record in story:
        for name, value in properties(record):
            assert name.startswith("gpuserve_")
            assert type(value) is str
            assert "\n" not in value
            assert len(value) <= 300
