"""What `gpuserve bench` is asked for on its command line."""

from __future__ import annotations

import argparse
import os

from ..errors import InputError
from ..model import Lengths, Slo, Workload
from .api import Target
from .dialects import DIALECTS

_LENGTHS = "tokens: 128, a range 64-256, or lognormal:MEAN:SIGMA"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `gpuserve bench` takes."""
    add = parser.add_argument
    add("url", help="such as http://127.0.0.1:30000")
    add("--engine", metavar="NAME", help=f"{', '.join(DIALECTS)} (default: what the server says)")
    add("--api", choices=("generate", "completions", "chat"), help="default: the engine's most exact one")
    add("--path", help="of the endpoint, where it is not the usual one")
    add("--model", metavar="NAME", help="default: the first one that the server lists")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--concurrency", type=_positive, metavar="N", help="requests in flight (default 1)")
    load.add_argument("--rate", type=_rate, metavar="R", help="requests per second, open loop")
    load.add_argument("--burst", action="store_true", help="all requests at once")
    add("--arrival", choices=("poisson", "constant"), default="poisson", help="with --rate")
    add("--requests", type=_positive, metavar="N", help="default 16, or 4 for each of --concurrency")
    add("--duration", type=_rate, metavar="S", help="send for so many seconds instead")
    add("--input-tokens", type=lengths, default=lengths("128"), metavar="L", help=_LENGTHS)
    add("--output-tokens", type=lengths, default=lengths("128"), metavar="L", help="likewise")
    add("--dataset", metavar="FILE", help="prompts from JSONL in the shape of ShareGPT")
    add("--shared-prefix", type=float, default=0.0, metavar="SHARE", help="of each prompt, 0 to 1")
    add("--warm-cache", action="store_true", help="do not call cached prompt tokens a fault")
    add("--warmup", type=int, default=0, metavar="N", help="requests before the measured ones (default 0)")
    add("--warmup-seconds", type=float, default=0.0, metavar="S", help="or seconds of load before them")
    add("--temperature", type=float, default=0.0, metavar="T")
    add("--natural-stop", action="store_true", help="let the model end its answers (no ignore_eos)")
    add("--text", action="store_true", help="send text where token ids could be sent")
    add(
        "--vocabulary", type=_positive, metavar="N", help="token ids of prompts stay below it (default 32000)"
    )
    add("--seed", type=int, help="of prompts and arrivals (default: another one each time, printed)")
    add("--stall", type=_rate, default=60.0, metavar="S", help="give up after so long without a token")
    for name in ("ttft", "tpot", "e2e"):
        add(f"--slo-{name}", type=_rate, metavar="MS", help="for goodput" if name == "ttft" else None)
    add("--header", action="append", default=[], metavar="'NAME: VALUE'")
    add("--api-key-env", metavar="VAR", help="variable that holds the API key")
    add("--insecure", action="store_true", help="accept any certificate")
    add("--ca-file", metavar="PEM")
    add("--json", action="store_true", help="one object with the record's names on stdout")
    add("--samples", metavar="FILE", help="write each request's token times as JSON lines")
    add("--quiet", action="store_true", help="no live line on stderr")


def lengths(written: str) -> Lengths:
    """`128`, `64-256` (uniform) or `lognormal:128:0.5`. Raises ArgumentTypeError."""
    try:
        if written.startswith("lognormal:"):
            _, mean, sigma = written.split(":")
            return Lengths(kind="lognormal", mean=float(mean), sigma=float(sigma))
        if "-" in written:
            low, high = map(int, written.split("-"))
            if 1 <= low <= high:
                return Lengths(kind="uniform", mean=(low + high) / 2, low=low, high=high)
        elif int(written) >= 1:
            return Lengths(mean=int(written))
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{written!r} is none of {_LENGTHS}")


def _positive(written: str) -> int:
    value = int(written)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _rate(written: str) -> float:
    value = float(written)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def target_of(options: argparse.Namespace) -> tuple[Target, str]:
    """Where the server listens, and the path before its endpoints. Raises InputError."""
    from urllib.parse import urlsplit

    url = options.url if "//" in options.url else f"http://{options.url}"
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.username:
        raise InputError(f"{options.url}: not a URL such as http://127.0.0.1:30000")
    headers = {}
    for header in options.header:
        name, colon, value = header.partition(":")
        if not colon:
            raise InputError(f"--header {header!r}: not 'NAME: VALUE'")
        headers[name.strip()] = value.strip()
    if options.api_key_env:
        if not (key := os.environ.get(options.api_key_env)):
            raise InputError(f"--api-key-env {options.api_key_env}: the variable is not set")
        headers["Authorization"] = f"Bearer {key}"
    tls = parts.scheme == "https"
    target = Target(
        host=parts.hostname,
        port=port or (443 if tls else 80),
        tls=tls,
        headers=headers,
        verify=not options.insecure,
        ca_file=options.ca_file,
    )
    return target, parts.path.rstrip("/").removesuffix("/v1")


def workload_of(options: argparse.Namespace) -> Workload:
    """The load that the options describe."""
    concurrency = options.concurrency
    if concurrency is None and options.rate is None and not options.burst:
        concurrency = 1
    requests = options.requests
    if requests is None and options.duration is None:
        requests = max(16, 4 * (concurrency or 0))
    limits = (options.slo_ttft, options.slo_tpot, options.slo_e2e)
    return Workload(
        name="bench",
        concurrency=concurrency,
        request_rate=options.rate,
        arrival=options.arrival,
        requests=requests,
        duration=options.duration,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
        dataset=options.dataset,
        shared_prefix=options.shared_prefix,
        cache="warm" if options.warm_cache else "cold",
        warmup=options.warmup,
        warmup_seconds=options.warmup_seconds,
        rounds=1,
        ignore_eos=not options.natural_stop,
        temperature=options.temperature,
        slo=Slo(ttft_ms=limits[0], tpot_ms=limits[1], e2e_ms=limits[2]) if any(limits) else None,
        stall=options.stall,
    )
