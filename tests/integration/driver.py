"""A process that drives a server as pytest does: `driver.py FOLDER MODE PORT`. Says what it does as JSON
lines, and takes `stop` on standard input. Ctrl-C ends it as it ends pytest: through its `finally`.
"""

from __future__ import annotations

import json
import select
import sys
from pathlib import Path

import stand_in_engine

from pytest_gpuserve.errors import CaseError
from pytest_gpuserve.serving.lease import Leases


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main(folder: Path, mode: str, port: int) -> None:
    leases = Leases(folder / "leases", slots=1, environment={})
    server = stand_in_engine.server(folder, leases, args={"mode": mode}, count=1, port=port)
    try:
        server.start()
        supervised = server._supervised
        assert supervised is not None
        say(state="started", **(supervised.started or {}))
        server.wait_ready()
        say(state="serving")
        while not select.select([sys.stdin], [], [], 0.05)[0]:
            server.check()
    except CaseError as error:
        say(state="failed", verdict=error.verdict, text=str(error))
    finally:
        say(state="stopping")
        try:
            server.stop()
            say(state="stopped", report=server.report)
        except CaseError as error:
            say(state="stopped", verdict=error.verdict, text=str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
