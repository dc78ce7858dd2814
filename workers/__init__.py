"""The compute floor: descriptors, engines, primitives, kernels and the worker process."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # see `poolrt/__init__.py`
if TYPE_CHECKING:
    from typing import Any, Final

    from .desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, Quantisation
    from .engines.engine import Engine
    from .execution.memory import Memory
    from .execution.primitive import Primitive
    from .gemm import gemm_s8s8s32, gemm_u8s8s32, sgemm
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
    from .primitives.cache import PrimitiveCache
    from .primitives.policies import CostPrimitiveCache, LruPrimitiveCache
    from .primitives.provider import (
        get_primitive_cache_capacity,
        get_primitive_cache_size,
        primitive_cache_stats,
        set_primitive_cache,
        set_primitive_cache_capacity,
    )
    from .streams.attributes import StreamAttr
    from .streams.stream import Stream
    from .threadpools.executor import ExecutorPool
    from .threadpools.interface import ThreadpoolInterface
    from .threadpools.jobs import get_default_jobs, set_default_jobs
    from .threadpools.native import NativePool
    from .threadpools.sequential import SequentialPool
    from .threadpools.threads import ThreadsPool
    from .verbose.output import set_verbose

__all__ = [
    "Arg",
    "ArgReduction",
    "Attention",
    "BatchNormalization",
    "Binary",
    "Concat",
    "Convolution",
    "CostPrimitiveCache",
    "CumulativeSum",
    "Deconvolution",
    "Determinant",
    "Dft",
    "DynamicLstm",
    "DynamicQuantise",
    "Eltwise",
    "Engine",
    "ExecutorPool",
    "Fold",
    "Gather",
    "GridSample",
    "GroupNormalization",
    "Gru",
    "InnerProduct",
    "LayerNormalization",
    "Lrn",
    "LruPrimitiveCache",
    "Lstm",
    "Matmul",
    "MatmulNbits",
    "Memory",
    "MemoryDesc",
    "NativePool",
    "NonMaxSuppression",
    "NonZero",
    "Pad",
    "Pooling",
    "PostOp",
    "Prelu",
    "Primitive",
    "PrimitiveAttr",
    "PrimitiveCache",
    "Quantisation",
    "Reduction",
    "Reorder",
    "Resampling",
    "Rnn",
    "RoiAlign",
    "Rotary",
    "Scatter",
    "Select",
    "SequentialPool",
    "Shuffle",
    "Softmax",
    "Stream",
    "StreamAttr",
    "Sum",
    "ThreadpoolInterface",
    "ThreadsPool",
    "TopK",
    "TreeLeaves",
    "gemm_s8s8s32",
    "gemm_u8s8s32",
    "get_default_jobs",
    "get_primitive_cache_capacity",
    "get_primitive_cache_size",
    "primitive_cache_stats",
    "set_default_jobs",
    "set_primitive_cache",
    "set_primitive_cache_capacity",
    "set_verbose",
    "sgemm",
]  # fmt: skip

#: Name -> the module that has it; operations, which are not listed, have one each. A worker process imports none of them.
_HOMES: Final = {
    **dict.fromkeys(("Arg", "MemoryDesc", "PostOp", "PrimitiveAttr", "Quantisation"), ".desc"),
    "Engine": ".engines.engine",
    "ExecutorPool": ".threadpools.executor",
    "Memory": ".execution.memory",
    "NativePool": ".threadpools.native",
    "Primitive": ".execution.primitive",
    "SequentialPool": ".threadpools.sequential",
    "Stream": ".streams.stream",
    "StreamAttr": ".streams.attributes",
    "ThreadpoolInterface": ".threadpools.interface",
    "get_default_jobs": ".threadpools.jobs",
    "set_default_jobs": ".threadpools.jobs",
    "ThreadsPool": ".threadpools.threads",
    "gemm_s8s8s32": ".gemm",
    "gemm_u8s8s32": ".gemm",
    "CostPrimitiveCache": ".primitives.policies",
    "LruPrimitiveCache": ".primitives.policies",
    "PrimitiveCache": ".primitives.cache",
    "get_primitive_cache_capacity": ".primitives.provider",
    "get_primitive_cache_size": ".primitives.provider",
    "primitive_cache_stats": ".primitives.provider",
    "set_primitive_cache": ".primitives.provider",
    "set_primitive_cache_capacity": ".primitives.provider",
    "set_verbose": ".verbose.output",
    "sgemm": ".gemm",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name) or ".operations." + "".join("_" * c.isupper() + c.lower() for c in name)[1:]
    found = getattr(import_module(home, __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
