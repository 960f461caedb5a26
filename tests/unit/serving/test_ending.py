"""Who belongs to a launch, and in what order it is ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.serving import ending, processes
from pytest_gpuserve.serving.ending import Ending, Household, grace_end, port_left
from pytest_gpuserve.serving.processes import NONCE_VARIABLE, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

NONCE = uuid.uuid4().hex


def now() -> int:
    """Clock ticks since boot."""
    with open("/proc/uptime") as file:  # noqa: PTH123
        return int(float(file.read().split()[0]) * os.sysconf("SC_CLK_TCK"))


@pytest.fixture
def strangers() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """None of them descends from the keeper, which is a process that starts nothing."""
    began = {
        "keeper": subprocess.Popen(["sleep", "60"]),
        "carrier": subprocess.Popen(["sleep", "60"], env={NONCE_VARIABLE: NONCE}),
        "session": subprocess.Popen(["sleep", "60"], start_new_session=True),
        "bystander": subprocess.Popen(["sleep", "60"]),
    }
    yield began
    for process in began.values():
        process.kill()
        process.wait()


def test_the_launch_is_its_session_and_who_carries_the_nonce(
    strangers: dict[str, subprocess.Popen[bytes]],
) -> None:
    pids = {name: process.pid for name, process in strangers.items()}
    household = Household(keeper=pids["keeper"], parent=pids["session"], nonce=NONCE, since=now() - 1000)
    assert {p.pid for p in household.members()} == {pids["carrier"], pids["session"]}
    old = Household(keeper=pids["keeper"], parent=pids["session"], nonce=NONCE, since=now() + 1000)
    assert old.members() == []


def test_descendants_belong_and_the_keeper_does_not() -> None:
    child = subprocess.Popen(["sleep", "60"])
    found = {p.pid for p in Household(keeper=os.getpid(), parent=None, nonce=NONCE, since=0).members()}
    assert child.pid in found
    assert os.getpid() not in found
    child.kill()
    while (zombie := processes.read(child.pid)) is not None and not zombie.gone:
        time.sleep(0.01)
    found = {p.pid for p in Household(keeper=os.getpid(), parent=None, nonce=NONCE, since=0).members()}
    assert child.pid not in found, "a zombie is gone"
    child.wait()


@pytest.mark.parametrize(
    ("grace", "driver_gone", "end"),
    [
        (60.0, None, 160.0),
        (60.0, 90.0, 105.0),  # nobody waits for a drain
        (60.0, 130.0, 135.0),
        (60.0, 159.0, 160.0),
        (3.0, 90.0, 103.0),
        (0.0, 90.0, 100.0),
    ],
)
def test_the_grace_is_short_when_pytest_is_gone(grace: float, driver_gone: float | None, end: float) -> None:
    assert grace_end(100.0, grace, driver_gone) == end


class Family(Household):
    """Made-up processes, which end when a signal that they heed has reached them."""

    def __init__(self, heeds: dict[int, set[int]], parent: int) -> None:
        super().__init__(keeper=1, parent=parent, nonce=NONCE, since=0)
        self.heeds = heeds
        self.sent: list[tuple[int, int]] = []

    def members(self) -> list[Process]:
        return [Process(pid, 1, 1, 1, "S", 0) for pid in self.heeds]

    def send(self, process: Process, number: int) -> bool:
        self.signal(process.pid, number)
        return True

    def signal(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))
        if number in self.heeds.get(pid, set()):
            del self.heeds[pid]


def end(family: Family, monkeypatch: pytest.MonkeyPatch, grace: float = 0.2) -> list[int]:
    monkeypatch.setattr(os, "kill", family.signal)
    monkeypatch.setattr(processes, "send", family.send)
    monkeypatch.setattr(ending, "KILL_PATIENCE_S", 0.2)
    left = Ending(
        family,
        grace=grace,
        wait=lambda seconds: time.sleep(min(seconds, 0.01)),
        hurry=lambda: float("inf"),
        parent_lives=lambda: family.parent in family.heeds,
        look=lambda: None,
    ).run()
    return [process.pid for process in left]


TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_an_obedient_family_is_asked_once_the_parent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family({10: {TERM, KILL}, 11: {TERM, KILL}, 12: {TERM, KILL}}, parent=10)
    assert end(family, monkeypatch) == []
    assert family.sent == [(10, TERM), (11, TERM), (12, TERM)]


def test_the_deaf_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family({10: {KILL}, 11: {TERM, KILL}, 12: {KILL}}, parent=10)
    assert end(family, monkeypatch) == []
    assert family.sent == [(10, TERM), (10, TERM), (11, TERM), (12, TERM), (10, KILL), (12, KILL)]


def test_what_even_force_does_not_end_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family({10: {TERM}, 11: set()}, parent=10)
    assert end(family, monkeypatch) == [11]


def test_a_listener_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "PORT_PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port_left(port, time.sleep).startswith(f"port {port} is still listened on by {os.getpid()} (")
    assert port_left(port, time.sleep) == ""
    assert port_left(None, time.sleep) == ""
