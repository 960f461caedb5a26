"""Records as runs leave them: the founding story on the simulated host, and a few on a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuserve.model import EngineBuild, Host, Place
from pytest_gpuserve.record import (
    Comparison,
    Failure,
    Launch,
    Metrics,
    Record,
    Requests,
    Round,
    Spread,
    Verdict,
)

BLACKWELL = Host(
    profile="rtx-pro-6000-blackwell-x8",
    product="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    count=8,
    compute_capability="12.0",
    topology="pcie",
    driver="580.95",
    memory_gib=95.6,
    simulated=True,
)
H200 = Host(
    profile="h200-x1",
    product="NVIDIA H200",
    count=1,
    compute_capability="9.0",
    topology="single",
    driver="570.86",
    memory_gib=139.8,
)
WORKLOAD = {"name": "decode", "concurrency": 1, "requests": 4, "rounds": 3}


def spread(p50: float) -> Spread:
    return Spread(mean=p50, p50=p50, p90=p50 * 1.1, p99=p50 * 1.3, n=4)


def round_(rate: float, *, accept: float | None = None, **extra: Any) -> Round:
    metrics = Metrics(
        output_throughput=rate, tpot_ms=spread(1000 / rate), ttft_ms=spread(180.0), accept_length=accept
    )
    return Round(duration_s=22.9, requests=Requests(ok=4, output_tokens=2048), metrics=metrics, **extra)


def launch(*rates: float, accept: float | None = None, **extra: Any) -> Launch:
    return Launch(
        started="2026-11-29T17:00:00+00:00",
        ready_s=412.0,
        log="logs/kimi_k2_5--no-spec-0.log",
        rounds=[round_(rate, accept=accept) for rate in rates],
        **extra,
    )


def comparison(
    value: float,
    reference: float,
    *,
    metric: str = "output_throughput",
    against: str = "baseline",
    decision: str = "ok",
    interval: tuple[float, float] | None = None,
) -> Comparison:
    low, high = interval or (None, None)
    return Comparison(
        metric=metric,
        against=against,
        reference=reference,
        value=value,
        ratio=value / reference,
        low=low,
        high=high,
        decision=decision,
        text=f"{metric} {value} against {reference}",
    )


def record(config: str, verdict: Verdict, *, line: int = 10, host: Host = BLACKWELL, **extra: Any) -> Record:
    build = (
        EngineBuild(name="sglang", version="0.5.10", build="patched")
        if host.simulated
        else EngineBuild(name="sglang", version="0.5.15")
    )
    facts: dict[str, Any] = {
        "suite": "kimi_k2_5",
        "case": f"{config}-decode",
        "config": config,
        "workload": "decode",
        "host": host,
        "engine": build,
        "simulated": host.simulated,
        "verdict": verdict,
        "started": f"2026-11-29T17:{line:02d}:00+00:00",
        "model": "moonshotai/Kimi-K2.5",
        "workload_spec": WORKLOAD,
        "args": {"tp-size": 8},
    }
    facts |= extra
    facts.setdefault("nodeid", f"suites/{facts['suite']}.yaml::test_serving[{facts['case']}]")
    facts.setdefault("place", Place(f"suites/{facts['suite']}.yaml", line))
    return Record(**facts)


@pytest.fixture
def made() -> SimpleNamespace:
    """The functions that make records, for tests that need one of their own."""
    return SimpleNamespace(
        record=record, launch=launch, round=round_, comparison=comparison, h200=H200, blackwell=BLACKWELL
    )


@pytest.fixture
def story() -> list[Record]:
    """The founding story: one good case, three dead ends, a hypothesis that is skipped."""
    return [
        record(
            "no-spec",
            Verdict.OK,
            line=31,
            outcome="passed",
            launches=[launch(90.1, 90.3, 90.2)],
            comparisons=[comparison(90.2, 89.5, against="reported")],
        ),
        record(
            "eagle3",
            Verdict.DEAD_END,
            line=38,
            outcome="xfailed",
            reason="122 NCCL all-reduces of about 200 us in each verify pass, 24.4 ms of communication",
            dead_end_kind="slower",
            compare_to="no-spec",
            launches=[launch(54.0, 54.1, 54.2, accept=2.31)],
            comparisons=[
                comparison(54.1, 90.2, against="partner", decision="worse", interval=(0.591, 0.609)),
                comparison(54.1, 54.1, against="expect"),
            ],
            way_out="an all-reduce that does not go through NCCL: pcie-ipc-allreduce",
        ),
        record(
            "torch-symm-mem",
            Verdict.DEAD_END,
            line=55,
            outcome="xfailed",
            reason="torch symmetric memory has no table entry for compute capability 12",
            dead_end_kind="start",
            dead_end_entry="sglang-torch-symm-mem",
            launches=[launch()],
            failure=Failure(
                failure_class="hw_unsupported",
                phase="comm_init",
                exception="KeyError",
                message="12",
                rank=3,
                line=211,
                excerpt="KeyError: 12",
            ),
            way_out="SGLang 0.5.14 and later warn and stay on NCCL",
        ),
        record(
            "ep-deepep",
            Verdict.DEAD_END,
            line=70,
            outcome="xfailed",
            reason="DeepEP is not installed",
            dead_end_kind="missing",
            dead_end_entry="sglang-deepep",
            failure=Failure(
                failure_class="dependency_missing",
                phase="weights_load",
                exception="ImportError",
                message="DeepEP is not installed. Please install DeepEP package from\nhttps://github.com/...",
            ),
        ),
        record(
            "pcie-ipc-allreduce",
            Verdict.SKIPPED,
            line=80,
            outcome="skipped",
            engine=None,
            reason="needs sglang>=0.5.21, this is 0.5.10",
            hypothesis=True,
        ),
    ]


@pytest.fixture
def trouble() -> list[Record]:
    """A real host on a bad day."""
    real: dict[str, Any] = {"host": H200, "suite": "h200_smoke"}
    return [
        record(
            "no-spec",
            Verdict.REGRESSED,
            line=12,
            outcome="failed",
            text="regressed: output_throughput 82.4 tok/s, -7.9 % against the baseline's 89.5 tok/s\n"
            "  baseline: baselines/h200-x1/h200_smoke.yaml:14",
            launches=[launch(82.3, 82.5), launch(82.4, 82.4)],
            comparisons=[
                comparison(82.4, 89.5, decision="worse", interval=(0.905, 0.936)),
                comparison(12.14, 11.17, metric="tpot_ms", decision="worse", interval=(1.07, 1.10)),
            ],
            **real,
        ),
        record(
            "ngram",
            Verdict.INCONCLUSIVE,
            line=20,
            outcome="passed",
            text="inconclusive: 5 launches cannot tell a slowdown of 5 %",
            compare_to="no-spec",
            launches=[launch(101.0, 99.0, accept=1.62)],
            comparisons=[
                comparison(100.0, 104.0, decision="undecided", interval=(0.90, 1.02)),
                comparison(100.0, 82.4, against="partner", interval=(1.15, 1.28)),
            ],
            **real,
        ),
        record(
            "deepep",
            Verdict.DEAD_END_CHANGED,
            line=30,
            outcome="failed",
            text="RuntimeError: CUDA error: out of memory\ndocumented: ImportError DeepEP",
            reason="DeepEP is not installed",
            dead_end_kind="missing",
            dead_end_entry="sglang-deepep",
            launches=[launch()],
            failure=Failure(
                failure_class="oom_gpu",
                phase="weights_load",
                exception="RuntimeError",
                message="CUDA error: out of memory",
                excerpt="Traceback:\n  File x\nRuntimeError: CUDA error: out of memory",
            ),
            **real,
        ),
        record(
            "chunked",
            Verdict.CRASHED,
            line=40,
            outcome="failed",
            text="the server died while serving",
            launches=[launch(80.0, warnings=["GPU 0 was at 83 C"])],
            failure=Failure(
                failure_class="runtime_cuda_fault", phase="serving", message="device-side assert | `x`"
            ),
            **real,
        ),
        record(
            "flashinfer",
            Verdict.INVALID,
            line=50,
            outcome="failed",
            text="invalid: 2 of 4 requests failed (HTTP 503)",
            launches=[
                Launch(
                    started="2026-11-29T17:50:00+00:00",
                    rounds=[round_(300.0, invalid=["2 requests failed"], warnings=["client lag 12 ms"])] * 3,
                )
            ],
            **real,
        ),
        record(
            "ttft",
            Verdict.OK,
            line=60,
            outcome="passed",
            launches=[launch(88.0)],
            comparisons=[comparison(180.0, 182.0, metric="ttft_ms", interval=(0.97, 1.01))],
            **real,
        ),
        record(
            "ep-native",
            Verdict.MEASURED,
            line=70,
            outcome="passed",
            hypothesis=True,
            compare_to="no-spec",
            launches=[launch(91.0)],
            comparisons=[comparison(91.0, 82.4, against="partner", decision="note")],
            **real,
        ),
    ]
