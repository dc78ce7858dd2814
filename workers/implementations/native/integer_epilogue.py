"""Attributes of integer convolutions and products: where scales and zero points are, what is added, and the bounds."""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import Arg, MemoryDesc, PrimitiveAttr, post_op_src, scales_of, zero_points_of
from ..program import LaunchArgument

#: Data types of results.
_RESULTS: Final = ("u8", "s8", "s32", "f32")
#: Src's data type -> the least and the most that it holds.
_RANGES: Final = {"u8": (0, 255), "s8": (-128, 127)}
_BOUNDED: Final = ("relu", "clip", "clip_v2")
NONE: Final[LaunchArgument] = ("i", 0)


def refuse_types(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, right: tuple[str, ...] = ("s8",)
) -> str | None:
    """Return why data types are not those of an integer product, or None; weights have a type of ``right``."""
    if src.dtype not in _RANGES or weights.dtype not in right or dst.dtype not in _RESULTS:
        found = f"data types {src.dtype}, {weights.dtype}, {dst.dtype}"
        return f"{found}; only u8 or s8 by {' or '.join(right)} into {', '.join(_RESULTS)}"
    if bias is not None and (bias.dtype not in ("f32", "s32") or not bias.is_plain):
        return f"bias {bias}; only row-major f32 or s32 is supported"
    return None


def refuse_attributes(attr: PrimitiveAttr, bias: MemoryDesc | None, dst: MemoryDesc, output: int) -> str | None:
    """Return why attributes cannot be honoured, or None; ``output`` is the mask of weights with one scale an output.

    The layout of ``dst`` must be chosen.
    """
    whole = dst.dtype == "s32" and not attr.scales and (bias is None or bias.dtype == "s32")
    if whole and attr.post_ops:
        return "post-ops of exact s32 sums are not supported: they are computed in f32"
    for item in attr.scales:
        if item.mask not in ((0, output) if item.arg == Arg.WEIGHTS else (0,)):
            return f"scales with mask {item.mask:#x} of argument {item.arg} are not supported"
        if not all(item.values) and item.arg == Arg.DST:
            return "a scale of dst that is 0"
    for item in attr.zero_points:
        if item.mask or item.arg == Arg.WEIGHTS:
            return f"zero points with mask {item.mask:#x} of argument {item.arg} are not supported"
    for number, step in enumerate(attr.post_ops):
        if step.kind == "eltwise":
            if step.algorithm not in _BOUNDED or (step.algorithm == "relu" and step.alpha != 0.0):
                return f"post-op {step.algorithm}; only relu and clip are supported"
        elif number or step.algorithm not in ("", "add"):
            return "only one addition is supported, as the first post-op"
        elif step.src1 is not None and (step.src1.dtype not in _RESULTS or step.src1 != _like(dst, step.src1.dtype)):
            return f"the binary post-op's source is {step.src1}, the destination {dst}"
        elif step.dtype and step.dtype not in _RESULTS:
            return f"a sum that reads dst as {step.dtype}"
    return None


def points_fit(attr: PrimitiveAttr, dtype: str) -> bool:
    """Return whether src's data type holds its zero points as far as they are known: padding is filled with them."""
    least, most = _RANGES[dtype]
    return all(least <= value <= most for item in attr.zero_points if item.arg == Arg.SRC for value in item.values)


def is_exact(attr: PrimitiveAttr, bias: MemoryDesc | None, dst: MemoryDesc) -> bool:
    """Return whether the results are the sums themselves, with a bias and a zero point of whole numbers."""
    return dst.dtype == "s32" and not (attr.scales or attr.post_ops) and (bias is None or bias.dtype == "s32")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The attributes of a product as launch arguments: places of scales and zero points, what is added, and bounds.

    ``tables`` hold what is constant. The residual is multiplied by ``weight``; ``added`` comes to each result.
    """

    tables: bytes
    scales: dict[int, LaunchArgument]
    points: dict[int, LaunchArgument]
    scale_step: int
    residual: LaunchArgument
    residual_dtype: str
    weight: float
    added: float
    low: float
    high: float

    @classmethod
    def of(cls, attr: PrimitiveAttr, dst: MemoryDesc) -> Epilogue:
        """Return the epilogue of attributes that were not refused."""
        tables = b""
        places: dict[str, dict[int, LaunchArgument]] = {"scales": {}, "zero_points": {}}
        for name, argument in (("scales", scales_of), ("zero_points", zero_points_of)):
            for item in getattr(attr, name):
                places[name][item.arg] = ("t", len(tables)) if item.values else ("m", (argument(item.arg), 0))
                packed = item.packed(name)
                tables += packed + bytes(-len(packed) % 8)
        step = 4 if any(item.mask for item in attr.scales) else 0
        residual, dtype, weight, added = NONE, "", 0.0, 0.0
        low, high = -math.inf, math.inf
        for number, post_op in enumerate(attr.post_ops):
            if post_op.kind == "binary" and post_op.src1 is not None:
                residual, dtype, weight = ("m", (post_op_src(number), 0)), post_op.src1.dtype, 1.0
            elif post_op.kind == "sum":
                residual, dtype = ("m", (int(Arg.DST), 0)), post_op.dtype or dst.dtype
                weight, added = float(post_op.alpha), -float(post_op.alpha * post_op.beta)
            else:
                least, most = (0.0, math.inf) if post_op.algorithm == "relu" else (post_op.alpha, post_op.beta)
                low, high = (min(max(bound, least), most) for bound in (low, high))
        return cls(
            tables, places["scales"], places["zero_points"], step, residual, dtype, weight, added, low, high
        )  # fmt: skip

    def scale(self, arg: int) -> LaunchArgument:
        """Return the place of an argument's scales."""
        return self.scales.get(int(arg), NONE)

    def point(self, arg: int) -> LaunchArgument:
        """Return the place of an argument's zero point."""
        return self.points.get(int(arg), NONE)


def _like(md: MemoryDesc, dtype: str) -> MemoryDesc:
    return MemoryDesc(md.dims, dtype, md.tag, md.strides)
