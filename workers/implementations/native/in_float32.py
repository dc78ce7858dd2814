"""The operations on f16 and bf16 that implementations for f32 compute, by primitive kind."""

from __future__ import annotations

from typing import Final

from ..nested.float32 import NestedFloat32

#: Kinds of which only the gradients are computed in f32: forward, these are native in other types.
_GRADIENTS: Final = ("batch_normalization", "eltwise", "layer_normalization", "pooling", "softmax")
_OTHERS: Final = (
    "attention", "binary", "convolution", "cumulative_sum", "deconvolution", "gru", "inner_product", "lrn", "lstm", "matmul",
    "matmul_nbits", "rnn", "scatter",
)  # fmt: skip
BY_KIND: Final = {
    **{kind: NestedFloat32("cpu") for kind in (*_OTHERS, "resampling", "grid_sample", "roi_align", "rotary", "fold")},
    **{kind: NestedFloat32("cpu", gradients=True) for kind in _GRADIENTS},
}
