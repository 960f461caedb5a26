"""`python -m pytest_gpuserve.engines.simulated --profile NAME --version V [...] -- <SGLang's own flags>`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import TYPE_CHECKING

from ...errors import InputError
from . import arguments, known
from .log import Log
from .loop import Loop
from .perturb import ACTIONS, OPEN_SPEEDUP, Change
from .profile import DEFAULT_PROFILE, DEFAULT_VERSION, death_text, load_profile, load_version
from .scheduler import Scheduler
from .server import Server
from .start import Start, leave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .profile import Profile, Route, Serving, Version

POOL_TOKENS = 143360
PLAIN_REQUESTS, SPECULATIVE_REQUESTS = 2048, 48
"""What SGLang resolves `max_running_requests` to."""
WARMUP_S = 5.0


def main(argv: Sequence[str] | None = None) -> None:
    options, flags = _options(sys.argv[1:] if argv is None else argv)
    try:
        profile = load_profile(options.profile)
        version = load_version(options.profile, options.version)
    except InputError as error:
        sys.exit(f"simulated: {error}")
    log = Log(profile.host.count, milliseconds=os.environ.get("SGLANG_LOG_MS", "").lower() in ("1", "true"))
    change = Change(slowdown=options.slowdown, action=options.action)
    try:
        fields = arguments.parse(version.flags, flags)
    except arguments.Refused as refusal:
        log.raw(version.start[0].log)
        log.raw(str(refusal))
        leave(log, (), 2)
    env = {name: os.environ[name] for name in options.env if name in os.environ}
    # What a cheap start changes is never measured: a suite's case with it is skipped before it gets here.
    route = known.route(profile, version, fields, env, starting=True)
    if isinstance(route, known.Unknown):
        sys.exit(f"simulated: {route.reason}")
    serve(options, profile, version, route, fields, change, log)


def serve(
    options: argparse.Namespace,
    profile: Profile,
    version: Version,
    route: Route,
    fields: dict[str, object],
    change: Change,
    log: Log,
) -> None:
    """Start, listen and answer until the end of the process."""
    serving, speedup = _serving(profile, version, route, change)
    speculative = serving.accept_length is not None
    if fields.get("max_running_requests") is None:
        fields["max_running_requests"] = SPECULATIVE_REQUESTS if speculative else PLAIN_REQUESTS
    log.words |= {"args": arguments.as_text(fields), "max_running": str(fields["max_running_requests"])}
    start = Start(version, route, change, log, profile=options.profile, scale=options.startup_scale)
    start.play(speculative=speculative)
    loop = Loop()
    scheduler = Scheduler(
        loop,
        log,
        profile,
        serving,
        version.serve,
        change=change,
        open_speedup=speedup,
        time_scale=options.time_scale,
        pool_tokens=POOL_TOKENS,
    )
    server = Server(
        loop,
        log,
        profile,
        version,
        scheduler,
        fields,
        crash_text=death_text(options.profile, version.crash),
        time_scale=options.time_scale,
        startup_scale=options.startup_scale,
        pool_tokens=POOL_TOKENS,
    )
    server.listen()
    start.wait(WARMUP_S)
    server.warm_up()
    # A collection takes longer than a token here; nothing that this process makes is cyclic and large.
    gc.collect()
    gc.freeze()
    gc.disable()
    loop.run()


def _serving(profile: Profile, version: Version, route: Route, change: Change) -> tuple[Serving, float]:
    """How a route serves, and by how much faster: a `slower` dead end that works overtakes plain decoding."""
    table = {**profile.serving, **version.serving}
    serving = table[route.serves]
    plain = table["no-spec"].output_throughput.value
    if change.action == "opens" and serving.output_throughput.value < plain:
        return serving, OPEN_SPEEDUP * plain / serving.output_throughput.value
    return serving, 1.0


def _options(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, which come first, and SGLang's, after a lone `--`."""
    split = argv.index("--") if "--" in argv else 0
    own, flags = [*argv[:split]], [*argv[split + 1 if "--" in argv else 0 :]]
    parser = argparse.ArgumentParser(prog="python -m pytest_gpuserve.engines.simulated", allow_abbrev=False)
    parser.add_argument("--profile", default=DEFAULT_PROFILE)
    parser.add_argument("--version", default=DEFAULT_VERSION)
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="real seconds per simulated one, serving"
    )
    parser.add_argument("--startup-scale", type=float, default=1.0, help="the same for the start and the end")
    parser.add_argument("--slowdown", type=float, default=0.0, help="share by which throughput falls")
    parser.add_argument("--action", choices=ACTIONS, help="what a perturbation makes of it")
    parser.add_argument("--env", action="append", default=[], help="a variable that the config sets")
    return parser.parse_args(own), flags


if __name__ == "__main__":
    main()
