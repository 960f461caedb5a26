"""llama.cpp's HTTP server out of the package xllamacpp, with the flags of `llama-server`.

Run as a program, by the interpreter that has xllamacpp and need not have anything else: this file imports
nothing of ours. Flags that it does not know are refused in llama-server's own words; the table says which
it knows.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SWITCH = object()
"""In place of a converter: a flag without a value."""


def _member(enumeration: str, prefix: str, **other: str) -> Callable[[str], Any]:
    """Converts `q8_0` to `ggml_type.GGML_TYPE_Q8_0`; `other` has the names that differ."""

    def convert(word: str) -> Any:
        import xllamacpp

        return getattr(xllamacpp, enumeration)[prefix + other.get(word, word).upper()]

    return convert


CACHE_TYPE = _member("ggml_type", "GGML_TYPE_")

FLAGS: dict[str, tuple[str, Any, Any]] = {
    "model": ("model.path", str, None),
    "alias": ("model_alias", lambda word: set(word.split(",")), None),
    "host": ("hostnames", lambda word: [word], None),
    "port": ("port", int, None),
    "api-key": ("api_keys", lambda word: word.split(","), None),
    "ctx-size": ("n_ctx", int, None),
    "parallel": ("n_parallel", int, None),
    "batch-size": ("n_batch", int, None),
    "ubatch-size": ("n_ubatch", int, None),
    "predict": ("n_predict", int, None),
    "threads": ("cpuparams.n_threads", int, None),
    "threads-batch": ("cpuparams_batch.n_threads", int, None),
    "threads-http": ("n_threads_http", int, None),
    "poll": ("cpuparams.poll", int, None),
    "gpu-layers": ("n_gpu_layers", int, None),
    "n-gpu-layers": ("n_gpu_layers", int, None),
    "main-gpu": ("main_gpu", int, None),
    "split-mode": ("split_mode", _member("llama_split_mode", "LLAMA_SPLIT_MODE_"), None),
    "flash-attn": (
        "flash_attn_type",
        _member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_", on="enabled", off="disabled"),
        None,
    ),
    "cache-type-k": ("cache_type_k", CACHE_TYPE, None),
    "cache-type-v": ("cache_type_v", CACHE_TYPE, None),
    "cache-ram": ("cache_ram_mib", int, None),
    "cache-reuse": ("n_cache_reuse", int, None),
    "cache-prompt": ("cache_prompt", SWITCH, True),
    "no-cache-prompt": ("cache_prompt", SWITCH, False),
    "slot-prompt-similarity": ("slot_prompt_similarity", float, None),
    "cont-batching": ("cont_batching", SWITCH, True),
    "no-cont-batching": ("cont_batching", SWITCH, False),
    "kv-unified": ("kv_unified", SWITCH, True),
    "no-kv-unified": ("kv_unified", SWITCH, False),
    "no-kv-offload": ("no_kv_offload", SWITCH, True),
    "swa-full": ("swa_full", SWITCH, True),
    "metrics": ("endpoint_metrics", SWITCH, True),
    "slots": ("endpoint_slots", SWITCH, True),
    "no-slots": ("endpoint_slots", SWITCH, False),
    "props": ("endpoint_props", SWITCH, True),
    "warmup": ("warmup", SWITCH, True),
    "no-warmup": ("warmup", SWITCH, False),
    "chat-template": ("chat_template", str, None),
    "seed": ("sampling.seed", int, None),
    "verbosity": ("verbosity", int, None),
    "model-draft": ("speculative.draft.mparams.path", str, None),
    "spec-type": (
        "speculative.types",
        lambda word: [
            _member("common_speculative_type", "COMMON_SPECULATIVE_TYPE_")(one.replace("-", "_"))
            for one in word.split(",")
        ],
        None,
    ),
    "spec-draft-n-max": ("speculative.draft.n_max", int, None),
    "spec-draft-n-min": ("speculative.draft.n_min", int, None),
    "spec-draft-p-min": ("speculative.draft.p_min", float, None),
}
"""Flag -> field of xllamacpp's CommonParams, what converts its value (SWITCH: it has none), a switch's
value.
"""


class Refused(Exception):
    """In the words in which llama-server refuses a command line."""


def settings(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(field, value) for each flag. Raises Refused."""
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or flag not in FLAGS:
            raise Refused(f"invalid argument: {word}")
        field, convert, fixed = FLAGS[flag]
        if convert is SWITCH:
            yield field, fixed
            continue
        if not equals:
            value = next(rest, "")
        try:
            yield field, convert(value)
        except (KeyError, ValueError):
            raise Refused(f'error while handling argument "--{flag}": invalid value {value!r}') from None


def parameters(words: Sequence[str]) -> Any:
    """xllamacpp's CommonParams for a command line. Raises Refused."""
    import xllamacpp

    found = xllamacpp.CommonParams()
    for field, value in settings(words):
        *path, name = field.split(".")
        holder = found
        for part in path:
            holder = getattr(holder, part)
        setattr(holder, name, value)
    return found


def main(words: Sequence[str]) -> NoReturn:
    try:
        asked = parameters(words)
    except Refused as refused:
        sys.exit(f"error: {refused}")
    import xllamacpp

    def end(*_: object) -> NoReturn:
        sys.exit(0)

    # Before the server exists: a signal during the start must not go by unheard.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        # Bound to a name, since the server ends with the object.
        server = xllamacpp.Server(asked)
    except RuntimeError as error:
        sys.exit(f"error: {error}")  # what went wrong stands in the log above
    print(f"serving on {server.listening_address}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
