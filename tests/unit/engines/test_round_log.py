from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.engines.sglang import SGLang

if TYPE_CHECKING:
    from pathlib import Path

GRAPHS = {
    "0.5.9": "[2026-02-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes.",
    "0.5.15": "[2026-11-29 16:52:58 TP0] Capture target decode CUDA graph begin. backend=full",
    "verify": "[2026-11-29 16:21:53] Capture target verify CUDA graph begin. backend=full",
}
PREFILL_ONLY = "[2026-11-29 16:51:26 TP1] Capture target prefill CUDA graph begin. backend=breakable"
GOOD = (
    "[2026-11-29 16:53:33 TP0] Decode batch, #running-req: 1, #token: 161, token usage: 0.00, "
    "cuda graph: True, gen throughput (token/s): 502.62, #queue-req: 0"
)
WITHOUT_GRAPH = GOOD.replace("True", "False")
ON_THE_CPU = WITHOUT_GRAPH.replace("cuda graph", "cpu graph")
DRAFTS = "accept len: {}, accept rate: 0.33, cuda graph: True"


def read(
    folder: Path, before: list[str], during: list[str], after: list[str] | None = None
) -> tuple[list[str], ...]:
    log = folder / "log"
    parts = ["".join(f"{line}\n" for line in lines) for lines in (before, during, after or [])]
    log.write_text("".join(parts))
    start, end = len(parts[0].encode()), len((parts[0] + parts[1]).encode())
    return SGLang().round_warnings(log, start, end)


@pytest.mark.parametrize("capture", GRAPHS.values(), ids=GRAPHS)
def test_a_pass_without_its_graph_makes_a_round_invalid(tmp_path: Path, capture: str) -> None:
    invalid, warnings = read(tmp_path, [capture], [GOOD, WITHOUT_GRAPH, WITHOUT_GRAPH])
    assert len(invalid) == 1 and invalid[0].startswith("2 decode log lines say `cuda graph: False`")
    assert warnings == []


@pytest.mark.parametrize("before", [[], [PREFILL_ONLY]])
def test_where_no_decode_graph_was_captured_none_is_missing(tmp_path: Path, before: list[str]) -> None:
    assert read(tmp_path, before, [WITHOUT_GRAPH]) == ([], [])


def test_only_the_round_counts(tmp_path: Path) -> None:
    before, after = [GRAPHS["0.5.15"], WITHOUT_GRAPH], [WITHOUT_GRAPH]
    assert read(tmp_path, before, [GOOD], after) == ([], [])


def test_a_cpu_has_no_cuda_graphs(tmp_path: Path) -> None:
    assert read(tmp_path, [GRAPHS["0.5.15"]], [ON_THE_CPU]) == ([], [])


@pytest.mark.parametrize(("length", "warned"), [("1.00", True), ("1.01", False), ("2.31", False)])
def test_drafts_that_are_never_accepted_are_a_warning(tmp_path: Path, length: str, warned: bool) -> None:
    line = GOOD.replace("cuda graph: True", DRAFTS.format(length))
    invalid, warnings = read(tmp_path, [GRAPHS["verify"]], [line])
    assert (invalid, bool(warnings)) == ([], warned)


def test_retracted_requests_are_a_warning(tmp_path: Path) -> None:
    line = "[2026-04-14 02:00:10 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 4"
    assert read(tmp_path, [], [line]) == ([], ["requests were retracted 1 times: the KV cache is full"])
