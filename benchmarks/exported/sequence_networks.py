"""Networks of texts and sounds that transformers and PyTorch itself have, beside those of `networks`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import transformers
from network import VOCABULARY, Network, cached, text
from parts import EncoderDecoder, Outputs, Pair, Stack

_SMALL: Final = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
                 "vocab_size": VOCABULARY, "max_position_embeddings": 64}  # fmt: skip
#: Fewer layers than the published ones, of the same widths: a file has at most some 500 MB.
_LAYERS: Final = 6


def encoder(family: str, full: bool, **more: Any) -> Network:
    """Encode tokens."""
    wide = {"num_hidden_layers": _LAYERS}
    config = getattr(transformers, f"{family}Config")(**(wide if full else {**_SMALL, **more}))
    return text(Outputs(getattr(transformers, f"{family}Model")(config), 1), full)


def deberta(full: bool) -> Network:
    """Attention of contents and of relative positions apart."""
    positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16 if not full else 256,
                 "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False}  # fmt: skip
    sizes = {"hidden_size": 768, "num_hidden_layers": _LAYERS, "num_attention_heads": 12, "intermediate_size": 3072,
             "vocab_size": 32000}  # fmt: skip
    config = transformers.DebertaV2Config(**{**(sizes if full else _SMALL), **positions})
    return text(Outputs(transformers.DebertaV2Model(config), 1), full)


def modernbert(full: bool) -> Network:
    """Rotated positions, gated layers, and attention to near tokens in some layers."""
    sizes = {"num_hidden_layers": _LAYERS} if full else {**_SMALL, "num_hidden_layers": 4, "local_attention": 4}
    config = transformers.ModernBertConfig(
        **sizes, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2,
        attn_implementation="eager",
    )  # fmt: skip
    return text(Outputs(transformers.ModernBertModel(config), 1), full)


def _decoder_config(family: str, full: bool, **more: Any) -> Any:
    small = {**_SMALL, "num_attention_heads": 4, "num_key_value_heads": 2}
    large = {"hidden_size": 1024, "num_hidden_layers": _LAYERS, "num_attention_heads": 16, "num_key_value_heads": 4,
             "intermediate_size": 2816, "vocab_size": 32000, "max_position_embeddings": 2048}  # fmt: skip
    return getattr(transformers, f"{family}Config")(
        **{**(large if full else small), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more}
    )


def step(family: str, full: bool, **more: Any) -> Network:
    """One token, or a few, after some that are in a cache of keys and values."""
    config = _decoder_config(family, full, **more)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    return cached(model, config.num_hidden_layers, heads, size, full)


def prompt(family: str, full: bool, **more: Any) -> Network:
    """A row of tokens without a cache."""
    config = _decoder_config(family, full, use_cache=False, **more)
    return text(Outputs(getattr(transformers, f"{family}ForCausalLM")(config), 1), full)


def mamba(full: bool) -> Network:
    """A state that each token changes."""
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1000} if full else {
        "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "state_size": 8}  # fmt: skip
    model = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes, use_cache=False))
    made = text(Outputs(model, 1), False, mask=False)
    del made.open["attention_mask"]
    if full:
        made.length, made.other, made.is_large = 32, 35, True
    return made


def whisper_decoder(full: bool) -> Network:
    """Attention of tokens, and of what the encoder found."""
    small = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 64,
             "max_source_positions": 20, "max_target_positions": 32, "num_mel_bins": 8, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
    config = transformers.WhisperConfig(**({} if full else small), use_cache=False)
    places, wide = config.max_source_positions, config.d_model
    made = text(EncoderDecoder(transformers.WhisperModel(config).decoder), full, mask=False)
    make = made.make
    made.make = lambda b, n: {**make(b, n), "encoder_hidden_states": torch.randn(b, places, wide)}
    made.open = {"input_ids": {0: "batch", 1: "length"}, "encoder_hidden_states": {0: "batch"}}
    if full:
        made.batch, made.length, made.other = 1, 8, 10
    return made


def bart(full: bool) -> Network:
    """An encoder, and a decoder of the same tokens."""
    small = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": VOCABULARY,
             "max_position_embeddings": 64}  # fmt: skip
    large = {"d_model": 768, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 12,
             "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "vocab_size": 32000}  # fmt: skip
    config = transformers.BartConfig(**(large if full else small), use_cache=False)
    return text(Outputs(transformers.BartModel(config), 1), full)


def clip(full: bool) -> Network:
    """Texts and images beside each other."""
    words = {**_SMALL, "projection_dim": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    places = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
              "image_size": 32, "patch_size": 8, "projection_dim": 16}  # fmt: skip
    config = transformers.CLIPConfig() if full else transformers.CLIPConfig(
        text_config=words, vision_config=places, projection_dim=16
    )  # fmt: skip
    size = config.vision_config.image_size
    made = text(Pair(transformers.CLIPModel(config)), False)
    make = made.make
    made.make = lambda b, n: {**make(b, n), "pixel_values": torch.randn(b, 3, size, size)}
    made.open["pixel_values"] = {0: "images"}
    made.is_large = full
    return made


def spoken(family: str, full: bool) -> Network:
    """Convolutions of sound, then attention."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
             "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_feat_extract_layers": 2,
             "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "vocab_size": 32}  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**({"num_hidden_layers": _LAYERS} if full else small))
    length = 8000 if full else 200
    return Network(
        Outputs(getattr(transformers, f"{family}Model")(config), 1), lambda b, n: {"x": torch.randn(b, n)},
        {"x": {0: "batch", 1: "samples"}}, 2, length, length + 40, full,
    )  # fmt: skip


def ast(full: bool) -> Network:
    """Attention of patches of a spectrogram."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
             "max_length": 40, "num_mel_bins": 32}  # fmt: skip
    config = transformers.ASTConfig(**({"num_hidden_layers": _LAYERS, "max_length": 256} if full else small))
    sizes = config.max_length, config.num_mel_bins
    return Network(
        Outputs(transformers.ASTModel(config), 1), lambda b, _: {"x": torch.randn(b, *sizes)}, {"x": {0: "batch"}}, 1,
        is_large=full,
    )  # fmt: skip


def stack(kind: str, full: bool) -> Network:
    """A module of PyTorch between an embedding and scores."""
    made = text(Stack(kind, VOCABULARY, 256 if full else 16), full, mask=kind == "transformer")
    if kind != "transformer":
        del made.open["attention_mask"]
    return made


def hifigan(full: bool) -> Network:
    """Spectrograms to sound, by transposed convolutions."""
    small = {
        "model_in_dim": 16,
        "upsample_initial_channel": 32,
        "upsample_rates": [4, 4],
        "upsample_kernel_sizes": [8, 8],
    }
    config = transformers.SpeechT5HifiGanConfig(**({} if full else small))
    bins = config.model_in_dim
    length = 32 if full else 12
    return Network(
        transformers.SpeechT5HifiGan(config), lambda b, n: {"x": torch.randn(b, n, bins)},
        {"x": {0: "batch", 1: "frames"}}, 1, length, length + 4, full,
    )  # fmt: skip


SEQUENCE_NETWORKS: Final[dict[str, Callable[[bool], Network]]] = {
    "roberta": partial(encoder, "Roberta", pad_token_id=1),
    "albert": partial(encoder, "Albert", embedding_size=16),
    "electra": partial(encoder, "Electra", embedding_size=16),
    "mpnet": partial(encoder, "MPNet"),
    "deberta_v2": deberta,
    "modernbert": modernbert,
    "qwen2": partial(prompt, "Qwen2"),
    "qwen2_cache": partial(step, "Qwen2"),
    "qwen3_cache": partial(step, "Qwen3", head_dim=64),
    "mistral_cache": partial(step, "Mistral", sliding_window=16),
    "gemma": partial(prompt, "Gemma", head_dim=64),
    "gemma2_cache": partial(step, "Gemma2", head_dim=64, sliding_window=16),
    "phi3_cache": partial(step, "Phi3"),
    "neox_cache": partial(step, "GPTNeoX", num_key_value_heads=None),
    "falcon": partial(prompt, "Falcon"),
    "bloom": partial(prompt, "Bloom"),
    "mamba": mamba,
    "whisper_decoder": whisper_decoder,
    "bart": bart,
    "clip": clip,
    "hubert": partial(spoken, "Hubert"),
    "ast": ast,
    "hifigan": hifigan,
    "transformer": partial(stack, "transformer"),
    "rnn_stack": partial(stack, "rnn"),
    "lstm_stack": partial(stack, "lstm"),
    "gru_stack": partial(stack, "gru"),
}
