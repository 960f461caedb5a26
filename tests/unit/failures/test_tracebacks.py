from __future__ import annotations

import pytest

from pytest_gpuserve.failures.prefix import strip
from pytest_gpuserve.failures.tracebacks import MOST_MESSAGE, MOST_RAW, Follower, Report


def follow(log: str) -> list[Report]:
    follower, found = Follower(), []
    for number, line in enumerate(log.splitlines(), 1):
        follower.feed(strip(line), number)
        if follower.fresh is not None:
            found.append(follower.fresh)
    return found


@pytest.mark.parametrize(
    "phrase",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_both_chaining_phrases_lead_back_to_the_cause(phrase: str) -> None:
    (report,) = follow(f"""\
Traceback (most recent call last):
  File "a.py", line 1, in inner
    raise KeyError(12)
    ^^^^^^^^^^^^^^^^^^
KeyError: 12

{phrase}

Traceback (most recent call last):
  File "b.py", line 2, in outer
RuntimeError: wrapped
""")
    assert [(link.exception, link.text, link.line) for link in report.links] == [
        ("KeyError", "12", 5),
        ("RuntimeError", "wrapped", 11),
    ]
    frame = report.links[0].frames[0]
    assert (frame.file, frame.code) == ("a.py", "raise KeyError(12)")


def test_an_abridged_chain_has_no_second_header() -> None:
    (report,) = follow("""\
[2025-05-06 12:35:08 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "a.py", line 1, in f
RuntimeError: inner

During handling of the above exception, another exception occurred:

Exception: Capture cuda graph failed: inner
""")
    assert [link.exception for link in report.links] == ["RuntimeError", "Exception"]
    assert (report.header, report.rank) == ("Scheduler hit an exception", 0)


def test_frames_alone_begin_a_report() -> None:
    (report,) = follow('  File "a.py", line 1, in f\n    g()\nValueError: x\n')
    assert (report.header, report.links[0].exception) == ("", "ValueError")


def test_processes_that_mark_every_line_are_kept_apart() -> None:
    one, two = follow("""\
(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1] Traceback (most recent call last):
(Worker_TP1 pid=2) ERROR 01-01 00:00:00 [a.py:1] Traceback (most recent call last):
(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1]   File "zero.py", line 1, in f
(Worker_TP1 pid=2) ERROR 01-01 00:00:00 [a.py:1]   File "one.py", line 1, in f
(Worker_TP1 pid=2) ERROR 01-01 00:00:00 [a.py:1] ValueError: of one
(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1] KeyError: 'of zero'
""")
    assert (one.rank, one.links[0].exception, one.links[0].frames[0].file) == (1, "ValueError", "one.py")
    assert (two.rank, two.links[0].exception, two.links[0].frames[0].file) == (0, "KeyError", "zero.py")


def test_ranks_that_mix_line_by_line_give_the_first_header_its_exception() -> None:
    first = follow("""\
[2026-02-01 09:11:04 TP3] Scheduler hit an exception: Traceback (most recent call last):
[2026-02-01 09:11:04 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "a.py", line 1, in f
  File "a.py", line 1, in f
KeyError: 12
KeyError: 12
""")[0]
    assert (first.rank, first.links[0].line) == (3, 5)


def test_a_message_goes_on_over_blank_lines_and_ends_with_a_record() -> None:
    (report,) = follow("""\
ImportError:
[sgl_kernel] CRITICAL: Could not load any common_ops library!

Error details from previous import attempts:
- ImportError: libnvrtc.so.12: cannot open shared object file
[2026-02-01 09:11:04] Received sigquit from a child process.
""")
    assert "libnvrtc.so.12" in report.links[0].text
    assert "sigquit" not in report.links[0].text


def test_advice_on_memory_is_no_part_of_the_message() -> None:
    (report,) = follow("""\
Exception: Capture cuda graph failed: x
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
""")
    assert report.links[0].text == "Capture cuda graph failed: x"


def test_a_second_exception_at_the_margin_is_another_report() -> None:
    assert [r.links[0].text for r in follow("RuntimeError: cause\nRuntimeError: consequence\n")] == [
        "cause",
        "consequence",
    ]


def test_what_nccl_adds_belongs_to_the_message() -> None:
    (report,) = follow(
        "torch.distributed.DistBackendError: NCCL error\nncclSystemError: x\nLast error:\nmore\n"
    )
    assert report.links[0].message == ["NCCL error", "ncclSystemError: x", "Last error:", "more"]


def test_a_native_abort_has_two_lines() -> None:
    (report,) = follow(
        "terminate called after throwing an instance of 'c10::Error'\n  what():  it broke\nmore\n"
    )
    link = report.links[0]
    assert (link.exception, link.native, link.message) == (
        None,
        "c10::Error",
        ["c10::Error: it broke", "more"],
    )
    assert report.native


@pytest.mark.parametrize(
    "log",
    [
        "(Worker pid=1) WARNING 01-01 00:00:00 [a.py:1] RuntimeError: only said\n",
        "INFO:     OSError: only said\n",
        "NCCL version 2.28.9+cuda13.0\n",
        "/a/b.py:12: UserWarning: something\n  warnings.warn(\n",
        "Error: no exception's name\n",
        "  warnings.warn(\n",
    ],
)
def test_what_is_no_report(log: str) -> None:
    assert follow(log) == []


def test_a_traceback_that_is_ignored_by_python_is_quiet() -> None:
    (report,) = follow("""\
Exception ignored in: <function X.__del__ at 0x7f>
Traceback (most recent call last):
  File "a.py", line 1, in f
AttributeError: x
""")
    assert report.quiet


def test_foreign_lines_do_not_end_a_traceback() -> None:
    (report,) = follow("""\
Traceback (most recent call last):
[2026-02-01 09:11:04 TP1] Load weight end.
NCCL version 2.28.9+cuda13.0
  File "a.py", line 1, in f
ValueError: x
""")
    assert report.links[0].frames[0].file == "a.py"


def test_memory_is_bounded_within_a_traceback() -> None:
    frames = "".join(f'  File "a{i}.py", line 1, in f\n    g()\n' for i in range(5000))
    (report,) = follow(f"Traceback (most recent call last):\n{frames}ValueError: x\n" + "more\n" * 5000)
    link = report.links[0]
    assert len(link.raw) <= MOST_RAW
    assert len(link.message) <= MOST_MESSAGE
    files = [frame.file for frame in link.frames]
    assert (files[0], files[-1]) == ("a0.py", "a4999.py")
