"""The networks that `export` writes: each in a small form and in its published one, with example inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torchvision.models as vision
import transformers
from image_networks import IMAGE_NETWORKS
from network import VOCABULARY, Network, cached, image, text
from parts import Detector, Outputs, Tagger, UNet
from sequence_networks import SEQUENCE_NETWORKS
from torch import Tensor, nn
from torchvision.models import convnext, efficientnet, mobilenetv3


def mobilenet_v3(full: bool) -> Network:
    """Squeeze and excitation, hard swish."""
    settings, last = mobilenetv3._mobilenet_v3_conf("mobilenet_v3_small", width_mult=1.0 if full else 0.25)
    return image(mobilenetv3.MobileNetV3(settings, last, num_classes=10), 224 if full else 64, full, other=96)


def efficientnet_b0(full: bool) -> Network:
    """Squeeze and excitation, swish."""
    settings, last = efficientnet._efficientnet_conf(
        "efficientnet_b0", width_mult=1.0 if full else 0.25, depth_mult=1.0 if full else 0.3
    )
    return image(efficientnet.EfficientNet(settings, 0.2, last_channel=last, num_classes=10), 224 if full else 64, full)


def convnext_tiny(full: bool) -> Network:
    """Layer normalization of channels, depthwise kernels of 7."""
    sizes = [(96, 192, 3), (192, 384, 3), (384, 768, 9), (768, None, 3)] if full else [(16, 32, 1), (32, None, 1)]
    settings = [convnext.CNBlockConfig(*each) for each in sizes]
    return image(vision.ConvNeXt(settings, num_classes=10), 224 if full else 32, full)


def swin_tiny(full: bool) -> Network:
    """Attention in shifted windows."""
    widths = (96, [2, 2, 6, 2], [3, 6, 12, 24], [7, 7]) if full else (16, [2, 2], [2, 4], [4, 4])
    wide, depths, heads, window = widths
    made = vision.SwinTransformer([4, 4], wide, depths, heads, window, num_classes=10)  # type: ignore[arg-type]
    return image(made, 224 if full else 40, full)


def vit(full: bool) -> Network:
    """Attention of image patches."""
    if full:
        return image(vision.vit_b_16(), 224, full)
    return image(vision.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), 32, full)


def shufflenet_v2(full: bool) -> Network:
    """Shuffled channels."""
    widths = [24, 116, 232, 464, 1024] if full else [8, 16, 32, 48, 64]
    return image(vision.ShuffleNetV2([4, 8, 4] if full else [2, 2, 2], widths, 10), 224 if full else 64, full)


def vgg(full: bool) -> Network:
    """At 64 pixels: the adaptive pooling before the classifier grows the image."""
    widths: list[Any] = vision.vgg.cfgs["A"] if full else [8, "M", 8, "M", 16, "M", 16, "M", 16, "M"]
    made = vision.VGG(vision.vgg.make_layers(widths), num_classes=10)
    if not full:
        made.classifier = nn.Sequential(nn.Linear(16 * 49, 16), nn.ReLU(), nn.Linear(16, 10))
    return image(made, 64, full)


def resnet(full: bool) -> Network:
    """Convolutions with batch normalization."""
    made = vision.resnet50() if full else vision.ResNet(vision.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
    return image(made, 224 if full else 64, full)


def unet(full: bool) -> Network:
    """Images that shrink and grow, and are joined."""
    return image(UNet(64 if full else 4, 4 if full else 2), 256 if full else 32, full, other=320 if full else 48)


def detector(full: bool) -> Network:
    """One scale of boxes, decoded and suppressed: the number of results depends on the data."""
    return image(Detector(64 if full else 8), 256 if full else 64, full)


def detr(full: bool) -> Network:
    """A transformer that asks for boxes."""
    small = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    backbone = transformers.ResNetConfig(**({} if full else small), out_features=["stage4"])
    widths = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
              "encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_queries": 5}  # fmt: skip
    config = transformers.DetrConfig(
        **({} if full else widths), backbone_config=backbone, use_timm_backbone=False, backbone=None, num_labels=4,
        use_pretrained_backbone=False,
    )  # fmt: skip
    return image(Outputs(transformers.DetrForObjectDetection(config), 2), 256 if full else 64, full)


def segformer(full: bool) -> Network:
    """Attention over images, with keys of fewer places."""
    small = {"depths": [1, 1], "num_encoder_blocks": 2, "sr_ratios": [4, 1], "hidden_sizes": [8, 16],
             "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
             "decoder_hidden_size": 16}  # fmt: skip
    config = transformers.SegformerConfig(**({} if full else small), num_labels=4)
    return image(Outputs(transformers.SegformerForSemanticSegmentation(config), 1), 256 if full else 32, full)


def bert(full: bool) -> Network:
    """Encode tokens."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
             "vocab_size": VOCABULARY, "max_position_embeddings": 32}  # fmt: skip
    return text(Outputs(transformers.BertModel(transformers.BertConfig(**({} if full else small))), 2), full)


def distilbert(full: bool) -> Network:
    """Encode tokens in fewer layers."""
    small = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": VOCABULARY,
             "max_position_embeddings": 32}  # fmt: skip
    config = transformers.DistilBertConfig(**({} if full else small))
    return text(Outputs(transformers.DistilBertModel(config), 1), full)


_T5: Final = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
              "vocab_size": VOCABULARY, "decoder_start_token_id": 0}  # fmt: skip


def t5_encoder(full: bool) -> Network:
    """Relative positions, RMS normalization."""
    config = transformers.T5Config(**({"decoder_start_token_id": 0} if full else _T5), attn_implementation="eager")
    return text(Outputs(transformers.T5EncoderModel(config), 1), full)


def t5(full: bool) -> Network:
    """Encoder, and a decoder that reads it."""
    config = transformers.T5Config(
        **({"decoder_start_token_id": 0} if full else _T5), use_cache=False, attn_implementation="eager"
    )
    model = transformers.T5ForConditionalGeneration(config)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
            found = self.model(
                input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids, use_cache=False
            )
            logits: Tensor = found.logits
            return logits

    made = text(Both(), full)
    base = made.make

    def make(batch: int, length: int) -> dict[str, Tensor]:
        return {**base(batch, length), "decoder_input_ids": torch.randint(0, VOCABULARY, (batch, length // 2 + 1))}

    made.make = make
    made.open["decoder_input_ids"] = {0: "batch", 1: "decoded"}
    return made


def gpt2(full: bool) -> Network:
    """A causal decoder without a cache."""
    return text(Outputs(transformers.GPT2LMHeadModel(_gpt2_config(full, use_cache=False)), 1), full)


def _gpt2_config(full: bool, **more: Any) -> transformers.GPT2Config:
    small = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": VOCABULARY,
             "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    return transformers.GPT2Config(**({} if full else small), **more)


def gpt2_cache(full: bool) -> Network:
    """A causal decoder with a cache of keys and values."""
    config = _gpt2_config(full)
    model = transformers.GPT2LMHeadModel(config)
    return cached(model, config.n_layer, config.n_head, config.n_embd // config.n_head, full)


def llama_cache(full: bool) -> Network:
    """Rotated positions, RMS normalization, shared keys, and a cache."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "intermediate_size": 64, "vocab_size": VOCABULARY, "max_position_embeddings": 64}  # fmt: skip
    large = {**small, "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
             "intermediate_size": 2816, "vocab_size": 32000, "max_position_embeddings": 2048}  # fmt: skip
    config = transformers.LlamaConfig(**(large if full else small))
    heads = config.num_key_value_heads
    size = config.hidden_size // config.num_attention_heads
    return cached(transformers.LlamaForCausalLM(config), config.num_hidden_layers, heads, size, full)


def whisper_encoder(full: bool) -> Network:
    """Convolutions of a spectrogram, then attention."""
    small = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 64,
             "max_source_positions": 20, "max_target_positions": 8, "num_mel_bins": 8, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
    config = transformers.WhisperConfig(**({} if full else small))
    encoder = transformers.WhisperModel(config).encoder
    bins, steps = config.num_mel_bins, 2 * config.max_source_positions
    return Network(
        Outputs(encoder, 1), lambda b, _: {"x": torch.randn(b, bins, steps)}, {"x": {0: "batch"}}, 2, is_large=full
    )


def wav2vec2(full: bool) -> Network:
    """Convolutions of sound, a grouped one for positions, then attention."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
             "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_feat_extract_layers": 2,
             "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}  # fmt: skip
    config = transformers.Wav2Vec2Config(**({} if full else small))
    length = 8000 if full else 200
    return Network(
        Outputs(transformers.Wav2Vec2Model(config), 1), lambda b, n: {"x": torch.randn(b, n)},
        {"x": {0: "batch", 1: "samples"}}, 2, length, length + 40, full,
    )  # fmt: skip


def tagger(kind: str, full: bool) -> Network:
    """A recurrent network that labels each token."""
    wide = 256 if full else 16
    made = text(Tagger(kind, VOCABULARY, wide), full, mask=False)
    del made.open["attention_mask"]
    return made


NETWORKS: Final[dict[str, Callable[[bool], Network]]] = {
    "mobilenet_v3": mobilenet_v3,
    "efficientnet_b0": efficientnet_b0,
    "convnext_tiny": convnext_tiny,
    "swin_tiny": swin_tiny,
    "vit": vit,
    "shufflenet_v2": shufflenet_v2,
    "vgg": vgg,
    "resnet": resnet,
    "unet": unet,
    "detector": detector,
    "detr": detr,
    "segformer": segformer,
    "bert": bert,
    "distilbert": distilbert,
    "t5_encoder": t5_encoder,
    "t5": t5,
    "gpt2": gpt2,
    "gpt2_cache": gpt2_cache,
    "llama_cache": llama_cache,
    "whisper_encoder": whisper_encoder,
    "wav2vec2": wav2vec2,
    "lstm_tagger": partial(tagger, "lstm"),
    "gru_tagger": partial(tagger, "gru"),
    **IMAGE_NETWORKS,
    **SEQUENCE_NETWORKS,
}
