"""Time limits, as they are and compressed."""

from __future__ import annotations

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.serving.limits import FLOOR_S, SHUTDOWN_FLOOR_S, Limits

ENGINE = {"weights_load": 1800.0, "warmup": 600.0, "shutdown": 60.0}


def test_the_suite_overrides_the_engine() -> None:
    limits = Limits(ENGINE, {"weights_load": 30.0, "shutdown": 3.0}, Site(python="p"))  # type: ignore[arg-type]
    assert limits.phases == {"weights_load": 30.0, "warmup": 600.0}
    assert limits.shutdown == 3.0
    assert limits.reported(12.0) == 12.0


def test_compressed_time_compresses_limits_down_to_what_a_machine_needs() -> None:
    site = Site(python="p", startup_scale=1 / 200, time_scale=1 / 20)
    limits = Limits({**ENGINE, "download": 7200.0}, {"weights_load": 5.0, "shutdown": 3.0}, site)  # type: ignore[arg-type]
    assert limits.phases["download"] == 36.0
    assert limits.phases["warmup"] == FLOOR_S
    assert limits.phases["weights_load"] == 5.0
    assert limits.shutdown == 3.0
    assert Limits(ENGINE, {}, site).shutdown == SHUTDOWN_FLOOR_S  # type: ignore[arg-type]


def test_reported_times_are_scaled_back_by_the_scale_of_their_phase() -> None:
    site = Site(python="p", startup_scale=1 / 200, time_scale=1 / 20)
    limits = Limits({}, {}, site)
    assert round(limits.reported(1.0, "weights_load")) == 200
    assert round(limits.reported(1.0, "serving")) == 20
