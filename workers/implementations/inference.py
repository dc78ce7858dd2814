"""The limits of implementations made for speed: forward, without quantisation, on layouts that a tag names.

Reorders are the exception: they accept strides.
"""

from __future__ import annotations

from typing import Final

from ..desc import MemoryDesc, OpDesc, PrimitiveAttr

#: Algorithms of eltwise and binary that vector kernels implement.
VECTOR_ALGORITHMS: Final = frozenset(
    (
        "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "logistic", "exp", "log", "clip", "clip_v2", "gelu_erf",
        "gelu_tanh", "hardswish", "hardsigmoid", "softplus", "swish", "mish", "pow", "round", "floor", "ceil", "trunc", "erf",
        "sin", "cos", "softsign", "tan", "atan", "asin", "acos", "sign", "threshold",
        "add", "sub", "mul", "div", "max", "min",
    )
)  # fmt: skip
_GIVEN_STATISTICS: Final = ("use_global_stats", "use_scale", "use_shift")


def refuse_beyond_inference(op: OpDesc, attr: PrimitiveAttr) -> str | None:
    """Return why only a general implementation can compute a descriptor, or None."""
    if attr.scales or attr.zero_points:
        return "scales and zero points are not supported"
    if any(p.kind == "sum" for p in attr.post_ops):
        return "a sum post-op is not supported"
    if not op.is_forward:
        return f"propagation kind {op.prop} is not supported"  # type: ignore[attr-defined]
    algorithms = [p.algorithm for p in attr.post_ops]
    if op.kind in ("eltwise", "binary"):
        algorithms.append(op.algorithm)  # type: ignore[attr-defined]
    for algorithm in algorithms:
        if algorithm not in VECTOR_ALGORITHMS:
            return f"algorithm {algorithm} is not supported"
    if op.kind == "batch_normalization" and op.flags != _GIVEN_STATISTICS:  # type: ignore[attr-defined]
        return "only given statistics with scale and shift are supported"
    if op.kind == "pooling" and op.is_training and op.algorithm == "max":  # type: ignore[attr-defined]
        return "a workspace is not supported"
    if op.kind == "lrn" and op.algorithm != "across_channels":  # type: ignore[attr-defined]
        return f"algorithm {op.algorithm} is not supported"  # type: ignore[attr-defined]
    if op.kind == "sum" and op.scales:  # type: ignore[attr-defined]
        return "scales of sources are not supported"
    if op.kind == "inner_product" and op.src.ndims != 2:  # type: ignore[attr-defined]
        return "only rank 2 is supported"
    if op.kind == "reorder" and op.is_cross_engine:  # type: ignore[attr-defined]
        return "only reorders within one engine are supported"
    if op.kind == "reorder":
        return None
    return _refuse_strides({**op.memories(), **attr.memories(op.memories())})


def _refuse_strides(memories: dict[int, MemoryDesc]) -> str | None:
    for desc in memories.values():
        if desc.strides:
            return f"strides {desc.strides} are not supported"
    return None
