"""The files of the model: a Hugging Face folder, and a GGUF with the same weights beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
from safetensors.numpy import save_file

from . import CONTEXT, GGUF, MODELS, vocabulary, weights

if TYPE_CHECKING:
    from pathlib import Path

    from . import Shape
    from .vocabulary import Vocabulary
    from .weights import Tensors

ARCHITECTURE = "qwen2"
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
"""Layers as Hugging Face and as llama.cpp name them."""


def write(model: str, into: Path) -> None:
    """Every file of one of MODELS, into a folder that exists."""
    known, shape = vocabulary.vocabulary(), MODELS[model]
    tensors = weights.tensors(known, shape)
    for name, content in documents(known, shape).items():
        (into / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    write_gguf(into / GGUF, model, shape, known, tensors)


def documents(known: Vocabulary, shape: Shape) -> dict[str, Any]:
    """What a Hugging Face folder says in JSON, by file name."""
    end, pad = known.id(vocabulary.TURN_END), known.id(vocabulary.END)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": known.id(token), "content": token, **special} for token in vocabulary.SPECIAL]
    return {
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": ARCHITECTURE,
            "vocab_size": len(known.tokens),
            "hidden_size": shape.hidden,
            "intermediate_size": shape.feed_forward,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": weights.NORM_EPSILON,
            "rope_theta": weights.ROPE_BASE,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
            "torch_dtype": "float32",
            "eos_token_id": end,
            "bos_token_id": None,
            "use_sliding_window": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
        },
        "generation_config.json": {"eos_token_id": end, "pad_token_id": pad, "do_sample": False},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": vocabulary.TURN_END,
            "pad_token": vocabulary.END,
            "model_max_length": CONTEXT,
            "chat_template": vocabulary.CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: number for number, token in enumerate(known.tokens)},
                "merges": [list(pair) for pair in known.merges],
            },
        },
    }


def write_gguf(file: Path, name: str, shape: Shape, known: Vocabulary, tensors: Tensors) -> None:
    """For llama.cpp."""
    out = gguf.GGUFWriter(file, ARCHITECTURE)
    out.add_name(name)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(shape.hidden)
    out.add_block_count(shape.layers)
    out.add_feed_forward_length(shape.feed_forward)
    out.add_head_count(shape.heads)
    out.add_head_count_kv(shape.kv_heads)
    out.add_layer_norm_rms_eps(weights.NORM_EPSILON)
    out.add_rope_freq_base(weights.ROPE_BASE)
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(list(known.tokens))
    kinds = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.NORMAL}
    out.add_token_types([kinds[token in vocabulary.SPECIAL] for token in known.tokens])
    out.add_token_merges([" ".join(pair) for pair in known.merges])
    out.add_eos_token_id(known.id(vocabulary.TURN_END))
    out.add_pad_token_id(known.id(vocabulary.END))
    out.add_add_bos_token(False)
    out.add_chat_template(vocabulary.CHAT_TEMPLATE)
    for tensor_name, tensor in tensors.items():
        out.add_tensor(gguf_name(tensor_name), tensor)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def gguf_name(name: str) -> str:
    """`model.layers.0.mlp.up_proj.weight` -> `blk.0.ffn_up.weight`."""
    layer, _, kind = name.rpartition(".")
    if layer in GGUF_NAMES:
        return f"{GGUF_NAMES[layer]}.{kind}"
    _, _, number, part = layer.split(".", 3)
    return f"blk.{number}.{GGUF_NAMES[part]}.{kind}"
