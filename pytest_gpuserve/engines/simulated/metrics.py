"""`/metrics` in Prometheus' text format, with the names and labels of SGLang's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from .scheduler import Scheduler

_HELP: dict[str, tuple[str, str]] = {
    "prompt_tokens_total": ("counter", "Number of prefill tokens processed."),
    "generation_tokens_total": ("counter", "Number of generation tokens processed."),
    "cached_tokens_total": ("counter", "Number of cached prompt tokens."),
    "num_requests_total": ("counter", "Number of requests processed."),
    "cuda_graph_passes_total": ("counter", "Total number of forward passes categorized by CUDA graph."),
    "spec_verify_calls_total": ("counter", "Number of speculative verification calls."),
    "gen_throughput": ("gauge", "The generation throughput (token/s)."),
    "num_running_reqs": ("gauge", "The number of running requests."),
    "num_queue_reqs": ("gauge", "The number of requests in the waiting queue."),
    "token_usage": ("gauge", "The token usage."),
    "spec_accept_length": ("gauge", "The average acceptance length of speculative decoding."),
    "spec_accept_rate": ("gauge", "The average acceptance rate of speculative decoding."),
}


def text(scheduler: Scheduler, model: str, names: Collection[str], pool_tokens: int) -> str:
    """The metrics that a version has, in its order."""
    counters = scheduler.counters
    used = sum(g.prompt_tokens + g.tokens for g in scheduler.running)
    values: dict[str, list[tuple[str, float]]] = {
        "prompt_tokens_total": [("", counters.prompt)],
        "generation_tokens_total": [("", counters.generated)],
        "cached_tokens_total": [(',cache_source="device"', counters.cached)] if counters.cached else [],
        "num_requests_total": [("", counters.requests)],
        "cuda_graph_passes_total": [
            (',mode="prefill_none"', counters.prefills),
            (',mode="decode_cuda_graph"', counters.steps),
        ],
        "spec_verify_calls_total": [("", counters.passes)] if scheduler.speculative else [],
        "gen_throughput": [("", counters.throughput)],
        "num_running_reqs": [("", len(scheduler.running))],
        "num_queue_reqs": [("", 0)],
        "token_usage": [("", used / pool_tokens)],
        "spec_accept_length": [("", counters.accept_length)],
        "spec_accept_rate": [("", counters.accept_rate)],
    }
    lines = []
    for name in names:
        kind, help_text = _HELP[name]
        lines += [f"# HELP sglang:{name} {help_text}", f"# TYPE sglang:{name} {kind}"]
        for labels, value in values[name]:
            lines.append(
                f'sglang:{name}{{engine_type="unified",model_name="{model}"{labels}}} {float(value)}'
            )
    return "\n".join(lines) + "\n"
