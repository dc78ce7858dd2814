"""Descriptors: hashable data that defines a computation and its memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .args import Arg, multiple_src, post_op_src, scales_of, zero_points_of
from .attributes import PostOp, PrimitiveAttr
from .data_type import LIMITS, WRAPPING, data_type, item_size, numpy_name, type_name
from .memory_desc import MemoryDesc
from .op_desc import FORWARD, OPERATIONS, PROP_KINDS, OpDesc, op_from_wire
from .quantisation import Quantisation

if TYPE_CHECKING:
    from .operations.arg_reduction import ArgReduction
    from .operations.attention import Attention
    from .operations.batch_normalization import BatchNormalization
    from .operations.binary import Binary
    from .operations.concat import Concat
    from .operations.convolution import Convolution
    from .operations.cumulative_sum import CumulativeSum
    from .operations.deconvolution import Deconvolution
    from .operations.determinant import Determinant
    from .operations.dft import Dft
    from .operations.dynamic_lstm import DynamicLstm
    from .operations.dynamic_quantise import DynamicQuantise
    from .operations.eltwise import Eltwise
    from .operations.fold import Fold
    from .operations.gather import Gather
    from .operations.grid_sample import GridSample
    from .operations.group_normalization import GroupNormalization
    from .operations.gru import Gru
    from .operations.inner_product import InnerProduct
    from .operations.layer_normalization import LayerNormalization
    from .operations.lrn import Lrn
    from .operations.lstm import Lstm
    from .operations.matmul import Matmul
    from .operations.matmul_nbits import MatmulNbits
    from .operations.non_max_suppression import NonMaxSuppression
    from .operations.non_zero import NonZero
    from .operations.pad import Pad
    from .operations.pooling import Pooling
    from .operations.prelu import Prelu
    from .operations.reduction import Reduction
    from .operations.reorder import Reorder
    from .operations.resampling import Resampling
    from .operations.rnn import Rnn
    from .operations.roi_align import RoiAlign
    from .operations.rotary import Rotary
    from .operations.scatter import Scatter
    from .operations.select import Select
    from .operations.shuffle import Shuffle
    from .operations.softmax import Softmax
    from .operations.sum import Sum
    from .operations.top_k import TopK
    from .operations.tree_leaves import TreeLeaves

__all__ = [
    "FORWARD",
    "LIMITS",
    "OPERATIONS",
    "PROP_KINDS",
    "WRAPPING",
    "Arg",
    "ArgReduction",
    "Attention",
    "BatchNormalization",
    "Binary",
    "Concat",
    "Convolution",
    "CumulativeSum",
    "Deconvolution",
    "Determinant",
    "Dft",
    "DynamicLstm",
    "DynamicQuantise",
    "Eltwise",
    "Fold",
    "Gather",
    "GridSample",
    "GroupNormalization",
    "Gru",
    "InnerProduct",
    "LayerNormalization",
    "Lrn",
    "Lstm",
    "Matmul",
    "MatmulNbits",
    "MemoryDesc",
    "NonMaxSuppression",
    "NonZero",
    "OpDesc",
    "Pad",
    "Pooling",
    "PostOp",
    "Prelu",
    "PrimitiveAttr",
    "Quantisation",
    "Reduction",
    "Reorder",
    "Resampling",
    "Rnn",
    "RoiAlign",
    "Rotary",
    "Scatter",
    "Select",
    "Shuffle",
    "Softmax",
    "Sum",
    "TopK",
    "TreeLeaves",
    "data_type",
    "item_size",
    "multiple_src",
    "numpy_name",
    "op_from_wire",
    "post_op_src",
    "scales_of",
    "type_name",
    "zero_points_of",
]  # fmt: skip

#: Class -> the module that has it. A process that needs one operation does not import the others.
_HOMES: Final = {name: f".operations.{kind}" for kind, name in OPERATIONS.items()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
