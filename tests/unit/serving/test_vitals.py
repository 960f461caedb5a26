"""Signs of a coming end."""

from __future__ import annotations

import os
import socket
import subprocess

from pytest_gpuserve.serving import processes
from pytest_gpuserve.serving.vitals import Vitals


def test_a_process_that_is_gone_is_told_once() -> None:
    child = subprocess.Popen(["sleep", "60"])
    found = processes.read(child.pid)
    assert found is not None
    me = processes.read(os.getpid())
    assert me is not None
    vitals = Vitals([(child.pid, found.started, "the child"), (me.pid, me.started, "me")], None)
    assert vitals.missing() == []
    child.kill()
    child.wait()
    assert vitals.missing() == ["the child"]
    assert vitals.missing() == []
    assert not vitals.closed()


def test_a_number_that_another_process_has_by_now_is_missing() -> None:
    me = processes.read(os.getpid())
    assert me is not None
    assert Vitals([(me.pid, me.started - 1, "who was here before")], None).missing() == [
        "who was here before"
    ]


def test_a_port_that_is_closed_is_told_once() -> None:
    me = (os.getpid(), 0, "me")
    server = socket.create_server(("127.0.0.1", 0))
    vitals = Vitals([me], server.getsockname()[1])
    assert not vitals.closed()
    server.close()
    assert vitals.closed()
    assert not vitals.closed()


def test_a_port_on_which_another_of_the_launch_goes_on_listening_is_not_closed() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    vitals = Vitals([(os.getpid(), 0, "me")], server.getsockname()[1])
    second = server.dup()
    server.close()
    assert not vitals.closed()
    second.close()


def test_a_port_that_was_closed_before_the_first_look() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert Vitals([(os.getpid(), 0, "me")], port).closed()
