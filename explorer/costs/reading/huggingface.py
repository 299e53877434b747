"""Hugging Face ``config.json``: dense models, mixtures of experts, latent attention.

Keys are those of the library ``transformers``, as its configuration classes name them.
"""

from __future__ import annotations

import json
from typing import Any

from explorer.core.errors import Malformed
from explorer.costs.architecture import MOST_LAYERS, Architecture, Experts, Latent

_SAME = {
    "n_layer": "num_hidden_layers",
    "num_layers": "num_hidden_layers",
    "n_embd": "hidden_size",
    "n_embed": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "ffn_dim": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "num_local_experts": "num_experts",
    "n_routed_experts": "num_experts",
}
"""Other names of the same key, as GPT-2, BLOOM, OPT, Mixtral and DeepSeek have them."""
_PLAIN = ("gpt2", "opt", "bloom", "gpt_neox", "gptj")
"""Types of model whose MLP has no gate."""
_LEARNED = ("gpt2", "opt")
"""Types of model with learned positions."""
_DROPOUT = ("gpt2", "opt")
"""Types of model that drop out by default."""
_GATED = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3",
)  # fmt: skip
_TIED = ("gpt2", "opt", "bloom", "gemma")
"""Types of model that tie the head to the embedding unless they say otherwise."""


def architecture(text: str, where: str) -> Architecture:
    """The architecture that a ``config.json`` describes.

    Raises
    ------
    Malformed
        If it is no JSON (with line and column), or a key is missing or no positive whole number.
    """
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg}", f"{where}:{error.lineno}:{error.colno}") from None
    except (RecursionError, ValueError):
        raise Malformed(
            "not JSON that can be read: nested too deeply, or a number with thousands of digits", where
        ) from None
    if not isinstance(given, dict):
        raise Malformed("a config.json is an object", where)
    keys: dict[str, Any] = {}
    for name, value in given.items():
        key = _SAME.get(str(name), str(name))
        if value is None:
            continue
        known = keys.setdefault(key, value)
        if known is not value and known != value:
            raise Malformed(f"{name} is {value!r}, and another name of it {known!r}", where)
    return _Config(keys, where).architecture()


class _Config:
    def __init__(self, keys: dict[str, Any], where: str) -> None:
        self.keys, self.where = keys, where
        self.type = str(keys.get("model_type", ""))
        self.assumed: list[str] = []

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self.keys.get(name, default)
        if value is None:
            raise Malformed(f"the key {name!r} is missing", self.where)
        if type(value) is not int or value < least:
            raise Malformed(f"{name} must be a whole number of at least {least}, got {value!r}", self.where)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.keys.get(name, default)
        if type(value) is not bool:
            raise Malformed(f"{name} must be true or false, got {value!r}", self.where)
        return value

    def architecture(self) -> Architecture:
        missing = [
            name
            for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
            if name not in self.keys
        ]
        if missing:
            kind = f" of type {self.type!r}" if self.type else ""
            raise Malformed(f"a model{kind} needs the keys {', '.join(missing)}", self.where)
        layers, hidden, heads = (
            self.count(name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
        )
        if layers > MOST_LAYERS:
            raise Malformed(f"at most {MOST_LAYERS} layers, got {layers}", self.where)
        latent = self.latent()
        experts = self.experts(hidden)
        width = self.count("head_dim", 0, least=0) or self.even(hidden, heads)
        gated = self.gated()
        if self.keys.get("sliding_window") and self.keys.get("use_sliding_window", True):
            self.assumed.append(f"{self.where} has a sliding window: scores are those of whole sequences")
        return Architecture(
            name=self.type or "model",
            layers=layers,
            hidden=hidden,
            heads=heads,
            key_value_heads=heads if latent else self.count("num_key_value_heads", heads),
            head_width=width,
            feed_forward=self.feed_forward(hidden),
            vocabulary=self.count("vocab_size"),
            gated=gated,
            tied=self.flag("tie_word_embeddings", self.type in _TIED),
            dropout=self.type in _DROPOUT,
            positions=self.count("max_position_embeddings") if self.type in _LEARNED else 0,
            latent=latent,
            experts=experts,
            expert_layers=self.expert_layers(layers) if experts else frozenset(),
            prediction_layers=self.count("num_nextn_predict_layers", 0, least=0),
            assumed=tuple(self.assumed),
        )

    def even(self, hidden: int, heads: int) -> int:
        if hidden % heads:
            raise Malformed(f"{heads} heads do not divide a width of {hidden}, and there is no head_dim", self.where)
        return hidden // heads

    def gated(self) -> bool:
        if self.type not in (*_PLAIN, *_GATED):
            self.assumed.append(
                f"{self.where} is of type {self.type or 'none'}, which is not known: assumed are a gated MLP, rotary "
                "positions and plain attention"
            )
        return self.type not in _PLAIN

    def feed_forward(self, hidden: int) -> int:
        if "intermediate_size" not in self.keys:
            if self.type not in _PLAIN:
                raise Malformed("the key 'intermediate_size' is missing", self.where)
            return 4 * hidden
        return self.count("intermediate_size")

    def latent(self) -> Latent | None:
        if "kv_lora_rank" not in self.keys:
            return None
        return Latent(
            self.count("q_lora_rank", 0, least=0),
            self.count("kv_lora_rank"),
            self.count("qk_nope_head_dim"),
            self.count("qk_rope_head_dim"),
            self.count("v_head_dim"),
        )

    def experts(self, hidden: int) -> Experts | None:
        count = self.count("num_experts", 0, least=0)
        if not count:
            return None
        inner = self.count("moe_intermediate_size", 0, least=0) or self.count("intermediate_size")
        shared = self.count("n_shared_experts", 0, least=0) * inner
        return Experts(
            count,
            self.count("num_experts_per_tok"),
            inner,
            shared or self.count("shared_expert_intermediate_size", 0, least=0),
        )

    def expert_layers(self, layers: int) -> frozenset[int]:
        """Qwen's sparse step and list of dense layers; DeepSeek's dense first layers and frequency."""
        step = self.count("decoder_sparse_step", 1)
        dense = self.keys.get("mlp_only_layers", [])
        if not isinstance(dense, list):
            raise Malformed("mlp_only_layers must be a list", self.where)
        for layer in dense:
            if type(layer) is not int or layer < 0:
                raise Malformed(f"mlp_only_layers must be numbers of layers, from 0, got {layer!r}", self.where)
        first, every = self.count("first_k_dense_replace", 0, least=0), self.count("moe_layer_freq", 1)
        return frozenset(
            layer
            for layer in range(layers)
            if layer not in dense and (layer + 1) % step == 0 and layer >= first and layer % every == 0
        )
