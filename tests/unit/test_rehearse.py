"""What of a cheap start counts as what; the starts themselves are in tests/integration/test_check_start.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_gpuserve.engines.base import Rehearsal
from pytest_gpuserve.errors import CaseError, Inert, StartFailed
from pytest_gpuserve.model import ActiveIf, Config, DeadEnd, Match, ModelRef, Place
from pytest_gpuserve.record import Failure
from pytest_gpuserve.session import rehearse
from pytest_gpuserve.session.rehearsal_text import as_text
from pytest_gpuserve.session.rehearse import Start

if TYPE_CHECKING:
    from pytest_gpuserve.session.rehearse import Outcome

PLACE = Place("suites/s.yaml", 7)
END = DeadEnd(kind="start", reason="no kernel", place=PLACE, match=(Match(exception="KeyError"),))
KEY_ERROR = Failure(failure_class="software_bug", phase="comm_init", exception="KeyError", message="12")
BUSY = Failure(failure_class="gpu_busy", message="taken", environment=True)


def start(outcome: Outcome = "skipped", **changes: Any) -> Start:
    made = Start(suite="s", config="c", place="suites/s.yaml:7", outcome=outcome, text="told")
    return msgspec.structs.replace(made, **changes)


def judged(end: DeadEnd | None, error: CaseError | None, **config: Any) -> Start:
    made = Config(id="c", place=PLACE, engine="sglang", model=ModelRef(id="m"), args={}, **config)
    return rehearse._judged(start(), Rehearsal(config=made, changes=()), end, error)


@pytest.mark.parametrize(
    ("end", "error", "outcome"),
    [
        (END, StartFailed("x", failure=KEY_ERROR), "confirmed"),
        (END, StartFailed("x", failure=BUSY), "failed"),
        (END, Inert("the path was not taken"), "changed"),
        (END, None, "open"),
        (msgspec.structs.replace(END, kind="inert", match=()), Inert("off"), "confirmed"),
        (
            msgspec.structs.replace(END, kind="inert", match=()),
            StartFailed("x", failure=KEY_ERROR),
            "changed",
        ),
        (None, None, "starts"),
        (None, StartFailed("x", failure=KEY_ERROR), "failed"),
    ],
)
def test_an_end_is_held_against_what_is_documented(
    end: DeadEnd | None, error: CaseError | None, outcome: str
) -> None:
    assert judged(end, error).outcome == outcome


def test_an_inert_path_is_taken_only_with_a_proof() -> None:
    inert = msgspec.structs.replace(END, kind="inert", match=(), inert_log="off")
    assert "its path is taken" in judged(inert, None, active_if=ActiveIf(log="on")).text
    assert "does not say that the path is off" in judged(inert, None).text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"phases": frozenset({"warmup", "serving"})}, ""),
        ({"phases": frozenset({"serving"})}, "after the start"),
        ({"kind": "garbage"}, "under load"),
        ({"run": False}, "never started"),
    ],
)
def test_what_a_cheap_start_would_not_show(changes: dict[str, Any], why: str) -> None:
    told = rehearse._pointless(msgspec.structs.replace(END, **changes), False)
    assert bool(told) is bool(why)
    assert why in told


def test_a_lack_of_memory_needs_every_layer() -> None:
    memory = msgspec.structs.replace(END, match=(Match(failure_class=("oom_gpu",)),))
    assert rehearse._about_memory(memory)
    assert not rehearse._about_memory(END)


def test_what_is_left_behind_is_bad_whatever_the_outcome() -> None:
    left = start("confirmed", left="process 7")
    assert left.bad
    assert not start("confirmed").bad
    assert "and then process 7" in as_text([left], quiet=True)
    assert as_text([start("confirmed"), start()], quiet=True) == "0 started: 1 confirmed, 1 skipped\n"


def test_without_any_dead_end_it_says_so() -> None:
    assert as_text([]) == "0 started: nothing is documented of any start\n"
