"""A session: what it plans before a start, and how an end is held against what is documented."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest

from pytest_gpuserve.errors import Crashed, Inert, NoBaseline, RequestError, SiteError, StartFailed
from pytest_gpuserve.gate.verdict import Judgement
from pytest_gpuserve.model import (
    Case,
    Config,
    DeadEnd,
    EngineBuild,
    Host,
    Lengths,
    Match,
    ModelRef,
    Place,
    Requires,
    Workload,
)
from pytest_gpuserve.record import Failure, Launch, Round, Verdict
from pytest_gpuserve.report.store import RunFolder
from pytest_gpuserve.serving.pool import ConfigRun
from pytest_gpuserve.session import Options, Plan, Session
from pytest_gpuserve.session.plan import planned

HERE = Place("suites/s.yaml", 7)
HOST = Host(
    profile="h200-x1",
    product="NVIDIA H200",
    count=1,
    compute_capability="9.0",
    topology="single",
    driver="580",
    memory_gib=140,
)
END = DeadEnd(
    kind="start",
    reason="no kernel",
    place=HERE,
    phases=frozenset({"comm_init"}),
    match=(Match(exception="KeyError", message="^12$"),),
)
KEY_ERROR = Failure(failure_class="software_bug", phase="comm_init", exception="KeyError", message="12")


def case(**config):
    workload = Workload(
        name="decode", concurrency=1, requests=1, input_tokens=Lengths(mean=8), output_tokens=Lengths(mean=8)
    )
    made = Config(id="c", place=HERE, engine="sglang", model=ModelRef(id="m"), args={}, **config)
    return Case(suite="s", config=made, workload=workload)


@pytest.fixture
def session(tmp_path, monkeypatch):
    options = Options(
        rootdir=tmp_path, baselines=tmp_path / "baselines", check=False, today=date(2026, 11, 29)
    )
    session = Session(options, RunFolder(tmp_path / "run"), lambda text: None)
    session.here.__dict__["host"] = HOST
    monkeypatch.setattr(session.here, "build", lambda config: EngineBuild(name="sglang", version="0.5.15"))
    return session


def finish(session, one, *, error=None, plan=None, verdict=None):
    """End a case with an error, or with a judgement of that verdict."""
    session._plans[one.suite, one.id] = plan or session.plan(one)
    run = ConfigRun()
    if error is not None:
        run.errors["decode"] = error
    run.launches["decode"] = [Launch(started="2026-11-29T00:00:00+00:00", rounds=[Round(duration_s=1.0)])]
    session._measure = lambda *_: run
    if verdict is not None:
        fails = verdict not in {Verdict.OK, Verdict.MEASURED, Verdict.RECORDED}
        session._judge = lambda *_: Judgement(verdict=verdict, text="told", fails=fails)
    return session.run(one, [one], "suites/s.yaml::test_serving[c-decode]")


def test_what_the_host_lacks_is_a_skip_and_the_engine_is_not_asked(session, monkeypatch):
    monkeypatch.setattr(session.here, "build", lambda config: pytest.fail("asked"))
    plan = session.plan(case(requires=(Requires(gpus=8),)))
    assert "8" in plan.skip


def test_a_dead_end_past_its_review_date_warns(session):
    due = msgspec.structs.replace(END, review=date(2026, 11, 1))
    assert planned(session.here, case(dead_end=due)).review_due
    assert not planned(
        session.here, case(dead_end=msgspec.structs.replace(END, review=date(2027, 1, 1)))
    ).review_due


@pytest.mark.parametrize(
    ("changes", "early"),
    [
        ({}, True),
        ({"phases": frozenset({"comm_init", "warmup"})}, False),
        ({"phases": frozenset()}, False),
        ({"kind": "missing", "phases": frozenset()}, True),
        ({"run": False}, False),
    ],
)
def test_only_what_is_decided_before_the_weights_runs_first(changes, early):
    assert Plan(dead_end=msgspec.structs.replace(END, **changes)).early is early


def test_a_dead_end_as_documented(session):
    result = finish(session, case(dead_end=END), error=StartFailed("died", failure=KEY_ERROR))
    assert (result.record.verdict, result.record.outcome) == (Verdict.DEAD_END, "xfailed")
    assert isinstance(result.error, StartFailed)


@pytest.mark.parametrize(
    "error",
    [
        StartFailed("died", failure=msgspec.structs.replace(KEY_ERROR, message="13")),
        StartFailed("died", failure=msgspec.structs.replace(KEY_ERROR, phase="warmup")),
        StartFailed("died", failure=Failure(failure_class="gpu_busy", message="12", environment=True)),
        Crashed("died", failure=msgspec.structs.replace(KEY_ERROR, phase="serving")),
        Inert("stayed off"),
    ],
    ids=["message", "phase", "machine state", "crash", "inert"],
)
def test_a_dead_end_that_ends_otherwise_has_changed(session, error):
    result = finish(session, case(dead_end=END), error=error)
    assert (result.record.verdict, result.record.outcome) == (Verdict.DEAD_END_CHANGED, "failed")
    assert result.error is error
    assert "changed" in result.note


@pytest.mark.parametrize("verdict", [Verdict.OK, Verdict.NO_BASELINE, Verdict.SLOWER, Verdict.REGRESSED])
def test_a_dead_end_that_serves_is_open_whatever_its_figures(session, verdict):
    result = finish(session, case(dead_end=END), verdict=verdict)
    assert (result.record.verdict, result.record.outcome) == (Verdict.DEAD_END_OPEN, "failed")
    assert result.error is None, "the strict xfail needs a test that passes"
    assert "suites/s.yaml:7" in result.note


def test_without_a_dead_end_the_gate_decides(session):
    result = finish(session, case(), verdict=Verdict.NO_BASELINE)
    assert isinstance(result.error, NoBaseline)
    assert result.record.outcome == "failed"
    assert session.folder.read()[0].verdict is Verdict.NO_BASELINE


def test_a_case_that_was_never_measured_is_no_pass(session):
    one = case()
    session._plans[one.suite, one.id] = Plan()
    session._measure = lambda *_: ConfigRun()
    result = session.run(one, [one], "node")
    assert isinstance(result.error, Crashed)


def test_a_dead_end_that_cannot_be_slower_takes_one_launch(session):
    order = session._order(case(dead_end=END), [], Plan(dead_end=END))
    assert (order.launches_min, order.launches_max) == (1, 1)
    slower = msgspec.structs.replace(END, kind="slower", match=())
    order = session._order(case(dead_end=slower), [], Plan(dead_end=slower))
    assert order.launches_max == 5


def test_a_stop_failure_is_raised_once(session):
    from pytest_gpuserve.errors import StopFailed

    session.pool.runs["s", "c"] = ConfigRun(stop_error=StopFailed("left"))
    assert "left" in str(session.take_stop_error(case()))
    assert session.take_stop_error(case()) is None


def test_a_baseline_that_cannot_be_read_fails_what_it_decides_and_nothing_else(session, tmp_path):
    broken = tmp_path / "baselines" / "h200-x1" / "s.yaml"
    broken.parent.mkdir(parents=True)
    broken.write_text("cases:\n  c-decode: {out")
    slower = msgspec.structs.replace(END, kind="slower", match=())
    for one in (case(), case(dead_end=slower)):
        plan = planned(session.here, one)
        assert "h200-x1/s.yaml" in str(plan.problem)
        assert plan.dead_end is None, "an unread file opens no dead end"
        session._plans.clear()
        result = session.run(one, [one], "node")
        assert (result.record.verdict, result.record.outcome) == (Verdict.NOT_COMPARABLE, "failed")
    assert planned(session.here, case(dead_end=END)) == Plan(dead_end=END)


def test_a_broken_site_file_fails_the_cases_with_a_record(session, tmp_path):
    (tmp_path / "gpuserve.local.yaml").write_text("engines: {sglang: {pyton: /x}}")
    session = Session(session.options, session.folder, lambda text: None)
    session.here.__dict__["host"] = HOST
    one = case()
    result = session.run(one, [one], "node")
    assert "pyton" in str(result.error)
    assert (result.record.verdict, result.record.outcome) == (Verdict.ERROR, "failed")
    assert session.folder.read() == [result.record]


def test_what_keeps_a_config_from_being_measured_is_told_by_all_its_cases(session):
    first = case()
    second = msgspec.structs.replace(first, workload=msgspec.structs.replace(first.workload, name="batch"))
    starts = []

    def server(suite, config, index):
        starts.append(index)
        raise OSError(28, "No space left on device")

    session._server = server
    for one in (first, second):
        result = session.run(one, [first, second], "node")
        assert "No space left" in str(result.error)
        assert (result.record.verdict, result.record.outcome) == (Verdict.ERROR, "failed")
    assert starts == [0]


def test_a_record_that_cannot_be_written_fails_its_case_and_no_other(session, monkeypatch):
    def full(record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.folder, "write", full)
    result = finish(session, case(), verdict=Verdict.OK)
    assert "its record cannot be written" in str(result.error)
    assert session.not_run(case(), "node", "no GPU", xfailed=False).record.outcome == "skipped"
    assert session.broken(case(), "node", "told").record.verdict is Verdict.ERROR


def test_what_a_lost_record_would_have_said_is_told(session, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.folder, "write", full)
    monkeypatch.setattr(session, "_server", full)
    told = str(session.run(case(), [case()], "node").error)
    assert "its record cannot be written" in told
    assert told.count("No space left on device") == 2, "why it failed, too"


@pytest.mark.parametrize(
    "error", [SiteError("no such engine"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")]
)
def test_what_keeps_one_case_from_being_planned_is_told_when_it_runs(session, monkeypatch, error):
    def build(config):
        raise error

    monkeypatch.setattr(session.here, "build", build)
    assert session.plan(case()).problem is error
    if isinstance(error, SiteError):
        assert session.run(case(), [case()], "node").record.verdict is Verdict.ERROR
    else:
        with pytest.raises(UnicodeDecodeError):
            session.run(case(), [case()], "node")
        assert session.broken(case(), "node", "told").record.text == "told"


def test_what_contradicts_itself_is_nobodys_case(session, monkeypatch):
    def build(config):
        raise RequestError("two at once")

    monkeypatch.setattr(session.here, "build", build)
    with pytest.raises(RequestError):
        session.plan(case())


@pytest.mark.parametrize("verdict", [Verdict.NO_PARTNER, Verdict.NOT_COMPARABLE, Verdict.INVALID])
def test_what_could_not_be_compared_is_no_dead_end_that_has_changed(session, verdict):
    slower = msgspec.structs.replace(END, kind="slower", match=())
    result = finish(session, case(dead_end=slower, compare_to="base"), verdict=verdict)
    assert (result.record.verdict, result.record.outcome) == (verdict, "failed")
    assert result.error is not None
    assert not result.note


def test_a_gpu_that_somebody_else_keeps_fails_the_case_in_the_end(tmp_path, monkeypatch):
    lock = tmp_path / "leases"
    monkeypatch.setenv("GPUSERVE_LEASES", str(lock))
    options = Options(rootdir=tmp_path, baselines=tmp_path / "baselines", check=False, wait_s=0.0)
    session = Session(options, RunFolder(tmp_path / "run"), lambda text: None)
    session.here.__dict__["host"] = msgspec.structs.replace(HOST, count=0, profile="cpu")
    monkeypatch.setattr(session.here, "build", lambda config: EngineBuild(name="sglang", version="0.5.15"))
    other = session.here.leases(tmp_path)
    held = other.acquire(1, what="somebody's")
    one = case(dead_end=END)
    try:
        result = session.run(one, [one], "node")
    finally:
        held.release()
    assert "somebody's" in str(result.error)
    assert (result.record.verdict, result.record.outcome) == (Verdict.DEAD_END_CHANGED, "failed")
    assert "the state of the machine, which is never a dead end" in result.note


def test_an_engine_is_looked_up_once(session, monkeypatch):
    from pytest_gpuserve.engines import registry

    asked = []

    def find(name, place=None):
        asked.append(name)
        return object()

    monkeypatch.setattr(registry, "find", find)
    assert session.here.engine(case().config) is session.here.engine(case().config)
    assert asked == ["sglang"]
