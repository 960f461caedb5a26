from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve.gate.baseline_file import BaselineFile, read, write
from pytest_gpuserve.gate.match import NOT_MEASURED, changes, differences, lasting, workload_identity
from pytest_gpuserve.model import Gate, Lengths, Slo, Workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_gpuserve.gate.baseline import Baseline
    from pytest_gpuserve.model import Case, Host

PLAIN = Workload(
    name="decode", concurrency=1, requests=4, input_tokens=Lengths(mean=128), output_tokens=Lengths(mean=512)
)
RICH = Workload(
    name="chat",
    request_rate=2.5,
    arrival="constant",
    duration=60.0,
    input_tokens=Lengths(kind="uniform", low=16, high=2048),
    output_tokens=Lengths(kind="lognormal", mean=200.5, sigma=0.7, high=1024),
    dataset="prompts.jsonl",
    shared_prefix=0.5,
    cache="warm",
    api="chat",
    ignore_eos=False,
    temperature=0.7,
    seed=3,
    slo=Slo(ttft_ms=500.0),
)


def test_fields_at_their_default_are_left_out_so_that_a_new_field_changes_no_baseline() -> None:
    assert workload_identity(PLAIN) == {
        "concurrency": 1,
        "requests": 4,
        "input_tokens": 128,
        "output_tokens": 512,
    }


def test_what_only_makes_a_round_surer_or_stricter_is_left_out() -> None:
    assert {field.name for field in msgspec.structs.fields(Workload)} >= NOT_MEASURED
    other = msgspec.structs.replace(PLAIN, name="x", rounds=9, stall=1.0, prompt_tolerance=0.1)
    assert workload_identity(other) == workload_identity(PLAIN)


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": 2},
        {"requests": 5},
        {"input_tokens": Lengths(mean=129)},
        {"output_tokens": Lengths(kind="uniform", low=1, high=2)},
        {"cache": "warm"},
        {"seed": 1},
        {"temperature": 0.5},
        {"ignore_eos": False},
        {"shared_prefix": 0.1},
        {"api": "chat"},
        {"warmup": 2},
    ],
)
def test_what_changes_the_load_is_kept(change: dict[str, Any]) -> None:
    assert workload_identity(msgspec.structs.replace(PLAIN, **change)) != workload_identity(PLAIN)


@pytest.mark.parametrize("workload", [PLAIN, RICH], ids=["plain", "rich"])
def test_a_workload_is_the_same_after_it_went_through_a_file(
    tmp_path: Path,
    host: Host,
    make_case: Callable[..., Case],
    make_baseline: Callable[..., Baseline],
    workload: Workload,
) -> None:
    stored = make_baseline(workload=workload_identity(workload))
    path = tmp_path / "kimi_k2_5.yaml"
    write(path, BaselineFile(suite="kimi_k2_5", host=stored.host, cases={stored.case: stored}))
    case = msgspec.structs.replace(make_case(), workload=workload)
    assert differences(case, host, read(path).cases[stored.case]) == []


def test_an_slo_matters_when_goodput_is_gated(
    host: Host, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    stored = make_baseline()
    with_slo = {"slo": Slo(ttft_ms=500.0)}
    assert differences(make_case(workload=with_slo), host, stored) == []
    gated = make_case(workload=with_slo, gate=Gate(metrics=("goodput",)))
    (told,) = differences(gated, host, stored)
    assert told.startswith("workload slo: ")


def test_a_partner_may_serve_another_model(
    host: Host, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    other = make_baseline(model="another/Model")
    assert differences(make_case(), host, other)
    assert differences(make_case(), host, other, model=False) == []


def test_variables_that_say_where_a_run_found_things_are_left_out() -> None:
    env = {
        "NCCL_ALGO": "Ring",
        "CUDA_VISIBLE_DEVICES": "3",
        "HF_HOME": "/data",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
        "HF_TOKEN": "***",
        "SGLANG_SPEC": "1",
    }
    assert lasting(env) == {"NCCL_ALGO": "Ring", "SGLANG_SPEC": "1"}


def test_a_host_without_a_driver_is_as_it_was(
    host: Host, make_case: Callable[..., Case], make_baseline: Callable[..., Baseline]
) -> None:
    """A host without GPUs names no driver (an empty text), and a file has no key for what is empty."""
    stored = make_baseline()
    assert stored.measured is not None
    bare = msgspec.structs.replace(stored, measured=msgspec.structs.replace(stored.measured, driver=None))
    without = msgspec.structs.replace(host, driver="")
    assert changes(make_case(), without, None, [], bare) == []
    assert changes(make_case(), host, None, [], bare) == ["driver: 580.95.05, the baseline's unset"]
    assert changes(make_case(), without, None, [], stored) == ["driver: unset, the baseline's 580.95.05"]
