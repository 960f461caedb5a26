from __future__ import annotations

from pytest_gpuserve.engines.exposition import total

TEXT = """\
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{engine_type="unified",model_name="/models/llama1b"} 8.0
sglang:cuda_graph_passes_total{mode="prefill_none",model_name="tiny",tp_rank="0"} 54.0
sglang:cuda_graph_passes_total{mode="decode_none",model_name="tiny",tp_rank="0"} 1456.0
sglang:cuda_graph_passes_total{mode="decode_none",model_name="tiny",tp_rank="1"} 4
sglang:max_total_num_tokens{model_name="tiny"} 4.048463e+06
sglang:fwd_occupancy{model_name="tiny"} NaN
sglang:routing_keys_active 0.0
"""


def test_one_sample() -> None:
    assert total(TEXT, "sglang:generation_tokens_total") == 8.0


def test_sum_over_labels() -> None:
    assert total(TEXT, "sglang:cuda_graph_passes_total") == 1514.0
    assert total(TEXT, "sglang:cuda_graph_passes_total", {"mode": "decode_none"}) == 1460.0


def test_exponents_and_samples_without_labels() -> None:
    assert total(TEXT, "sglang:max_total_num_tokens") == 4048463.0
    assert total(TEXT, "sglang:routing_keys_active") == 0.0


def test_unknown_is_none_never_zero() -> None:
    assert total(TEXT, "sglang:spec_verify_calls_total") is None
    assert total(TEXT, "sglang:cuda_graph_passes_total", {"mode": "other"}) is None
    assert total(TEXT, "sglang:fwd_occupancy") is None


def test_a_name_is_not_a_prefix() -> None:
    assert total(TEXT, "sglang:generation_tokens") is None
