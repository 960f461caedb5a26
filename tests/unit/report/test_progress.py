from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pytest_gpuserve.report.progress import Progress

if TYPE_CHECKING:
    import pytest


def test_a_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    progress = Progress(seen.append)
    with caplog.at_level(logging.INFO, "pytest_gpuserve"):
        for text in ("weights_load", "weights_load", "ready", "weights_load"):
            progress.say(text)
    assert seen == caplog.messages == ["weights_load", "ready", "weights_load"]


def test_silence_still_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pytest_gpuserve"):
        Progress().say("100% of weights")
    assert caplog.messages == ["100% of weights"]


def test_what_is_urgent_is_shown_where_the_rest_is_not() -> None:
    seen: list[str] = []
    progress = Progress(None, seen.append)
    progress.say("weights_load")
    progress.tell("waiting for 8 GPUs")
    assert seen == ["waiting for 8 GPUs"]
    Progress(seen.append).tell("ready")
    assert seen[1:] == ["ready"]


def test_a_terminal_obeys_nothing_that_is_quoted() -> None:
    seen: list[str] = []
    Progress(seen.append).tell("held by 7 (\x1b[2Jsomebody)")
    assert seen == ["held by 7 (\\x1b[2Jsomebody)"]
