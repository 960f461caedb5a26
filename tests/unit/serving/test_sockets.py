"""Who listens, and whether one could."""

from __future__ import annotations

import errno
import os
import socket

from pytest_gpuserve.serving import sockets


def test_a_listener_and_its_process_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        inodes = sockets.listeners(port)
        assert len(inodes) == 1
        assert sockets.holders(inodes, [os.getpid(), 1]) == {os.getpid()}
        assert sockets.holders(inodes, []) == set()
    assert sockets.listeners(port) == set()


def test_a_connection_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        assert sockets.listeners(client.getsockname()[1]) == set()
        client.close()


def test_ipv6_listeners_count() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert sockets.holders(sockets.listeners(port), [os.getpid()]) == {os.getpid()}
        assert sockets.bind_error("::1", port) is not None


def test_a_taken_port_cannot_be_bound_whatever_the_address() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        error = sockets.bind_error("127.0.0.1", server.getsockname()[1])
    assert error is not None
    assert error.errno == errno.EADDRINUSE


def test_time_wait_is_no_obstacle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the server's side closes first, and waits
        client.close()
    assert sockets.bind_error("127.0.0.1", port) is None


def test_an_address_of_another_machine() -> None:
    error = sockets.bind_error("192.0.2.1", 1024)
    assert error is not None
