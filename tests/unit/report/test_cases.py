from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_gpuserve.record import Record, Verdict
from pytest_gpuserve.report import cases

if TYPE_CHECKING:
    from types import SimpleNamespace

STORY = """\
results on rtx-pro-6000-blackwell-x8, sglang 0.5.10 patched, simulated
case            verdict      output    baseline    change    TPOT    accept    launches  note
                              tok/s                            ms    length
--------------  ---------  --------  ----------  --------  ------  --------  ----------  -----------------------------
no-spec-decode  ok             90.2        89.5     +0.8%    11.1         -           1  against a reported figure,
                                                                                         unproven
eagle3-decode   dead-end       54.1           -         -    18.5      2.31           1  0.60x of no-spec [0.59, 0.61]
simulated: timed from a host profile, not measured on hardware.

documented dead ends on rtx-pro-6000-blackwell-x8, sglang 0.5.10 patched, simulated
case                   kind     phase         verdict    reason
---------------------  -------  ------------  ---------  --------------------------------------------------------------
eagle3-decode          slower                 dead-end   122 NCCL all-reduces of about 200 us in each verify pass, 24.4
                                                         ms of communication
                                                         seen: 0.60x of no-spec [0.59, 0.61]
                                                         way out: an all-reduce that does not go through NCCL:
                                                         pcie-ipc-allreduce

torch-symm-mem-decode  start    comm_init     dead-end   torch symmetric memory has no table entry for compute
                                                         capability 12
                                                         seen: KeyError: 12
                                                         way out: SGLang 0.5.14 and later warn and stay on NCCL
                                                         entry: sglang-torch-symm-mem

ep-deepep-decode       missing  weights_load  dead-end   DeepEP is not installed
                                                         seen: ImportError: DeepEP is not installed. Please install
                                                         DeepEP package from
                                                         entry: sglang-deepep

skipped on rtx-pro-6000-blackwell-x8, simulated
case                       what is missing
-------------------------  ------------------------------------
pcie-ipc-allreduce-decode  needs sglang>=0.5.21, this is 0.5.10
"""

TROUBLE = """\
results on h200-x1, sglang 0.5.15
case               verdict         output       baseline                 change    TPOT    accept    launches  note
                                    tok/s                                            ms    length
-----------------  ------------  --------  -------------  ---------------------  ------  --------  ----------  -----------------------------
no-spec-decode     regressed         82.4           89.5   -7.9% [-9.5%, -6.4%]    12.1         -           2  TPOT ms +8.7% [+7.0%, +10.0%]
ngram-decode       inconclusive     100.0          104.0  -3.8% [-10.0%, +2.0%]    10.0      1.62           1  see the warnings; 1.21x of
                                                                                                               no-spec [1.15, 1.28]
chunked-decode     crashed           80.0              -                      -    12.5         -           1  serving: device-side assert |
                                                                                                               `x`
flashinfer-decode  invalid              -              -                      -       -         -           1  invalid: 2 of 4 requests
                                                                                                               failed (HTTP 503)
ttft-decode        ok                88.0  TTFT ms 182.0   -1.1% [-3.0%, +1.0%]    11.4         -           1
ep-native-decode   measured          91.0              -                      -    11.0         -           1  1.10x of no-spec; hypothesis,
                                                                                                               not gated

documented dead ends on h200-x1, sglang 0.5.15
case           kind     phase         verdict           reason
-------------  -------  ------------  ----------------  ---------------------------------------------
deepep-decode  missing  weights_load  dead-end-changed  DeepEP is not installed
                                                        seen: RuntimeError: CUDA error: out of memory
                                                        entry: sglang-deepep

warnings on h200-x1, sglang 0.5.15
case               warning
-----------------  ------------------------------------------------------
ngram-decode       inconclusive: 5 launches cannot tell a slowdown of 5 %
chunked-decode     GPU 0 was at 83 C
flashinfer-decode  client lag 12 ms (3 times)
"""  # noqa: E501 - as it is seen


def drawn(records: list[Record], width: int) -> str:
    return "\n\n".join(f"{table.title}\n{table.text(width)}" for table in cases.tables(records)) + "\n"


def test_the_founding_story(story: list[Record]) -> None:
    assert drawn(story, 120) == STORY


def test_a_bad_day_on_a_real_host(trouble: list[Record]) -> None:
    assert drawn(trouble, 140) == TROUBLE


def test_simulated_rows_are_marked_beside_real_ones(story: list[Record], trouble: list[Record]) -> None:
    results, dead_ends, skipped, warnings = cases.tables([*story, *trouble])
    assert results.title == "results partly simulated"
    assert results.rows[0][0] == "kimi_k2_5::no-spec-decode (simulated)"
    assert results.rows[2][0] == "h200_smoke::no-spec-decode"
    assert dead_ends.title == "documented dead ends partly simulated"
    assert skipped.title == "skipped on rtx-pro-6000-blackwell-x8, simulated"
    assert warnings.title == "warnings on h200-x1, sglang 0.5.15"


def test_a_record_is_simulated_when_only_its_host_says_so(story: list[Record]) -> None:
    assert "simulated" in cases.tables([replace(story[0], simulated=False)])[0].title


def test_nothing_to_show() -> None:
    assert cases.tables([]) == []


def test_a_dead_end_that_opened_is_shown_with_its_figures(made: SimpleNamespace) -> None:
    record = made.record(
        "torch-symm-mem",
        Verdict.DEAD_END_OPEN,
        reason="KeyError: 12",
        dead_end_kind="start",
        launches=[made.launch(93.0)],
    )
    results, dead_ends = cases.tables([record])
    assert results.rows[0][1:3] == ("dead-end-open", "93.0")
    assert dead_ends.rows[0][:4] == ("torch-symm-mem-decode", "start", "", "dead-end-open")
    assert dead_ends.rows[0][5] == "it works, 93.0 tok/s"


def test_what_passed_with_something_to_say_is_a_warning(made: SimpleNamespace) -> None:
    improved = made.record(
        "x", Verdict.IMPROVED, text="improved: accept it with\n  gpuserve baselines accept"
    )
    assert cases.warnings_of(improved) == [improved.text]
    told = replace(improved, warnings=[improved.text, "accept length is exactly 1.00"])
    assert cases.warnings_of(told) == [improved.text, "accept length is exactly 1.00"]


def test_a_warning_of_the_case_is_not_repeated_for_its_launches(made: SimpleNamespace) -> None:
    launch = made.launch(90.0, warnings=["throttled"])
    record = made.record("x", Verdict.OK, launches=[launch, launch], warnings=["throttled"])
    assert cases.warnings_of(record) == ["throttled"]
    assert cases.warnings_of(replace(record, warnings=[])) == ["throttled (2 times)"]
