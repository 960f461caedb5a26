"""The supervisor of one launch: `python -m pytest_gpuserve.serving.supervise DESCRIPTOR`, a socket to the
driver.

Two processes. The *supervisor* starts the engine and sees to everything (`keeper`). Its parent, the *guard*,
only waits: both are child subreapers, so when the supervisor is killed, the kernel makes all of the launch
children of the guard, which ends them. When the guard is killed, the supervisor is told by the kernel and
ends the launch. Both hold the lease. Whoever is left tells the driver.

The driver sends the order (`keeper.Spec`) as one line of JSON, then `{"do": "serving"}` and `{"do": "stop",
"grace": seconds, "hurry": bool}`. It is told, one JSON object a line: `started`, `failed` (could not be
started), `exited` (status), `disk` (full), `uses` (names of shared memory), `missing` (a process), `closed` (the port),
`note` and `stopped` (what was left: survivors, port, memory).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from .keeper import END_SIGNALS, PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, Board, Keeper, Spec, prctl


def main(argv: list[str]) -> int:
    channel = socket.socket(fileno=int(argv[1]))
    order = _read_line(channel)
    if not order:
        return 0  # the driver died before it had said what to start
    spec = Spec(**json.loads(order))
    if spec.driver != os.getppid():
        return 0  # it has died since
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)  # until there is somebody to see to them
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    board = Board()
    guard = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        _supervise(spec, channel, board, guard)
    return _guard(spec, channel, board, supervisor)


def _read_line(channel: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = channel.recv(65536)
        if not more:
            return b""
        data += more
    return data


def _supervise(spec: Spec, channel: socket.socket, board: Board, guard: int) -> None:
    """Never returns: the guard's code must not run twice."""
    status = 70
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # not inherited
        keeper = Keeper(spec, channel, board, guard)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != guard:
            os.kill(os.getpid(), signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        keeper.keep()
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _guard(spec: Spec, channel: socket.socket, board: Board, supervisor: int) -> int:
    def pass_on(number: int, frame: object) -> None:
        try:
            os.kill(supervisor, signal.SIGTERM)
        except ProcessLookupError:
            pass

    for number in END_SIGNALS:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
    _, status = os.waitpid(supervisor, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "failed, see the file beside the log"
    Keeper(spec, channel, board, os.getpid()).take_over(f"its supervisor {how}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
