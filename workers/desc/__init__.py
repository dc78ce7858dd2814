"""Descriptors: pure, hashable data that says what is computed, on what memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .args import Arg, multiple_src, post_op_src
from .attributes import PostOp, PrimitiveAttr
from .data_type import data_type, item_size, numpy_name
from .memory_desc import MemoryDesc
from .op_desc import OPERATIONS, OpDesc, op_from_wire

if TYPE_CHECKING:
    from .operations.batch_normalization import BatchNormalization
    from .operations.binary import Binary
    from .operations.concat import Concat
    from .operations.convolution import Convolution
    from .operations.eltwise import Eltwise
    from .operations.inner_product import InnerProduct
    from .operations.lrn import Lrn
    from .operations.matmul import Matmul
    from .operations.pooling import Pooling
    from .operations.reorder import Reorder
    from .operations.softmax import Softmax
    from .operations.sum import Sum

__all__ = [
    "OPERATIONS", "Arg", "BatchNormalization", "Binary", "Concat", "Convolution", "Eltwise", "InnerProduct", "Lrn",
    "Matmul", "MemoryDesc", "OpDesc", "Pooling", "PostOp", "PrimitiveAttr", "Reorder", "Softmax", "Sum", "data_type",
    "item_size", "multiple_src", "numpy_name", "op_from_wire", "post_op_src",
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
