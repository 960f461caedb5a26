"""The memory that a supervisor shares with its guard."""

from __future__ import annotations

import os

from pytest_gpuserve.serving.keeper import Board


def test_what_one_process_writes_the_other_reads() -> None:
    board = Board()
    assert board.parent() == (None, False)
    assert board.names() == set()
    pid = os.fork()
    if pid == 0:
        board.set_parent(1234, exited=True)
        board.add_names({"psm_1", "sem.mp-x"})
        board.add_names({"psm_1", "nccl-y"})
        os._exit(0)
    os.waitpid(pid, 0)
    assert board.parent() == (1234, True)
    assert board.names() == {"psm_1", "sem.mp-x", "nccl-y"}


def test_more_names_than_fit_are_left_out() -> None:
    board = Board()
    board.add_names({f"name-{n:05d}" + "x" * 100 for n in range(1000)})
    assert 500 < len(board.names()) < 1000
    assert board.parent() == (None, False)
