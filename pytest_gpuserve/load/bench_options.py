"""What `gpuserve bench` is asked for on its command line."""

from __future__ import annotations

import argparse
import contextlib
import math

from ..errors import InputError
from ..model import Lengths, Slo, Workload
from .dialects import DIALECTS

MOST_TOKENS = 10_000_000
MOST_SIGMA = 10.0
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
    add("--output-tokens", type=lengths, metavar="L", help="likewise (default: the dataset's, else 128)")
    add("--dataset", metavar="FILE", help="prompts from JSONL in the shape of ShareGPT")
    add("--shared-prefix", type=_share, default=0.0, metavar="SHARE", help="of each prompt, 0 to 1")
    add("--warm-cache", action="store_true", help="do not call cached prompt tokens a fault")
    add(
        "--warmup",
        type=_natural,
        default=0,
        metavar="N",
        help="requests before the measured ones (default 0)",
    )
    add("--warmup-seconds", type=_number, default=0.0, metavar="S", help="or seconds of load before them")
    add("--temperature", type=_number, default=0.0, metavar="T")
    add("--natural-stop", action="store_true", help="let the model end its answers (no ignore_eos)")
    add("--text", action="store_true", help="send text where token ids could be sent")
    add(
        "--vocabulary",
        type=_positive,
        metavar="N",
        help="token ids of prompts stay below it (default: as the server says, at most 8000 for llamacpp; "
        "else 32000)",
    )
    add(
        "--prompt-tolerance",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="prompts may be this much longer or shorter than asked; above 0 binding for text as well",
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
            found = Lengths(kind="lognormal", mean=float(mean), sigma=float(sigma))
            if 1 <= found.mean <= MOST_TOKENS and 0 <= found.sigma <= MOST_SIGMA:
                return found
        elif "-" in written:
            low, high = map(int, written.split("-"))
            if 1 <= low <= high <= MOST_TOKENS:
                return Lengths(kind="uniform", mean=(low + high) / 2, low=low, high=high)
        elif 1 <= int(written) <= MOST_TOKENS:
            return Lengths(mean=int(written))
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{written!r} is none of {_LENGTHS} (1 to {MOST_TOKENS:,})")


def _whole(written: str, least: int) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(written)) >= least:
            return value
    raise argparse.ArgumentTypeError(f"{written!r} is not a whole number of {least} or more")


def _positive(written: str) -> int:
    return _whole(written, 1)


def _natural(written: str) -> int:
    return _whole(written, 0)


def _number(written: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(written)) and value >= 0:
            return value
    raise argparse.ArgumentTypeError(f"{written!r} is not a number of 0 or more")


def _rate(written: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(written)) and value > 0:
            return value
    raise argparse.ArgumentTypeError(f"{written!r} is not a number above 0")


def _share(written: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(written)) <= 1:
            return value
    raise argparse.ArgumentTypeError(f"{written!r} is not a share from 0 to 1")


def workload_of(options: argparse.Namespace) -> Workload:
    """The load that the options describe. Raises InputError."""
    concurrency = options.concurrency
    if concurrency is None and options.rate is None and not options.burst:
        concurrency = 1
    requests, output = options.requests, options.output_tokens
    if options.burst and requests is None and options.duration is not None:
        raise InputError("--burst sends all requests at once: give --requests and no --duration")
    if output is None:
        output = lengths("128") if options.dataset is None else Lengths()
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
        output_tokens=output,
        dataset=options.dataset,
        shared_prefix=options.shared_prefix,
        cache="warm" if options.warm_cache else "cold",
        prompt_tolerance=options.prompt_tolerance,
        warmup=options.warmup,
        warmup_seconds=options.warmup_seconds,
        rounds=1,
        ignore_eos=not options.natural_stop,
        temperature=options.temperature,
        slo=Slo(ttft_ms=limits[0], tpot_ms=limits[1], e2e_ms=limits[2]) if any(limits) else None,
        stall=options.stall,
    )
