"""Networks of images and videos that torchvision and transformers have, beside those of `networks`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torchvision.models as vision
import transformers
from network import Network, image
from parts import Flow, Outputs, Pictures
from torch import nn
from torchvision.models import optical_flow, segmentation, video


def classifier(make: Callable[..., nn.Module], size: int, small: int, full: bool, **options: Any) -> Network:
    """A network that torchvision builds in one size only: small forms have smaller images."""
    return image(make(num_classes=10, **options), size if full else small, full)


def maxvit(full: bool) -> Network:
    """Attention in windows and over grids."""
    widths = {"stem_channels": 64, "block_channels": [64, 128, 256, 512], "block_layers": [2, 2, 5, 2], "head_dim": 32}
    small = {"stem_channels": 8, "block_channels": [8, 16], "block_layers": [1, 1], "head_dim": 4}
    made = vision.MaxVit(
        (224, 224) if full else (64, 64), partition_size=7 if full else 4, stochastic_depth_prob=0.0, num_classes=10,
        **(widths if full else small),
    )  # fmt: skip
    return image(made, 224 if full else 64, full)


def swin_v2(full: bool) -> Network:
    """Attention of cosines in shifted windows, with logarithmic distances."""
    if full:
        return image(vision.swin_v2_t(num_classes=10), 256, full)
    made = vision.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10,
        block=vision.swin_transformer.SwinTransformerBlockV2, downsample_layer=vision.swin_transformer.PatchMergingV2,
    )  # fmt: skip
    return image(made, 40, full)


def segmented(make: Callable[..., nn.Module], full: bool, **options: Any) -> Network:
    """A class for each place."""
    return image(
        Pictures(make(weights=None, weights_backbone=None, num_classes=5, **options)), 256 if full else 64, full
    )


def raft(full: bool) -> Network:
    """Optical flow: correlations that are sampled in turns."""
    made = image(Flow(optical_flow.raft_small()), 256 if full else 128, full)
    made.batch = 1
    return made


def films(make: Callable[..., nn.Module], frames: int, size: int, full: bool) -> Network:
    """A network of several images in turn."""
    module = make(num_classes=10)
    return Network(
        module, lambda b, s: {"x": torch.randn(b, 3, frames, s, s)}, {"x": {0: "batch"}}, 1, size, is_large=full
    )


def of_transformers(name: str, outputs: int, size: int, full: bool, small: dict[str, Any], **always: Any) -> Network:
    """A network of transformers that takes one image."""
    config_name = {"ForImageClassification": "", "ForDepthEstimation": "", "ForObjectDetection": "", "Model": ""}
    family = name
    for ending in config_name:
        family = family.removesuffix(ending)
    config = getattr(transformers, f"{family}Config")(**({} if full else small), **always)
    module = getattr(transformers, name)(config)
    return image(Outputs(module, outputs), size if full else small.get("image_size", 64), full)


_PATCHES: Final = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
                   "image_size": 32, "patch_size": 8}  # fmt: skip


def beit(full: bool) -> Network:
    """Relative positions in attention of patches."""
    return of_transformers(
        "BeitModel", 1, 224, full, _PATCHES, use_relative_position_bias=True, attn_implementation="eager"
    )


def dinov2(full: bool) -> Network:
    """Scaled layers; positions are interpolated."""
    small = {k: v for k, v in _PATCHES.items() if k != "intermediate_size"}
    return of_transformers(
        "Dinov2Model", 1, 224, full, {**small, "image_size": 32}, **({"image_size": 224} if full else {})
    )


def depth_anything(full: bool) -> Network:
    """Depth from the features of a transformer."""
    small = {k: v for k, v in _PATCHES.items() if k != "intermediate_size"}
    backbone = transformers.Dinov2Config(
        **({"hidden_size": 384, "num_attention_heads": 6, "image_size": 224} if full else {**small, "num_hidden_layers": 4}),
        out_features=["stage3", "stage6", "stage9", "stage12"] if full else ["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    sizes = {"reassemble_hidden_size": 384, "neck_hidden_sizes": [48, 96, 192, 384], "fusion_hidden_size": 64}
    tiny = {"reassemble_hidden_size": 32, "neck_hidden_sizes": [4, 8, 16, 16], "fusion_hidden_size": 8,
            "head_hidden_size": 4, "patch_size": 8}  # fmt: skip
    config = transformers.DepthAnythingConfig(backbone_config=backbone, **(sizes if full else tiny))
    return image(Outputs(transformers.DepthAnythingForDepthEstimation(config), 1), 224 if full else 32, full)


def dpt(full: bool) -> Network:
    """Depth from the features of a transformer, joined by convolutions."""
    small = {**_PATCHES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "fusion_hidden_size": 8,
             "neck_hidden_sizes": [4, 8, 16, 16]}  # fmt: skip
    return of_transformers("DPTForDepthEstimation", 1, 384, full, small)


def rt_detr(full: bool) -> Network:
    """A transformer that asks for boxes, whose attention samples images."""
    small = {
        "backbone_config": {"model_type": "rt_detr_resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
                            "depths": [1, 1, 1, 1], "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"]},
        "encoder_hidden_dim": 16, "encoder_in_channels": [16, 16, 32], "encoder_ffn_dim": 32, "encoder_attention_heads": 2,
        "d_model": 16, "num_queries": 6, "decoder_in_channels": [16, 16, 16], "decoder_ffn_dim": 32, "decoder_layers": 2,
        "decoder_attention_heads": 2, "decoder_n_points": 2, "num_denoising": 0,
    }  # fmt: skip
    # Of 300 queries, two or more have scores that differ by less than the rounding of sums: any order of them is right.
    config = transformers.RTDetrConfig(**({"num_queries": 50} if full else small), num_labels=4)
    if full:
        config.backbone_config.out_features = ["stage2", "stage3", "stage4"]
    module = transformers.RTDetrForObjectDetection(config)
    # The weights that it begins with give all places of an image the same scores, up to rounding, so that any may be chosen.
    for each in module.parameters():
        if each.ndim > 1:
            nn.init.kaiming_uniform_(each, nonlinearity="linear")
            each.data.mul_(1.9)
    return image(Outputs(module, 2), 320 if full else 64, full)


def sam_encoder(full: bool) -> Network:
    """The image encoder of Segment Anything: attention in windows, with decomposed relative positions."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_dim": 64, "image_size": 64,
             "patch_size": 8, "window_size": 4, "global_attn_indexes": [1], "output_channels": 16}  # fmt: skip
    large = {"hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "mlp_dim": 1536, "image_size": 512,
             "global_attn_indexes": [1, 3]}  # fmt: skip
    config = transformers.SamVisionConfig(**(large if full else small), attn_implementation="eager")
    return image(Outputs(transformers.SamVisionModel(config), 1), config.image_size, full)


def mobilevit(full: bool) -> Network:
    """Convolutions, and attention of patches that are folded back."""
    return of_transformers("MobileViTForImageClassification", 1, 256, full, {"image_size": 64, "hidden_sizes": [16, 24, 32],
                           "neck_hidden_sizes": [4, 8, 8, 16, 16, 16, 32]})  # fmt: skip


def swin2sr(full: bool) -> Network:
    """Images of more pixels."""
    small = {"image_size": 16, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
    large = {"embed_dim": 60, "depths": [6, 6, 6, 6], "num_heads": [6, 6, 6, 6], "upsampler": "pixelshuffledirect"}
    config = transformers.Swin2SRConfig(**(large if full else small))
    return image(Outputs(transformers.Swin2SRForImageSuperResolution(config), 1), 64 if full else 16, full)


IMAGE_NETWORKS: Final[dict[str, Callable[[bool], Network]]] = {
    "mobilenet_v2": partial(classifier, vision.mobilenet_v2, 224, 64),
    "mnasnet": partial(classifier, vision.mnasnet1_0, 224, 64),
    "squeezenet": partial(classifier, vision.squeezenet1_1, 224, 64),
    "googlenet": partial(classifier, vision.googlenet, 224, 64, aux_logits=False, init_weights=False),
    "inception_v3": partial(classifier, vision.inception_v3, 299, 96, aux_logits=False, init_weights=False),
    "densenet121": partial(classifier, vision.densenet121, 224, 64),
    "regnet_y": partial(classifier, vision.regnet_y_400mf, 224, 64),
    "resnext50": partial(classifier, vision.resnext50_32x4d, 224, 64),
    "efficientnet_v2": partial(classifier, vision.efficientnet_v2_s, 224, 64),
    "maxvit": maxvit,
    "swin_v2": swin_v2,
    "fcn": partial(segmented, segmentation.fcn_resnet50),
    "deeplab_v3": partial(segmented, segmentation.deeplabv3_resnet50),
    "lraspp": partial(segmented, segmentation.lraspp_mobilenet_v3_large),
    "raft": raft,
    "r3d": partial(films, video.r3d_18, 8, 64),
    "r2plus1d": partial(films, video.r2plus1d_18, 8, 64),
    "s3d": partial(films, video.s3d, 16, 224),
    "mvit": partial(films, video.mvit_v1_b, 16, 224),
    "swin3d": partial(films, video.swin3d_t, 8, 112),
    "beit": beit,
    "dinov2": dinov2,
    "depth_anything": depth_anything,
    "dpt": dpt,
    "rt_detr": rt_detr,
    "sam_encoder": sam_encoder,
    "mobilevit": mobilevit,
    "swin2sr": swin2sr,
}
