"""A case, its host, and baselines of known figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve.gate.baseline import Baseline, HostIdentity, Measured, Reported
from pytest_gpuserve.gate.match import workload_identity
from pytest_gpuserve.model import (
    Case,
    Config,
    EngineBuild,
    Gate,
    Host,
    Launches,
    Lengths,
    ModelRef,
    Place,
    Workload,
)
from pytest_gpuserve.record import METRIC_DEFINITION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORKLOAD = Workload(
    name="decode",
    concurrency=1,
    requests=4,
    input_tokens=Lengths(mean=128),
    output_tokens=Lengths(mean=512),
)
CONFIG = Config(
    id="no-spec",
    place=Place("suites/kimi_k2_5.yaml", 20),
    engine="sglang",
    model=ModelRef(id="moonshotai/Kimi-K2.5"),
    args={"tp-size": 8},
)


STEADY = (89.2, 90.1, 89.6, 88.9, 89.9, 89.3, 90.0, 89.1)
"""Eight launches around 89.5 tok/s, with a standard deviation of 0.5 %."""


@pytest.fixture
def host() -> Host:
    return Host(
        profile="rtx-pro-6000-blackwell-x8",
        product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        count=8,
        compute_capability="12.0",
        topology="pcie",
        driver="580.95.05",
        memory_gib=96,
    )


@pytest.fixture
def engine() -> EngineBuild:
    return EngineBuild(name="sglang", version="0.5.15")


@pytest.fixture
def make_case() -> Callable[..., Case]:
    def make(
        *,
        gate: Gate | None = None,
        launches: Launches | None = None,
        workload: dict[str, Any] | None = None,
        **config: Any,
    ) -> Case:
        return Case(
            suite="kimi_k2_5",
            config=msgspec.structs.replace(CONFIG, gate=gate or Gate(), **config),
            workload=msgspec.structs.replace(WORKLOAD, **(workload or {})),
            launches=launches or Launches(),
        )

    return make


@pytest.fixture
def make_baseline(host: Host) -> Callable[..., Baseline]:
    def make(means: Sequence[float] = STEADY, **changes: Any) -> Baseline:
        found = Baseline(
            case="no-spec-decode",
            place=Place("baselines/rtx-pro-6000-blackwell-x8/kimi_k2_5.yaml", 5),
            host=HostIdentity(product=host.product, count=8, topology="pcie"),
            model="moonshotai/Kimi-K2.5",
            workload=workload_identity(WORKLOAD),
            measured=Measured(
                date="2026-11-01T10:00:00+00:00",
                definition=METRIC_DEFINITION,
                engine="sglang",
                version="0.5.15",
                build="stock",
                driver="580.95.05",
                args={"tp-size": 8},
            ),
            rounds={
                "output_throughput": [[mean] * 3 for mean in means],
                "tpot_ms": [[1000 / mean] * 3 for mean in means],
            },
        )
        return msgspec.structs.replace(found, **changes)

    return make


@pytest.fixture
def reported(make_baseline: Callable[..., Baseline]) -> Baseline:
    return make_baseline(
        measured=None,
        rounds={},
        workload=None,
        model=None,
        reported=Reported(source="a forum", metric="output_throughput", value=89.5, workload="one stream"),
    )
