"""A server from lease to end, with the stand-in as its engine: ways to fail are told apart, and quickly."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.errors import Crashed, Stalled, StartFailed, StopFailed
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.serving import limits, readiness
from pytest_gpuserve.serving import server as server_module
from pytest_gpuserve.serving.lease import Leases

sys.path.append(str(Path(__file__).parent))  # the helpers beside this file are scripts, not a package
import stand_in_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_gpuserve.serving.server import Server

ALONE = {"alone": True}


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path / "leases", slots=2, environment={})


@pytest.fixture
def make(tmp_path: Path, leases: Leases) -> Iterator[Callable[..., Server]]:
    """Make servers that are stopped at the end, whatever the test did with them."""
    made: list[Server] = []

    def run(**options: Any) -> Server:
        made.append(stand_in_engine.server(tmp_path, leases, **{"args": ALONE, "count": 1, **options}))
        return made[-1]

    yield run
    for server in made:
        server.stop()


def failure_of(server: Server) -> StartFailed:
    server.start()
    with pytest.raises(StartFailed) as caught:
        server.wait_ready()
    return caught.value


# --- a good life ---


def test_a_whole_life(make: Callable[..., Server], leases: Leases) -> None:
    said: list[str] = []
    server = make(args={"after": 0.3}, say=said.append, count=2)
    assert not server.failed()
    server.start()
    server.wait_ready()
    server.check()
    assert not server.failed()
    facts = server.launch_facts()
    assert facts.ready_s is not None
    assert facts.ready_s >= 0.3
    assert [p.phase for p in facts.phases][:3] == ["import", "args", "weights_load"]
    assert facts.phases[-1].phase == "serving"
    assert facts.log == "logs/stand-in-1.log"
    assert facts.command[-2:] == ["--after", "0.3"]
    server.stop()
    assert server.report["status"] == 0
    assert server.report["survivors"] == []
    assert server.failed()
    server.stop()
    assert server.launch_facts().phases[-1].phase in ("serving", "shutdown")
    assert said[0].startswith("stand-in: started, pid ")
    assert "stand-in: weights_load" in said
    assert re.fullmatch(r"stand-in: ready in \d+ s", said[-1])
    leases.acquire(2, timeout_s=1).release()


def test_the_simulated_hosts_time_is_scaled_back(make: Callable[..., Server]) -> None:
    server = make(
        args=ALONE | {"after": 0.2}, site=Site(python=sys.executable, startup_scale=0.01, time_scale=0.1)
    )
    server.start()
    server.wait_ready()
    facts = server.launch_facts()
    assert facts.ready_s is not None
    assert facts.ready_s > 20
    assert next(p.seconds for p in facts.phases if p.phase == "weights_load") > 15


def test_a_server_that_was_never_started_stops(make: Callable[..., Server]) -> None:
    make().stop()


# --- a start that fails ---


def test_an_exit_in_the_start(make: Callable[..., Server]) -> None:
    error = failure_of(make(args={"mode": "exits"}))
    assert error.failure is not None
    assert (error.failure.exception, error.failure.message, error.failure.phase) == ("KeyError", "12", "args")
    first, *rest = str(error).splitlines()
    assert first == "stand-in: stand-in exited with status 1 in phase args"
    assert "root error (line 6): KeyError: 12" in rest
    assert re.search(r"^log: /.*/logs/stand-in-1\.log$", str(error), re.M)


def test_a_hopeless_start_is_ended_within_five_seconds(make: Callable[..., Server]) -> None:
    server = make(args={"mode": "hopeless", **ALONE})
    server.start()
    began = time.monotonic()
    with pytest.raises(
        StartFailed, match="cannot become ready after what its log says, and was stopped"
    ) as caught:
        server.wait_ready()
    assert time.monotonic() - began < 5
    assert caught.value.failure is not None
    assert caught.value.failure.exception == "KeyError"
    server.stop()
    assert server.report["seconds"] < 5


def test_a_phase_that_takes_too_long(make: Callable[..., Server]) -> None:
    server = make(args={"mode": "loads"}, timeouts={"weights_load": 0.5})
    error = failure_of(server)
    assert "exceeded the time limit of phase weights_load" in str(error)
    assert "(timeouts: weights_load)" in str(error)
    assert error.failure is not None
    assert (error.failure.failure_class, error.failure.phase) == ("hang_startup", "weights_load")
    stacks = Path(re.search(r"^stacks: (.*)$", str(error), re.M)[1])  # type: ignore[index]
    assert "stand_in.py" in stacks.read_text()


def test_a_log_that_falls_silent_in_a_phase_without_a_limit(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SILENCE_S", 0.5)
    monkeypatch.delitem(stand_in_engine.StandIn.timeouts, "weights_load")
    error = failure_of(make(args={"mode": "loads"}))
    assert "has written nothing to its log for" in str(error)


def test_an_engine_that_is_not_there(make: Callable[..., Server]) -> None:
    error = failure_of(make(site=Site(python="/no/such/python")))
    assert "could not be started: FileNotFoundError" in str(error)
    assert error.failure is not None
    assert error.failure.environment, "it says nothing of the engine, and is no dead end"


def test_a_variable_to_pass_on_that_is_missing(make: Callable[..., Server], leases: Leases) -> None:
    with pytest.raises(StartFailed, match="not set in the environment: NO_SUCH_TOKEN"):
        make(env_from=("NO_SUCH_TOKEN",)).start()
    leases.acquire(2, timeout_s=1).release()


def test_gpus_that_do_not_come_free(make: Callable[..., Server], leases: Leases) -> None:
    held = leases.acquire(2, what="somebody else")
    with pytest.raises(
        StartFailed, match=r"gave up after 0\.1 s of waiting for 1 slot.*somebody else"
    ) as caught:
        make(lease_timeout_s=0.1).start()
    held.release()
    assert caught.value.failure is not None
    assert (caught.value.failure.failure_class, caught.value.failure.environment) == ("gpu_busy", True)


# --- whose port ---


@pytest.fixture
def foreign() -> Iterator[int]:
    """A web server of ours that is nobody's engine."""
    from http.server import HTTPServer

    with HTTPServer(("127.0.0.1", 0), stand_in_engine_handler()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def stand_in_engine_handler() -> type:
    import stand_in

    return stand_in.Handler


def test_a_fixed_port_that_is_taken(make: Callable[..., Server], foreign: int) -> None:
    with pytest.raises(
        StartFailed, match=rf"port {foreign} on 127.0.0.1 is taken by pid {os.getpid()} "
    ) as caught:
        make(port=foreign).start()
    assert caught.value.failure is not None
    assert (caught.value.failure.failure_class, caught.value.failure.environment) == ("port_conflict", True)


def test_another_servers_answer_is_not_taken_for_ours(
    make: Callable[..., Server], foreign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang on a taken port says that it is ready. Here it is taken between the check and the start."""
    from pytest_gpuserve.serving import lease, sockets

    monkeypatch.setattr(lease, "port_taken", lambda host, port: "")
    monkeypatch.setattr(server_module, "FOREIGN_PATIENCE_S", 0.3)
    assert sockets.listeners(foreign)
    error = failure_of(make(args={"mode": "deluded", **ALONE}, port=foreign))
    assert f"port {foreign} is answered by another process: {os.getpid()} (" in str(error)
    assert error.failure is not None
    assert (error.failure.failure_class, error.failure.environment) == ("port_conflict", True)


def test_a_ready_line_without_a_listener_is_not_ready(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "READY_PATIENCE_S", 0.3)
    error = failure_of(make(args={"mode": "deluded", **ALONE}))
    assert "says that it is ready, but nothing listens on port" in str(error)


def test_an_engine_without_a_ready_line_may_take_its_time(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_in_engine.StandIn, "ready", "")
    monkeypatch.setattr(server_module, "READY_PATIENCE_S", 0.1)
    server = make(args={"after": 0.6, **ALONE})
    server.start()
    server.wait_ready()
    assert server.launch_facts().ready_s > 0.6  # type: ignore[operator]


def test_a_descendants_socket_is_ours(foreign: int) -> None:
    target = Target(host="127.0.0.1", port=foreign)
    assert readiness.ask(target, "/health", [os.getpid()]).state == "ready"
    assert readiness.ask(target, "/health", [os.getppid()]).state == "foreign"
    assert readiness.ask(target, "/health", []).state == "foreign"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
    gone = Target(host="127.0.0.1", port=port)
    assert readiness.ask(gone, "/health", [os.getpid()]).state == "not yet"


# --- while it serves ---


def test_a_death_while_serving_is_seen_at_once(make: Callable[..., Server]) -> None:
    server = make(args={"mode": "dies", "after": 0.5, **ALONE})
    server.start()
    server.wait_ready()
    began = time.monotonic()
    while not server.failed():
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    error = server.crash()
    assert isinstance(error, Crashed)
    assert "exited with status 1 in phase serving" in str(error)
    assert "KeyError: 12" in str(error)
    with pytest.raises(Crashed):
        server.check()


def until_failed(server: Server, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not server.failed() and time.monotonic() < end:
        time.sleep(0.05)
    return server.failed()


def kill_child(server: Server) -> None:
    found = re.search(r"plain=(\d+)", server.log.read_text())
    assert found is not None
    os.kill(int(found[1]), signal.SIGKILL)


def test_a_server_that_lingers_after_the_death_of_a_child_is_not_waited_for(
    make: Callable[..., Server],
) -> None:
    """SGLang's parent lives on for more than a minute, waiting for core dumps."""
    server = make(args={"mode": "lingers"})
    server.start()
    server.wait_ready()
    kill_child(server)
    assert until_failed(server, 15)
    error = server.crash()
    assert isinstance(error, Crashed)
    assert re.search(
        r"lost process \d+ \(.*stand_in\.py.* in phase serving, and says that it cannot", str(error)
    )
    assert "KeyError: 12" in str(error)


def test_a_process_that_ends_without_a_word_in_the_log_is_no_crash(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = stand_in_engine.Reader()
    monkeypatch.setattr(reader, "feed", lambda line: None)
    server = make(args={"mode": "lingers"}, classifier=reader)
    monkeypatch.setattr(stand_in_engine.StandIn, "ready", "fired up and ready to roll")
    server.start()
    server.wait_ready()
    kill_child(server)
    assert not until_failed(server, 2.5)
    assert server._supervised is not None
    assert len(server._supervised.missing) == 1


def test_a_server_that_closes_its_port_has_ended(make: Callable[..., Server]) -> None:
    """llama.cpp, told to end with a request in flight, closes its port and stays."""
    server = make(args={"mode": "closes", "after": 1.5, **ALONE})
    server.start()
    server.wait_ready()
    assert until_failed(server, 15)
    assert "no longer listens on its port" in str(server.crash())


def test_a_stall_comes_with_stacks(make: Callable[..., Server]) -> None:
    server = make()
    server.start()
    server.wait_ready()
    error = server.stall()
    assert isinstance(error, Stalled)
    assert error.failure is not None
    assert error.failure.failure_class == "hang_serving"
    assert "stand_in.py" in Path(re.search(r"^stacks: (.*)$", str(error), re.M)[1]).read_text()  # type: ignore[index]


def test_a_disk_that_fills_up(make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()
    server.start()
    server.wait_ready()
    assert server._supervised is not None
    server._supervised._note({"event": "disk", "free": 5 << 20})
    assert server.failed()
    error = server.crash()
    assert isinstance(error, Crashed)
    assert "the disk of its log is full, 5 MiB are free at " in str(error)
    assert error.failure is not None
    assert error.failure.environment


# --- the end ---


def test_what_cannot_be_ended_is_named(make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()
    server.start()
    supervised = server._supervised
    assert supervised is not None
    finish = supervised.finish

    def incomplete(grace: float, patience: float) -> dict[str, Any]:
        return finish(grace, patience) | {
            "survivors": ["7 (engine)"],
            "memory": "GPU 3 holds 900 MiB more than before",
        }

    monkeypatch.setattr(supervised, "finish", incomplete)
    with pytest.raises(
        StopFailed, match=r"left: process 7 \(engine\); GPU 3 holds 900 MiB more than before$"
    ):
        server.stop()


def test_an_interrupted_start_leaves_nothing(make: Callable[..., Server], leases: Leases) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(text: str) -> None:
        if "weights_load" in text:
            raise Interrupted

    server = make(args={"mode": "loads"}, say=interrupt)
    server.start()
    with pytest.raises(Interrupted):
        server.wait_ready()
    server.stop()
    assert server.report["survivors"] == []
    leases.acquire(2, timeout_s=1).release()


# --- secrets ---


def test_secrets_are_in_no_record(make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_TOKEN", "correct-horse-battery")
    monkeypatch.setenv("PLAIN_NAME", "staple-staple")
    server = make(
        args={"api-key": "key-of-the-suite", "mode": "serve", **ALONE},
        env={"NCCL_DEBUG": "INFO", "HF_HOME": "/models/staple-staple"},
        env_from=("PLAIN_NAME",),
    )
    error = failure_of(server)  # the stand-in refuses the flag, and says what it was given
    facts = server.launch_facts()
    assert facts.env["NCCL_DEBUG"] == "INFO"
    assert facts.env["HF_HOME"] == "/models/***"
    assert "--api-key" in facts.command
    everything = f"{facts} {error} {error.failure} {server.redact({'x': ['correct-horse-battery']})}"
    server.stop()
    log = server.log.read_text()
    assert "--api-key " + "*" * len("key-of-the-suite") in log
    for secret in ("correct-horse-battery", "staple-staple", "key-of-the-suite"):
        assert secret not in everything
        assert secret not in log
    assert server.target.headers == {"Authorization": "Bearer key-of-the-suite"}
