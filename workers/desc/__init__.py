"""Descriptors: pure, hashable data that says what is computed, on what memory."""

from .args import Arg, multiple_src, post_op_src
from .attributes import PostOp, PrimitiveAttr
from .data_type import data_type, item_size, numpy_name
from .memory_desc import MemoryDesc
from .operations import (
    BatchNormalization,
    Binary,
    Concat,
    Convolution,
    Eltwise,
    InnerProduct,
    Lrn,
    Matmul,
    OpDesc,
    Pooling,
    Reorder,
    Softmax,
    Sum,
    op_from_wire,
)

__all__ = [
    "Arg", "BatchNormalization", "Binary", "Concat", "Convolution", "Eltwise", "InnerProduct", "Lrn", "Matmul",
    "MemoryDesc", "OpDesc", "Pooling", "PostOp", "PrimitiveAttr", "Reorder", "Softmax", "Sum", "data_type", "item_size",
    "multiple_src", "numpy_name", "op_from_wire", "post_op_src",
]  # fmt: skip
