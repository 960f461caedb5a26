"""What the documentation shows is what the code takes and says."""

from __future__ import annotations

import textwrap
from pathlib import Path

from pytest_gpuserve.gate.baseline_file import read
from pytest_gpuserve.gate.judgement import PASSES, PRECEDENCE
from pytest_gpuserve.gate.stats import Plan
from pytest_gpuserve.record import Verdict

DOCS = Path(__file__).parents[3] / "docs"


def test_the_example_of_a_file_can_be_read(tmp_path: Path) -> None:
    text = (DOCS / "baselines.md").read_text()
    start = text.index("    # A comment at the top is kept.")
    block = text[start : text.index("    ...\n", start)] + "    ...\n"
    path = tmp_path / "my_model.yaml"
    path.write_text(textwrap.dedent(block))
    case = read(path).cases["no-spec-decode"]
    assert case.count == 2
    assert case.tolerance == 0.04


def test_the_example_of_a_reported_figure_can_be_read(tmp_path: Path) -> None:
    text = (DOCS / "baselines.md").read_text()
    start = text.index("      no-spec-decode:\n        reported:")
    block = textwrap.dedent(text[start : text.index("\n\n", start)])
    path = tmp_path / "my_model.yaml"
    head = "suite: my_model\nhost: {count: 1, topology: single}\ncases:\n"
    path.write_text(f"{head}{textwrap.indent(block, '  ')}\n...\n")
    assert read(path).cases["no-spec-decode"].label == "reported"


def rows(text: str, after: str) -> list[list[str]]:
    """The cells of the first table after a text."""
    lines = text[text.index(after) :].splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("|---"))
    table = lines[start + 1 :]
    end = next((n for n, line in enumerate(table) if not line.startswith("|")), len(table))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[:end]]


def test_the_table_of_verdicts_is_the_order_in_which_they_apply() -> None:
    table = rows((DOCS / "gate.md").read_text(), "## Verdicts")
    verdicts = [Verdict(row[0]) for row in table]
    verdicts.remove(Verdict.SLOWER)  # the first of two: a dead end's
    assert tuple(verdicts) == PRECEDENCE
    for verdict, _, test in table:
        if test != "xfailed":
            assert test.startswith("passes") == (Verdict(verdict) in PASSES)


def test_the_errors_that_are_told_are_those_of_the_plan() -> None:
    text = (DOCS / "gate.md").read_text()
    plan = Plan()
    assert f"chance in {plan.false_alarm * 100:g} % of runs" in text
    assert f"the side of the tolerance in {plan.missed * 100:g} %" in text
    alarm, missed = (":".join(f"{share:g}" for share in s) for s in (plan.alarm_shares, plan.missed_shares))
    assert f"({alarm} and {missed})" in text
