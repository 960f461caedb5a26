"""A process that drives a server as pytest does: `driver.py FOLDER PORT JSON`. Says what it does as JSON
lines, and takes `stop` on standard input. Ctrl-C ends it as it ends pytest: through its `finally`.

JSON: fields of the config; `python` and `site_env` of the site; `load` asks for so many completions,
one after the other (0: none).
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stand_in_engine

from pytest_gpuserve.engines.base import Site
from pytest_gpuserve.errors import CaseError
from pytest_gpuserve.model import ModelRef
from pytest_gpuserve.serving.lease import Leases
from pytest_gpuserve.serving.server import Server

if TYPE_CHECKING:
    from pytest_gpuserve.load.api import Target


NOTICE_S = 15.0
LOADED = threading.Event()
"""A request is being answered."""


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def make(folder: Path, port: int, wanted: dict[str, Any]) -> Server:
    site = Site(python=wanted.pop("python", sys.executable), env=wanted.pop("site_env", {}))
    leases = Leases(folder / "leases", slots=1, environment={})
    if wanted.get("engine", "stand-in") == "stand-in":
        return stand_in_engine.server(folder, leases, site=site, count=1, port=port, **wanted)
    from pytest_gpuserve.engines.registry import find

    wanted["model"] = ModelRef(id=wanted["model"])
    log = folder / "logs" / "stand-in-1.log"
    config = stand_in_engine.config(**wanted)
    return Server(find(config.engine), config, site, log=log, leases=leases, count=1, port=port)


def keep_busy(target: Target, requests_left: int) -> None:
    """So many streamed completions, one after the other, for as long as somebody answers."""
    import requests

    try:
        model = requests.get(f"{target.url}/v1/models", timeout=60).json()["data"][0]["id"]
    except (requests.RequestException, ValueError, LookupError):
        model = "none"  # vLLM alone refuses a name that it does not have
    body = {"model": model, "prompt": "a b c", "max_tokens": 400, "stream": True, "ignore_eos": True}
    for _ in range(requests_left):
        try:
            with requests.post(f"{target.url}/v1/completions", json=body, stream=True, timeout=600) as answer:
                answer.raise_for_status()
                for _ in answer.iter_content(256):
                    LOADED.set()
        except requests.RequestException as error:
            print(error, file=sys.stderr)
            return


def main(folder: Path, port: int, wanted: dict[str, Any]) -> None:
    load = wanted.pop("load", 0)
    server = make(folder, port, wanted)
    try:
        server.start()
        supervised = server._supervised
        assert supervised is not None
        say(state="started", **(supervised.started or {}))
        server.wait_ready()
        if load:
            threading.Thread(target=keep_busy, args=(server.target, load), daemon=True).start()
            if not LOADED.wait(120.0):
                raise SystemExit("no request is answered")
        say(state="serving")
        asked, until = False, float("inf")
        while not asked and time.monotonic() < until:
            server.check()
            if time.monotonic() < until < float("inf"):
                time.sleep(0.05)
            elif select.select([sys.stdin], [], [], 0.05)[0]:
                # A line asks for the stop; the end of input, that whoever killed something awaits the verdict.
                asked = bool(sys.stdin.readline())
                until = time.monotonic() + NOTICE_S
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
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
