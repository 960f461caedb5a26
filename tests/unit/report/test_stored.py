from __future__ import annotations

from pytest_gpuserve.gate.show import Stored
from pytest_gpuserve.report.stored import SCATTER_NOTE, tables

MEASURED = Stored(
    profile="h200-x1",
    suite="h200_smoke",
    case="no-spec-decode",
    source="measured 2026-11-29, sglang 0.5.15",
    launches=8,
    figures={"output_throughput": 512.4, "tpot_ms": 1.95},
    scatter={"output_throughput": 0.0061, "tpot_ms": 0.0058},
    tolerance=0.03,
    place="baselines/h200-x1/h200_smoke.yaml:4",
)
REPORTED = Stored(
    profile="rtx-pro-6000-blackwell-x8",
    suite="kimi_k2_5",
    case="no-spec-decode",
    source="reported: the founding story",
    launches=0,
    figures={"output_throughput": 89.5},
    scatter={"output_throughput": None},
    tolerance=None,
    place="baselines/rtx-pro-6000-blackwell-x8/kimi_k2_5.yaml:9",
)


def test_a_table_a_file_and_a_row_a_metric() -> None:
    measured, reported = tables([MEASURED, REPORTED])
    assert measured.title == "baselines of h200_smoke on h200-x1"
    assert measured.rows == (
        ("no-spec-decode", "output tok/s", "512.4", "8", "0.61%", "3%", "measured 2026-11-29, sglang 0.5.15"),
        ("", "TPOT ms", "1.95", "", "0.58%", "", ""),
    )
    assert measured.notes == (SCATTER_NOTE,)
    assert reported.rows == (
        ("no-spec-decode", "output tok/s", "89.5", "", "", "", "reported: the founding story"),
    )
    assert reported.notes == ()
