from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pytest_gpuserve import cli, commands, record
from pytest_gpuserve.engines import registry
from pytest_gpuserve.engines.openai import OpenAI
from pytest_gpuserve.model import Host, Lengths, PhaseRule, Place, Workload
from pytest_gpuserve.record import Launch, Metrics, Record, Round, Verdict
from pytest_gpuserve.report import draw, store

ROOT = Path(__file__).parents[2]
HOST = Host(
    profile="h200-x1",
    product="NVIDIA H200",
    count=1,
    compute_capability="9.0",
    topology="single",
    driver="",
    memory_gib=139.8,
)

WORKLOAD = Workload(
    name="decode",
    concurrency=1,
    requests=4,
    input_tokens=Lengths(mean=128),
    output_tokens=Lengths(mean=512),
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_run(verdict: Verdict = Verdict.OK, *rates: float) -> Path:
    folder = store.RunFolder(store.new_folder())
    folder.write(
        Record(
            suite="h200_smoke",
            case="no-spec-decode",
            config="no-spec",
            workload="decode",
            nodeid="suites/h200_smoke.yaml::test_serving[no-spec-decode]",
            place=Place("suites/h200_smoke.yaml", 3),
            host=HOST,
            verdict=verdict,
            model="meta-llama/Llama-3.2-1B",
            gated=["output_throughput"],
            workload_spec=msgspec.to_builtins(WORKLOAD),
            launches=[
                Launch(
                    started="2026-11-29T17:00:00+00:00",
                    rounds=[Round(duration_s=10.0, metrics=Metrics(output_throughput=rate))] * 3,
                )
                for rate in rates
            ],
        )
    )
    folder.finish(store.RunInfo())
    return folder.path


def gpuserve(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest_gpuserve", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
        **options,  # type: ignore[call-overload]
    )


def test_report_takes_the_latest_run(capsys: pytest.CaptureFixture[str]) -> None:
    make_run(Verdict.REGRESSED)
    latest = make_run(Verdict.OK)
    assert cli.main(["report"]) == 0
    assert capsys.readouterr().out.startswith(f"{latest.name}: 1 ok\n\nresults on h200-x1\n")


def test_report_of_a_named_run_in_another_format(capsys: pytest.CaptureFixture[str]) -> None:
    first = make_run(Verdict.REGRESSED)
    make_run()
    assert cli.main(["report", first.name, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"][0]["verdict"] == "regressed"


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make_run(), make_run(Verdict.REGRESSED)
    assert cli.main(["compare", str(a), b.name]) == 0
    assert "ok -> regressed" in capsys.readouterr().out


def test_baselines_are_shown_accepted_and_compared(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_run(Verdict.NO_BASELINE, 100.0, 102.0)
    assert cli.main(["baselines", "diff", "latest"]) == 0
    assert "h200_smoke::no-spec-decode" in capsys.readouterr().out
    assert not (project / "baselines").exists(), "a diff changes nothing"

    assert cli.main(["baselines", "accept", str(first), "--tolerance", "3%"]) == 0
    assert capsys.readouterr().out.endswith("\nwrote baselines/h200-x1/h200_smoke.yaml\n")

    below = project / "suites"
    below.mkdir()
    os.chdir(below)
    assert cli.main(["baselines", "show", "h200_smoke"]) == 0
    assert capsys.readouterr().out == (
        "baselines of h200_smoke on h200-x1\n"
        "\n"
        "case            metric          value    launches    scatter    tolerance  from\n"
        "--------------  ------------  -------  ----------  ---------  -----------  -------------------\n"
        "no-spec-decode  output tok/s    101.0           2      1.40%           3%  measured 2026-11-29\n"
        "scatter: standard deviation between launches, which says what slowdown can be found at all.\n"
    )


def test_what_passed_is_accepted_only_by_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(Verdict.OK, 100.0)
    assert cli.main(["baselines", "accept", "latest"]) == 2
    assert "nothing to accept: no case of this run lacks a baseline" in capsys.readouterr().err
    assert cli.main(["baselines", "accept", "latest", "h200_smoke::*"]) == 0
    assert (project / "baselines" / "h200-x1" / "h200_smoke.yaml").exists()


def test_launches_of_several_runs_are_taken_together(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = make_run(Verdict.RECORDED, 100.0), make_run(Verdict.RECORDED, 101.0)
    assert cli.main(["baselines", "accept", first.name, "--with", second.name]) == 0
    assert "h200_smoke::no-spec-decode: 2 launches, new" in capsys.readouterr().out


def test_calibrate_proposes_from_launches(capsys: pytest.CaptureFixture[str]) -> None:
    first = make_run(Verdict.OK, 100.0, 101.0, 99.5)
    make_run(Verdict.OK, 100.5, 99.0)
    assert cli.main(["baselines", "calibrate", "--with", first.name]) == 0
    out = capsys.readouterr().out
    assert out.startswith("h200_smoke::no-spec-decode output_throughput: launches scatter by ")
    assert "(5 launches)" in out
    assert "proposed: tolerance: " in out


def test_calibrate_measures_a_suite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it asks of pytest, and that it reads the run that pytest made and no other."""
    make_run(Verdict.OK, 10.0, 30.0)
    asked: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        (folder,) = (word.partition("=")[2] for word in command if word.startswith("--gpuserve-run-dir="))
        made = make_run(Verdict.NO_BASELINE, 100.0, 101.0, 99.5)
        Path(folder).rmdir()
        made.rename(folder)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    suite = "suites/h200_smoke.yaml"
    asks = [
        "baselines",
        "calibrate",
        suite,
        "-k",
        "no-spec",
        "--launches",
        "3",
        "--pytest=--gpuserve-no-check",
    ]
    assert cli.main(asks) == 0
    (command,) = asked
    assert command[1:7] == ["-m", "pytest", suite, "-k", "no-spec", "--gpuserve-no-check"]
    assert "--gpuserve-launches=3" in command
    assert "(3 launches" in capsys.readouterr().out


def test_calibrate_tells_why_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.CompletedProcess([], 4)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    assert cli.main(["baselines", "calibrate", "suites/x.yaml::test_serving[a-b]"]) == 2
    assert "pytest ended with 4" in capsys.readouterr().err
    assert cli.main(["baselines", "calibrate", "suites/x.yaml", "--launches", "1"]) == 2
    assert "takes two of them" in capsys.readouterr().err
    make_run(Verdict.OK, 100.0, 101.0)
    assert cli.main(["baselines", "calibrate", "latest", "--launches", "8"]) == 2
    assert "are for a suite" in capsys.readouterr().err


def test_calibrate_needs_launches(capsys: pytest.CaptureFixture[str]) -> None:
    make_run(Verdict.OK, 100.0)
    assert cli.main(["baselines", "calibrate"]) == 2
    assert "no case has two launches: measure with" in capsys.readouterr().err
    assert cli.main(["baselines", "calibrate", "--metric", "output_troughput"]) == 2
    assert "is no metric; did you mean 'output_throughput'" in capsys.readouterr().err
    assert cli.main(["baselines", "calibrate", "--baseline", "1"]) == 2
    assert "--baseline 1: below 2 launches" in capsys.readouterr().err


def test_a_tolerance_is_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    for bad in ("120%", "0", "much"):
        with pytest.raises(SystemExit) as caught:
            cli.main(["baselines", "accept", "latest", "--tolerance", bad])
        assert caught.value.code == 2
        assert f"{bad!r} is no share between 0 and 1" in capsys.readouterr().err


BAD_FLAG = """\
usage: sglang serve [-h] --model-path MODEL_PATH [--tokenizer-path TOKENIZER_PATH]
sglang serve: error: unrecognized arguments: --enable-warp-drive
"""


def test_classify(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "server.log").write_text(BAD_FLAG)
    assert cli.main(["classify", "server.log", "--exit-code", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("config_invalid in phase args: sglang serve: error: unrecognized arguments")
    assert "server.log:2, exit status 2" in out
    assert cli.main(["classify", "server.log", "--engine", "sglang", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["class"], found["phase"], found["line"]) == ("config_invalid", "args", 2)
    (project / "empty.log").write_text("")
    assert cli.main(["classify", "empty.log", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["class"] is None


def test_a_run_that_goes_on_is_not_the_latest_before_it_has_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = make_run(Verdict.OK, 100.0, 101.0)
    going_on = store.RunFolder(store.new_folder())
    assert going_on.logs.exists()
    said = f"{going_on.path.name} has no records yet: taking {done.name}\n"
    for argv in (["report"], ["compare", "latest", done.name], ["baselines", "diff", "latest"]):
        assert cli.main(argv) == 0
        assert capsys.readouterr().err == said
    assert cli.main(["report", going_on.path.name]) == 0
    assert capsys.readouterr().out.startswith(f"{going_on.path.name}: no cases")


def test_a_diff_without_a_change_is_told_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    make_run(Verdict.OK, 100.0, 101.0)
    assert cli.main(["baselines", "diff", "latest"]) == 0
    assert capsys.readouterr().out.startswith("`accept` would change nothing: no case of this run lacks a ")
    assert cli.main(["baselines", "diff", "latest", "no-spec-decode"]) == 0
    assert capsys.readouterr().out.startswith("h200_smoke::no-spec-decode: 2 launches")


class ThirdParty(OpenAI):
    """An engine of somebody else, with a log of its own."""

    name = "theirs"
    phases = (PhaseRule(phase="kv_alloc", pattern="^laying out"),)

    def rules(self) -> Path:
        return Path("their-rules.yaml")


def test_classify_knows_engines_of_the_entry_point_group(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(registry.OWN, "theirs", f"{__name__}:ThirdParty")
    (project / "their-rules.yaml").write_text(
        "rules:\n- {class: oom_kv, where: line, pattern: 'error: cache too small', source: [theirs]}\n"
    )
    (project / "server.log").write_text("laying out\nerror: cache too small\n")
    assert cli.main(["classify", "server.log", "--engine", "theirs"]) == 0
    assert capsys.readouterr().out.startswith("oom_kv in phase kv_alloc: error: cache too small")
    assert cli.main(["classify", "server.log", "--engine", "their"]) == 2
    assert "did you mean 'theirs'" in capsys.readouterr().err


def test_classify_says_when_it_recognises_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "hi.txt").write_text("hi\n")
    assert cli.main(["classify", "hi.txt"]) == 0
    assert capsys.readouterr().out.startswith("hi.txt: no engine's log is recognised in this")
    assert cli.main(["classify", "hi.txt", "--engine", "sglang"]) == 0
    assert capsys.readouterr().out == "hi.txt: nothing failed, as far as the log tells\n"
    (project / "web.log").write_text(
        "INFO:     Uvicorn running on http://127.0.0.1:1 (Press CTRL+C to quit)\n"
    )
    assert cli.main(["classify", "web.log"]) == 0
    assert capsys.readouterr().out == "web.log: nothing failed, as far as the log tells\n"


def test_classify_names_what_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(ROOT / "tests/corpus/logs/sglang-0.5.15-h200/start-deepep.log")
    assert cli.main(["classify", log]) == 0
    assert "  documented: sglang-deepep-missing (" in capsys.readouterr().out
    assert cli.main(["classify", log, "--json"]) == 0
    (end,) = json.loads(capsys.readouterr().out)["dead_ends"]
    assert (end["entry"], "install DeepEP" in end["way_out"]) == ("sglang-deepep-missing", True)


def test_dead_ends_on_a_product_are_those_of_its_capability(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dead-ends", "--engine-version", "0.5.15", "--gpu", "H200"]) == 0
    assert "compute capability >=12.0" not in capsys.readouterr().out
    assert cli.main(["dead-ends", "--engine-version", "0.5.15", "--gpu", "RTX PRO 6000"]) == 0
    assert "compute capability >=12.0" in capsys.readouterr().out
    for more in ([], ["--since", "0.5.13", "--until", "0.5.14"]):
        assert cli.main(["dead-ends", "--gpu", "RTX 5090xx", *more]) == 2
        assert "no GPU 'RTX 5090xx' is known" in capsys.readouterr().err


def test_dead_ends_by_version_and_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dead-ends", "--engine-version", "0.5.13.post1", "--gpu", "sm120"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("documented dead ends: sglang 0.5.13.post1, on sm120\n\nentry ")
    assert "set by: --enable-torch-symm-mem" in out
    assert cli.main(["dead-ends", "--flag", "enable_torch_symm_mem", "--format", "json"]) == 0
    (rows,) = json.loads(capsys.readouterr().out).values()
    assert {row["entry"] for row in rows} == {"sglang-torch-symm-mem"}
    assert {row["kind"] for row in rows} == {"start", "inert"}
    assert cli.main(["dead-ends", "--flag", "warp-drive"]) == 0
    assert capsys.readouterr().out == "documented dead ends: set by warp-drive: none\n"


def test_what_an_upgrade_changes(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["dead-ends", "--since", "0.5.13", "--until", "0.5.14", "--flag", "torch-symm-mem"]
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith("dead ends that change from sglang 0.5.13 to 0.5.14: set by torch-symm-mem\n")
    assert "changes its kind" in out
    assert cli.main([*argv, "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("### dead ends that change from sglang 0.5.13 to 0.5.14")


def test_the_whole_registry_as_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dead-ends", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "dead-ends.md").read_text()


def test_bench_of_nobody_is_1_and_a_whole_object(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        argv = ["bench", url, "--engine", "sglang", "--model", "m", "--requests", "2", "--quiet", "--json"]
        assert cli.main(argv) == 1
    assert json.loads(capsys.readouterr().out)["requests"]["failed"] == 2


def test_classify_from_a_pipe() -> None:
    assert json.loads(gpuserve("classify", "-", "--json", input=BAD_FLAG).stdout)["class"] == "config_invalid"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["report"], "gpuserve report: no run in "),
        (["baselines", "show"], "gpuserve baselines: no baseline in "),
        (["baselines", "show", "h100", "--host", "x"], "gpuserve baselines: no baseline in "),
        (["dead-ends", "--since", "0.5.13"], "gpuserve dead-ends: --since and --until belong together"),
        (["dead-ends", "--engine-version", "new"], "gpuserve dead-ends: 'new' is no version such as"),
        (
            ["dead-ends", "--engine", "sglan"],
            "gpuserve dead-ends: no dead end of an engine 'sglan' is documented; ",
        ),
        (
            ["dead-ends", "--since", "0.5.13", "--until", "0.5.15", "--engine-version", "0.5.14"],
            "gpuserve dead-ends: --engine-version tells of one version",
        ),
        (["dead-ends", "--known", "nowhere"], "gpuserve dead-ends: the folder nowhere"),
        (["bench", "ftp://x"], "gpuserve bench: ftp://x: not a URL such as"),
        (["classify", "nowhere.log"], "gpuserve classify: nowhere.log: No such file or directory"),
        (["classify", "."], "gpuserve classify: .: Is a directory"),
        (
            ["classify", ".", "--engine", "sglan"],
            "gpuserve classify: no engine is called 'sglan'; did you mean 's",
        ),
        (["report", "yesterday"], "gpuserve report: no run at yesterday, nor in "),
        (["compare", ".", "."], "gpuserve compare: .: not a run: it has neither records/ nor records.jsonl"),
    ],
)
def test_bad_input_is_one_line_and_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_a_record_of_another_schema(capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run() / "records" / "h200_smoke--no-spec-decode.json"
    path.write_text(path.read_text().replace(f'"schema": {record.SCHEMA}', '"schema": 2'))
    assert cli.main(["report"]) == 2
    assert "written by newer pytest-gpuserve (schema 2, this one reads 1)" in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["nonsense"], ["report", "--format", "pdf"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(argv)
        assert caught.value.code == 2
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("pytest-gpuserve ")


def test_formats_are_those_that_can_be_drawn() -> None:
    assert draw.FORMATS == commands.FORMATS


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str | None) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "find", interrupted)
    assert cli.main(["report"]) == 130


def test_as_a_module_and_into_a_pipe_that_closes() -> None:
    run = make_run()
    assert gpuserve("report").stdout.startswith(run.name)
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "pytest_gpuserve", "report"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_gpuserve import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'requests', 'yaml', 'pytest', 'psutil', 'pynvml', 'tabulate'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert result.stderr == "[]\n"
