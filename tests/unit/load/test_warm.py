from __future__ import annotations

import pytest

from pytest_gpuserve.load.dialects import DIALECTS
from pytest_gpuserve.load.settle import settle
from pytest_gpuserve.load.warm import keep_warm


@pytest.mark.parametrize("kind", ["completions", "chat", "generate"])
def test_what_is_read_to_keep_warm_is_a_whole_stream(kind: str) -> None:
    """Anything else would warm the code for errors."""
    api = DIALECTS["sglang" if kind == "generate" else "openai"][kind]
    flight = keep_warm(api.kind)
    assert flight.response.complete
    sample = settle(flight, api)
    assert (sample.failure, sample.output_tokens, list(sample.stamps)) == (None, 2, [0, 1])
