"""The pool: how often a config is launched, and what a bad end of one workload does to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.errors import Crashed, Inert, InputError, Invalid, StartFailed, StopFailed
from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import ActiveIf, Config, DeadEnd, Lengths, ModelRef, Place, Workload
from pytest_gpuserve.record import Launch, Round
from pytest_gpuserve.serving import pool as pool_module
from pytest_gpuserve.serving.pool import ConfigRun, Order, Pool, check_active

if TYPE_CHECKING:
    from pathlib import Path

HERE = Place("suites/s.yaml", 1)


def config(**more):
    return Config(id="c", place=HERE, engine="sglang", model=ModelRef(id="m"), args={}, **more)


def workload(name="decode", rounds=2):
    return Workload(
        name=name,
        concurrency=1,
        requests=1,
        input_tokens=Lengths(mean=8),
        output_tokens=Lengths(mean=8),
        rounds=rounds,
    )


class FakeServer:
    def __init__(self, log: Path, *, start_error=None, stop_error=None):
        self.target = Target(host="127.0.0.1", port=1)
        self.log = log
        self.start_error, self.stop_error = start_error, stop_error
        self.calls: list[str] = []

    def start(self):
        self.calls.append("start")

    def wait_ready(self):
        self.calls.append("wait_ready")
        if self.start_error:
            raise self.start_error

    def stop(self):
        self.calls.append("stop")
        if self.stop_error:
            raise self.stop_error

    def redact(self, data):
        return data

    def launch_facts(self):
        return Launch(started="2026-01-01T00:00:00+00:00")


class FakeEngine:
    def info(self, target):
        return {"version": "1"}


class Bench:
    """A pool over fake servers; `behaviour(launch, workload)` gives rounds or raises."""

    def __init__(self, tmp_path, monkeypatch, behaviour, **server):
        log = tmp_path / "server.log"
        log.write_text("ready\n")
        self.servers: list[FakeServer] = []

        def make(_suite, _config, _index):
            self.servers.append(FakeServer(log, **server))
            return self.servers[-1]

        class FakeMeasurement:
            def __init__(inner, server, engine, config, workload, site, *, folder, seed, say):
                inner.workload, inner.seed = workload, seed

            def rounds(inner):
                return behaviour(len(self.servers) - 1, inner.workload.name)

        monkeypatch.setattr(pool_module, "Measurement", FakeMeasurement)
        self.pool = Pool(make)

    def measure(self, workloads, *, least=1, most=5, undecided=lambda run: "", dead_end=None, **more):
        order = Order(
            config=config(**more),
            workloads=workloads,
            launches_min=least,
            launches_max=most,
            undecided=undecided,
            dead_end=dead_end,
        )
        return self.pool.measure("s", order, engine=FakeEngine(), site=None)


def fine(_launch, _workload):
    return [Round(duration_s=1.0)]


def test_one_launch_serves_every_workload_and_is_stopped(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine)
    run = bench.measure([workload("a"), workload("b")])
    assert [s.calls for s in bench.servers] == [["start", "wait_ready", "stop"]]
    assert {name: len(launches) for name, launches in run.launches.items()} == {"a": 1, "b": 1}
    assert run.stopped_because == "decided"
    assert run.launches["a"][0].server_info == {"version": "1"}


def test_a_launch_without_a_usable_round_is_the_last_of_its_workload(tmp_path, monkeypatch):
    """Its case is invalid whatever further launches say."""
    bad = Round(duration_s=1.0, invalid=["client saturated: ..."])

    def rounds(launch, name):
        return {"all": [bad, bad], "one": [bad, *fine(launch, name)]}.get(name, fine(launch, name))

    bench = Bench(tmp_path, monkeypatch, rounds)
    run = bench.measure([workload("all"), workload("one"), workload("none")], least=3)
    assert {name: len(found) for name, found in run.launches.items()} == {"all": 1, "one": 3, "none": 3}
    alone = Bench(tmp_path, monkeypatch, rounds)
    assert len(alone.measure([workload("all")], least=3).launches["all"]) == 1 and len(alone.servers) == 1


def test_an_invalid_workload_leaves_the_server_to_the_others(tmp_path, monkeypatch):
    def rounds(launch, name):
        if name == "a":
            raise Invalid("every warm-up request failed: no_done")
        return fine(launch, name)

    bench = Bench(tmp_path, monkeypatch, rounds)
    run = bench.measure([workload("a"), workload("b")])
    assert len(bench.servers) == 1 and len(run.launches["b"]) == 1
    assert isinstance(run.errors["a"], Invalid) and "b" not in run.errors


def test_a_config_is_measured_once(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine)
    assert bench.measure([workload()]) is bench.measure([workload()])
    assert len(bench.servers) == 1


def test_launches_go_on_while_a_case_is_undecided(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine)
    run = bench.measure(
        [workload()], undecided=lambda run: "noise" if len(run.launches["decode"]) < 3 else ""
    )
    assert len(run.launches["decode"]) == 3
    assert run.stopped_because == "decided"


def test_undecided_ends_at_the_maximum_and_says_so(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine)
    run = bench.measure([workload()], most=2, undecided=lambda run: "noise")
    assert len(run.launches["decode"]) == 2
    assert "most launches that a run may take (2): noise" in run.stopped_because


def test_a_start_that_fails_is_everybodys_and_is_not_repeated(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine, start_error=StartFailed("died"))
    run = bench.measure([workload("a"), workload("b")], least=3)
    assert set(run.errors) == {"a", "b"}
    assert [s.calls for s in bench.servers] == [["start", "wait_ready", "stop"]]
    assert len(run.launches["a"]) == 1, "the record keeps the facts of the launch that failed"


def test_a_crash_under_one_workload_leaves_the_others_a_launch_of_their_own(tmp_path, monkeypatch):
    def behaviour(_launch, name):
        if name == "b":
            raise Crashed("boom")
        return fine(_launch, name)

    bench = Bench(tmp_path, monkeypatch, behaviour)
    run = bench.measure([workload("a"), workload("b"), workload("c")], most=1)
    assert set(run.errors) == {"b"}
    assert len(run.launches["a"]) == 1
    assert len(run.launches["c"]) == 1
    assert len(bench.servers) == 2
    assert all(s.calls[-1] == "stop" for s in bench.servers)


def test_a_stop_that_fails_is_kept_for_the_config_that_owned_the_server(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine, stop_error=StopFailed("left a process"))
    run = bench.measure([workload()])
    assert run.errors == {}
    assert "left a process" in str(run.stop_error)


def test_the_server_is_stopped_when_ctrl_c_arrives_during_the_start(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine, start_error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.measure([workload()])
    assert bench.servers[0].calls[-1] == "stop"


def test_active_if_wants_its_line(tmp_path):
    log = tmp_path / "log"
    log.write_text("all-reduce enabled (workspace sized on first reduction)\n")
    wanting = config(active_if=ActiveIf(log="workspace built"))
    with pytest.raises(Inert, match="workspace built"):
        check_active(wanting, None, log)
    log.write_text("FlashInfer PCIe-IPC workspace built (world=8)\n")
    check_active(wanting, None, log)


def test_an_inert_dead_end_shows_its_line(tmp_path):
    end = DeadEnd(kind="inert", reason="off", place=HERE, inert_log="communicator is not available")
    log = tmp_path / "log"
    log.write_text("x\n[12:00] Device capability 12 not supported, communicator is not available.\n")
    with pytest.raises(Inert, match="Device capability 12"):
        check_active(config(), end, log)
    log.write_text("x\n")
    check_active(config(), end, log)  # it works now: nothing is raised, and the strict xfail says so


def test_open_leaves_out_what_has_ended():
    run = ConfigRun(errors={"a": Crashed("x")})
    assert [w.name for w in run.open([workload("a"), workload("b")])] == ["b"]


def test_what_cannot_be_started_at_all_is_a_failed_start_of_every_case(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fine, start_error=InputError("the model folder is not there"))
    run = bench.measure([workload("a"), workload("b")])
    assert {str(error) for error in run.errors.values()} == {"the model folder is not there"}
    assert all(isinstance(error, StartFailed) for error in run.errors.values())
