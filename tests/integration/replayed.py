"""Servers that are played from `rounds.json`: config -> launches -> tok/s of each round, or how the case ends.

With `CONFTEST` as its conftest an inner project plays them; everything else is real: the plugin, its test, the pool
that launches, the gate, the records.
"""

import json
import os
from pathlib import Path

from pytest_gpuserve.load.api import Target
from pytest_gpuserve.model import EngineBuild, Host
from pytest_gpuserve.record import Launch, Metrics, Round, Spread
from pytest_gpuserve.serving import pool
from pytest_gpuserve.session import here, run

HOST = Host(
    profile="h200-x1",
    product="NVIDIA H200",
    count=1,
    compute_capability="9.0",
    topology="single",
    driver="580.95.05",
    memory_gib=140,
)
BUILD = EngineBuild(name="sglang", version="0.5.15")


def round_of(speed):
    tpot = 1000 / speed
    return Round(
        duration_s=20.0,
        metrics=Metrics(
            output_throughput=speed, tpot_ms=Spread(mean=tpot, p50=tpot, p90=tpot, p99=tpot, n=4)
        ),
    )


def read():
    return json.loads(Path("rounds.json").read_text())


class Server:
    target = Target(host="127.0.0.1", port=1)

    def __init__(self, log, config):
        self.log = log
        self.config = config

    def start(self):
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("played\n")
        with Path("starts.txt").open("a") as starts:
            starts.write(f"{self.config}\n")

    def wait_ready(self):
        pass

    def stop(self):
        """Configs that `rounds.json` names under `left` leave something behind."""
        if self.config in read().get("left", ()):
            from pytest_gpuserve.errors import StopFailed

            raise StopFailed("process 4711 is left")

    def redact(self, data):
        return data

    def launch_facts(self):
        return Launch(started="2026-11-29T12:00:00+00:00", log=f"logs/{self.log.name}")


class Played:
    def __init__(self, server, engine, config, workload, site, *, folder, seed, say):
        self.config, self.launch = config.id, (seed - workload.seed) // 1000

    def rounds(self):
        played = read()[self.config]
        if isinstance(played, str):
            end(played)
        return [round_of(speed) for speed in played[self.launch]]


def end(how):
    """Instead of rounds, a way to end badly."""
    import pytest

    from pytest_gpuserve import errors, record

    if how == "worker":
        os._exit(134)
    if how == "pytest.fail":
        pytest.fail("Timeout (>1.0s) from pytest-timeout.")
    if how == "OSError":
        raise OSError("port in use")
    phase, _, message = how.partition(": ")
    raise errors.Crashed(
        how,
        failure=record.Failure(
            failure_class="software_bug", phase=phase, exception="KeyError", message=message
        ),
    )


def server(self, suite, config, index):
    return Server(self.folder.logs / f"{suite}--{config.id}-{index + 1}.log", config.id)


def play():
    """Put the played servers in the place of real ones, for the rest of this process."""
    here.Here.host = property(lambda self: HOST)
    here.Here.build = lambda self, config: BUILD
    run.Session._server = server
    pool.Measurement = Played
    pool._said_of_itself = lambda engine, server: {}


CONFTEST = Path(__file__).read_text() + "\n\nplay()\n"
