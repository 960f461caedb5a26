from __future__ import annotations

import csv
import io

import pytest

from pytest_gpuserve.report.table import Column, Table, escape

TABLE = Table(
    title="t",
    columns=(
        Column("case"),
        Column("tok/s", right=True),
        Column("reason", wrap=True),
        Column("way out", under="reason"),
    ),
    rows=(
        ("no-spec", "89.5", "", ""),
        ("eagle3", "", "a verify pass waits for all-reduces all the time", "another all-reduce"),
    ),
    notes=("a note",),
)


def test_text_folds_and_wraps() -> None:
    assert TABLE.text(width=50) == (
        "case       tok/s  reason\n"
        "-------  -------  ---------------------------\n"
        "no-spec     89.5\n"
        "eagle3         -  a verify pass waits for\n"
        "                  all-reduces all the time\n"
        "                  way out: another all-reduce\n"
        "a note"
    )


def test_an_empty_column_takes_no_room() -> None:
    table = Table(title="t", columns=(Column("a"), Column("b", right=True)), rows=(("x", ""),))
    assert table.text() == "a\n---\nx"


def test_figures_stay_as_they_are_written() -> None:
    table = Table(title="t", columns=(Column("version"), Column("n", right=True)), rows=(("0.10", "1e3"),))
    assert table.text().splitlines()[-1] == "0.10       1e3"


def test_colour_does_not_shift_columns() -> None:
    table = Table(title="t", columns=(Column("verdict"), Column("x")), rows=(("ok", "1"), ("regressed", "2")))
    painted = table.text(paint=lambda column, cell: f"\x1b[32m{cell}\x1b[0m" if column == "verdict" else cell)
    assert painted.replace("\x1b[32m", "").replace("\x1b[0m", "") == table.text()
    assert "\x1b[32mok\x1b[0m" in painted


def test_markdown_has_every_column_that_is_used() -> None:
    assert TABLE.markdown() == (
        "### t\n\n"
        "| case    |   tok/s | reason                                           | way out            |\n"
        "|:--------|--------:|:-------------------------------------------------|:-------------------|\n"
        "| no-spec |    89.5 |                                                  |                    |\n"
        "| eagle3  |         | a verify pass waits for all-reduces all the time | another all-reduce |\n\n"
        "a note"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("NCCL_ALGO=Tree", "NCCL_ALGO=Tree"),
        ("__init__ of <class 'x'>", r"\_\_init\_\_ of &lt;class 'x'&gt;"),
        ("a|b `c` *d*", r"a\|b \`c\` \*d\*"),
        ("-3.1% [-4.0%, -2.2%]", "-3.1% [-4.0%, -2.2%]"),
        ("[x](http://y)", r"[x\](http://y)"),
        ("two\nlines & more", "two<br>lines &amp; more"),
    ],
)
def test_markdown_shows_a_text_as_it_stands(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_csv_quotes() -> None:
    table = Table(title="t", columns=(Column("a"), Column("b")), rows=(('x,"y"', "two\nlines"),))
    assert list(csv.reader(io.StringIO(table.csv()))) == [["a", "b"], ['x,"y"', "two\nlines"]]


def test_a_table_without_rows_has_its_head() -> None:
    table = Table(title="t", columns=(Column("a"), Column("b", wrap=True)), rows=())
    assert table.csv() == "a,b\r\n"
    assert table.markdown().startswith("### t")


def test_tall_rows_stand_apart() -> None:
    columns = (Column("a"), Column("b", wrap=True))
    tall = Table(title="t", columns=columns, rows=(("1", "w\nx\ny\nz"), ("2", "v"), ("3", "u")))
    assert tall.text().splitlines()[2:] == [
        "1    w",
        "     x",
        "     y",
        "     z",
        "",
        "2    v",
        "",
        "3    u",
    ]
    low = Table(title="t", columns=columns, rows=(("1", "w\nx\ny"), ("2", "v")))
    assert "" not in low.text().splitlines()


def test_a_terminal_obeys_nothing_that_a_log_holds() -> None:
    table = Table(title="t", columns=(Column("what"),), rows=(("\x1b[2J\x00gone",),))
    assert table.text().splitlines()[-1] == r"\x1b[2J\x00gone"
