from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_gpuserve.model import Place
from pytest_gpuserve.record import Failure, Record, Verdict
from pytest_gpuserve.report import draw, summary
from pytest_gpuserve.report.store import RunFolder, RunInfo

if TYPE_CHECKING:
    from types import SimpleNamespace


def test_markdown_leads_with_what_failed(trouble: list[Record]) -> None:
    text = summary.markdown(trouble, run="2026-11-29T12-00-00Z")
    assert text.startswith(
        "## gpuserve: 1 regressed, 1 invalid, 1 crashed, 1 dead-end-changed, "
        "1 ok, 1 inconclusive, 1 measured\n\n"
        "Run `2026-11-29T12-00-00Z`\n\n"
        "### h200_smoke::no-spec-decode: regressed\n\n"
        "`suites/h200_smoke.yaml:12`\n\n"
        "```text\n"
        "regressed: output_throughput 82.4 tok/s, -7.9 % against the baseline's 89.5 tok/s\n"
        "  baseline: baselines/h200-x1/h200_smoke.yaml:14\n"
        "```\n\n"
        "Server log: `logs/kimi_k2_5--no-spec-0.log` in the run's folder\n\n"
        "### h200_smoke::deepep-decode: dead-end-changed\n"
    )
    assert "### h200_smoke::ngram-decode" not in text, "an inconclusive case passed"
    assert text.index("### h200_smoke::flashinfer-decode: invalid") < text.index("### results on h200-x1")
    assert text.endswith("|\n")


def test_markdown_marks_the_simulated_host(story: list[Record], trouble: list[Record]) -> None:
    assert summary.markdown(story).startswith("## gpuserve, simulated: 1 ok, 3 dead-end, 1 skipped\n")
    mixed = summary.markdown([*trouble, replace(story[0], verdict=Verdict.NO_BASELINE, outcome="failed")])
    assert mixed.startswith("## gpuserve: ")
    assert "### kimi\\_k2" not in mixed
    assert "### kimi_k2_5::no-spec-decode: no-baseline (simulated)" in mixed


def test_markdown_without_cases() -> None:
    assert summary.markdown([]) == "## gpuserve: no cases\n"


def test_a_log_cannot_break_out_of_its_block(made: SimpleNamespace) -> None:
    failure = Failure(failure_class="x", message="m", excerpt="```\n<img>\n````")
    text = summary.markdown([made.record("x", Verdict.CRASHED, text="died", failure=failure)])
    assert "`````text\ndied\n\n```\n<img>\n````\n`````" in text


def test_a_long_excerpt_keeps_its_end_and_a_long_run_its_start(made: SimpleNamespace) -> None:
    excerpt = "\n".join(f"line {n}" for n in range(500))
    failure = Failure(failure_class="x", message="m", excerpt=excerpt)
    records = [made.record(f"c{n}", Verdict.CRASHED, text="died", failure=failure) for n in range(60)]
    text = summary.markdown(records)
    assert "line 499" in text
    assert "line 469\n" not in text
    assert text.count("```text") == summary.DETAILED
    assert "30 more failures are in the tables below." in text
    assert len(text.encode()) < 2**20


def test_job_summary_is_appended_when_github_asks_for_it(tmp_path: Path, story: list[Record]) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# earlier step\n")
    assert summary.write_job_summary(story, {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.read_text() == "# earlier step\n" + summary.markdown(story)
    assert not summary.write_job_summary(story, {})
    assert not summary.write_job_summary(story, {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "where")})


def test_the_job_summary_is_what_report_prints_as_markdown(tmp_path: Path, story: list[Record]) -> None:
    folder, path = RunFolder(tmp_path / "run-7"), tmp_path / "summary.md"
    for record in story:
        folder.write(record)
    folder.finish(RunInfo())
    assert summary.write_job_summary(folder.read(), {"GITHUB_STEP_SUMMARY": str(path)}, run=folder.path.name)
    assert path.read_text() == draw.report(folder.path, "markdown")
    assert "Run `run-7`" in path.read_text()


def test_annotations(story: list[Record], trouble: list[Record]) -> None:
    lines = summary.workflow_commands([*story, *trouble], environ={})
    assert lines == [
        "::error file=suites/h200_smoke.yaml,line=12,title=h200_smoke%3A%3Ano-spec-decode%3A regressed::"
        "regressed: output_throughput 82.4 tok/s, -7.9 %25 against the baseline's 89.5 tok/s%0A"
        "  baseline: baselines/h200-x1/h200_smoke.yaml:14",
        "::warning file=suites/h200_smoke.yaml,line=20,title=h200_smoke%3A%3Angram-decode%3A inconclusive::"
        "inconclusive: 5 launches cannot tell a slowdown of 5 %25",
        "::error file=suites/h200_smoke.yaml,line=30,title=h200_smoke%3A%3Adeepep-decode%3A "
        "dead-end-changed::"
        "RuntimeError: CUDA error: out of memory%0Adocumented: ImportError DeepEP",
        "::error file=suites/h200_smoke.yaml,line=40,title=h200_smoke%3A%3Achunked-decode%3A crashed::"
        "the server died while serving",
        "::error file=suites/h200_smoke.yaml,line=50,title=h200_smoke%3A%3Aflashinfer-decode%3A invalid::"
        "invalid: 2 of 4 requests failed (HTTP 503)",
    ]


def test_annotations_name_files_as_github_wants_them(made: SimpleNamespace) -> None:
    def file_of(place: str, root: str | None, workspace: str | None) -> str:
        record = made.record("a,b", Verdict.ERROR, text="x", place=Place(place, 3))
        environ = {"GITHUB_WORKSPACE": workspace} if workspace else {}
        (line,) = summary.workflow_commands([record], root=Path(root) if root else None, environ=environ)
        assert "title=kimi_k2_5%3A%3Aa%2Cb-decode%3A error (simulated)::x" in line
        return line.partition("file=")[2].partition(",line=")[0]

    assert file_of("/w/repo/sub/suites/a.yaml", "/w/repo/sub", "/w/repo") == "sub/suites/a.yaml"
    assert file_of("suites/a.yaml", "/w/repo/sub", "/w/repo") == "sub/suites/a.yaml"
    assert file_of("suites/a.yaml", "/w/repo", "/w/repo") == "suites/a.yaml"
    assert file_of("/w/repo/suites/a.yaml", "/w/repo", None) == "suites/a.yaml"
    assert file_of("/elsewhere/a.yaml", "/w/repo", "/w/repo") == "/elsewhere/a.yaml"
    assert file_of("suites/a.yaml", None, None) == "suites/a.yaml"
