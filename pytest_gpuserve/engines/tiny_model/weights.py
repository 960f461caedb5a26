"""Random weights of a Qwen2, by their names in a Hugging Face checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import HEAD

if TYPE_CHECKING:
    from . import Shape
    from .vocabulary import Vocabulary

Tensors: TypeAlias = dict[str, NDArray[np.float32]]

NORM_EPSILON, ROPE_BASE = 1e-6, 10000.0

CONSTANT = 0.6
"""Hidden dimension 0 is this everywhere: every embedding has it and no layer writes to it. Through it the
rows of the output layer can forbid a token whatever the text before it.
"""
FORBIDDEN = -1e4


def tensors(vocabulary: Vocabulary, shape: Shape) -> Tensors:
    """Float32 throughout: llama.cpp crashes on a GGUF of float64."""
    # RandomState's stream is frozen (NEP 19), so every NumPy makes the same model.
    random = np.random.RandomState(0)

    def draw(rows: int, columns: int, scale: float) -> NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    def silent(rows: int, columns: int, scale: float) -> NDArray[np.float32]:
        """Writes to the residual stream, and nothing to its dimension 0."""
        drawn = draw(rows, columns, scale)
        drawn[0] = 0
        return drawn

    size, hidden = len(vocabulary.tokens), shape.hidden
    # Larger than trained weights are, so that the text depends on its past and does not run in circles.
    attention, mixing = 1.2 / hidden**0.5, 2.0 / hidden**0.5
    found: Tensors = {"model.embed_tokens.weight": draw(size, hidden, 0.2)}
    found["model.embed_tokens.weight"][:, 0] = CONSTANT
    for layer in range(shape.layers):
        of = f"model.layers.{layer}."
        for name, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            found[f"{of}self_attn.{name}_proj.weight"] = draw(heads * HEAD, hidden, attention)
            found[f"{of}self_attn.{name}_proj.bias"] = np.zeros(heads * HEAD, np.float32)
        found[f"{of}self_attn.o_proj.weight"] = silent(hidden, shape.heads * HEAD, mixing)
        found[f"{of}mlp.gate_proj.weight"] = draw(shape.feed_forward, hidden, mixing)
        found[f"{of}mlp.up_proj.weight"] = draw(shape.feed_forward, hidden, mixing)
        found[f"{of}mlp.down_proj.weight"] = silent(hidden, shape.feed_forward, mixing)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{of}{name}.weight"] = np.ones(hidden, np.float32)
    found["model.norm.weight"] = np.ones(hidden, np.float32)
    found["lm_head.weight"] = draw(size, hidden, 0.4)
    found["lm_head.weight"][:, 0] = 0
    found["lm_head.weight"][vocabulary.unspeakable(), 0] = FORBIDDEN
    return found
