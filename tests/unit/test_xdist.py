"""Scheduling: what stays on one worker, and what is not run again when a worker dies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_gpuserve.xdist import ServeScheduling, families, workers_that_fit

SUITE = """\
server: {engine: sglang, model: m}
workloads:
  decode: {concurrency: 1, requests: 1, input_tokens: 8, output_tokens: 8}
  batch: {concurrency: 2, requests: 2, input_tokens: 8, output_tokens: 8}
configs:
  - id: base
  - {id: spec-a, args: {a: 1}, compare_to: base}
  - {id: spec-b, args: {b: 1}, compare_to: spec-a}
  - {id: alone, args: {c: 1}}
"""


@pytest.fixture
def scheduling(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.yaml").write_text(SUITE)
    config = SimpleNamespace(
        rootpath=tmp_path,
        option=SimpleNamespace(loadscopereorder=True),
        getvalue=lambda name: {"tx": ["2*popen"]}.get(name, []),
        getoption=lambda name, default=None: {"tx": ["2*popen"]}.get(name, default),
    )
    return ServeScheduling(config)


def scope(scheduling, case):
    return scheduling._split_scope(f"suites/s.yaml::test_serving[{case}]")


def test_a_config_and_its_relations_share_a_scope(scheduling):
    family = {
        scope(scheduling, f"{config}-{w}")
        for config in ("base", "spec-a", "spec-b")
        for w in ("decode", "batch")
    }
    assert len(family) == 1
    assert scope(scheduling, "alone-decode") not in family
    assert scope(scheduling, "alone-decode") == scope(scheduling, "alone-batch")


def test_other_tests_are_scheduled_as_ever(scheduling):
    assert scheduling._split_scope("tests/test_x.py::TestA::test_b") == "tests/test_x.py::TestA"


def test_a_suite_that_cannot_be_read_makes_no_trouble_here(tmp_path):
    (tmp_path / "broken.yaml").write_text("configs: [")
    assert families(tmp_path / "broken.yaml") == {}


class Node:
    shutting_down = False

    def __init__(self):
        self.sent = []

    def send_runtest_some(self, indices):
        self.sent.append(list(indices))

    def shutdown(self):
        self.shutting_down = True


def test_what_ran_when_a_worker_died_is_not_run_again_and_its_siblings_are(scheduling):
    dead, alive = Node(), Node()
    cases = [f"suites/s.yaml::test_serving[base-{w}]" for w in ("decode", "batch")]
    scheduling.add_node(dead)
    scheduling.add_node(alive)
    for node in (dead, alive):
        scheduling.registered_collections[node] = cases
    scheduling.collection = cases
    scheduling.assigned_work[dead] = {"scope": dict.fromkeys(cases, False)}
    assert scheduling.remove_node(dead) == cases[0]
    assert alive.sent == [[1]], "only the sibling goes on, on the worker that lives"


def test_a_worker_that_had_nothing_to_do_is_no_crash(scheduling):
    node = Node()
    scheduling.add_node(node)
    scheduling.assigned_work[node] = {"scope": {"a": True}}
    assert scheduling.remove_node(node) is None


class Config:
    """What `-n auto` asks pytest for."""

    def __init__(self, root, *args):
        self.rootpath, self.args = root, args
        self.invocation_params = SimpleNamespace(dir=root)

    def getini(self, name):
        return {"python_files": ["test_*.py"], "norecursedirs": [".*", "venv"], "gpuserve_suites": []}[name]


def test_as_many_workers_as_configs_fit_on_the_gpus(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.yaml").write_text(SUITE.replace("model: m", "model: m, args: {tp-size: 2}"))
    assert workers_that_fit(Config(tmp_path, "suites"), lambda: 8) == 4
    assert workers_that_fit(Config(tmp_path, "suites/s.yaml::test_serving[base-decode]"), lambda: 3) == 0
    assert workers_that_fit(Config(tmp_path, "."), lambda: 8) == 4


def test_where_other_tests_run_as_well_their_number_is_not_ours(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "s.yaml").write_text(SUITE)
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "test_vendored.py").touch()
    assert workers_that_fit(Config(tmp_path, "."), lambda: 8) == 8
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").touch()

    def asked():
        raise AssertionError("nobody may look at the hardware")

    assert workers_that_fit(Config(tmp_path, "."), asked) is None
    assert workers_that_fit(Config(tmp_path, "suites", "tests"), asked) is None
