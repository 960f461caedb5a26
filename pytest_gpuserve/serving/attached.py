"""A server that somebody else runs: measured like one of ours, and neither started nor stopped."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import CaseError, Crashed, EngineMissing, Stalled, StartFailed
from ..model import EngineBuild
from ..record import Failure, Launch
from . import environment

if TYPE_CHECKING:
    from pathlib import Path

    from ..engines.base import Engine
    from ..load.api import Target
    from ..model import Config

PATIENCE_S = 30.0
"""For a server that is just starting, or busy."""


class AttachedServer:
    """Fulfils `pool.Startable`. Of its log nothing is known, so `log` holds one line that says so."""

    def __init__(self, engine: Engine, config: Config, target: Target, *, log: Path) -> None:
        import os

        self.target = target
        self.log = log.absolute()
        self.gpus: tuple[int, ...] = ()
        """Which ones it has is not known, and they may be another machine's."""
        self._engine = engine
        self._config = config
        self._redactor = environment.redactor(engine, config, os.environ)
        self._started = ""

    def start(self) -> None:
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text(f"attached to {self.target.url}; the server's own log is not known here\n")

    def wait_ready(self) -> None:
        """Return when it answers. Raises StartFailed when it does not within `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        while (said := answer(self.target, self._engine.ready_path)) != "200":
            if time.monotonic() > deadline:
                text = f"{self._config.id}: {self.target.url}{self._engine.ready_path} does not answer 200: {said}"
                raise StartFailed(
                    text, failure=Failure(failure_class="environment", message=text, environment=True)
                )
            time.sleep(0.2)

    def failed(self) -> bool:
        """False: that it has died shows in its answers alone."""
        return False

    def owns(self, pid: int) -> bool | None:
        """None: its processes are not known."""
        return None

    def crash(self) -> CaseError:
        return Crashed(f"{self._config.id}: the server at {self.target.url} is gone")

    def stall(self) -> CaseError:
        text = f"{self._config.id}: the server at {self.target.url} gives no token"
        return Stalled(
            text, failure=Failure(failure_class="hang_serving", phase="serving", message="gives no token")
        )

    def stop(self) -> None:
        """It is not ours."""

    def launch_facts(self) -> Launch:
        return Launch(started=self._started, log=f"{self.log.parent.name}/{self.log.name}")

    def redact(self, data: Any) -> Any:
        return self._redactor.data(data)


def build(engine: Engine, target: Target) -> EngineBuild:
    """What runs there, as far as it says so. Raises EngineMissing when nothing answers."""
    import requests

    try:
        said = engine.info(target)
    except (requests.RequestException, ValueError) as error:
        raise EngineMissing(f"no {engine.name} answers at {target.url}: {type(error).__name__}") from error
    version = said.get("version")
    return EngineBuild(
        name=engine.name, version=version if isinstance(version, str) else "unknown", build="attached"
    )


def answer(target: Target, path: str) -> str:
    """The status of the answer to GET as text, or why there is none."""
    import requests

    from ..engines.control import ask

    try:
        return str(ask("GET", target, path).status_code)
    except requests.RequestException as error:
        return type(error).__name__
