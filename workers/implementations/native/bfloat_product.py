"""Matmul and inner product of bf16 by the instructions of AMX or AVX-512 BF16; constant weights are packed once.

Factors of f32 are rounded to bf16 first if the attribute `fpmath_mode` allows it; weights left open are then bf16.
"""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, InnerProduct, Matmul, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..inference import refuse_beyond_inference
from ..program import LaunchArgument, Program
from .amx_products import BFLOATS, cut_groups, tile_height
from .convolution_chain import bounds
from .convolution_tiles import output_blocks, product_tiles
from .nest_builder import NestBuilder

#: Bytes of packed rows that are multiplied by all columns before the next rows: they stay in the second-level cache.
_STRIP: Final = 256 << 10
#: The same of tiles of AMX: processors that have these have caches of 2 MiB.
_TILES_STRIP: Final = 512 << 10
#: Data types of dst and of bias.
_RESULTS: Final = ("bf16", "f32")
#: Modes that allow factors of f32 to be rounded to bf16.
_ROUNDING: Final = ("bf16", "any")
#: Least rows for which weights of f32 in a given layout are rounded in every execution.
_WORTH_ROUNDING: Final = 32
#: Work by tiles is cut into at least so many items if it can be, which threads share evenly.
_ITEMS: Final = 8


class _BFloatProduct:
    """What both operations share."""

    name = "native:packed_bf16"
    engine_kind = "cpu"
    general = True
    extensions: tuple[str, ...] = ("avx512_bf16",)

    def _refuse_types(self, op: Matmul | InnerProduct, attr: PrimitiveAttr, target: Target) -> str | None:
        """Return why a product is not one of bf16, or None: the first question, as every product of f32 is asked."""
        if why := target.lack_of(self.extensions):
            return why
        kinds = ("bf16", "f32") if attr.fpmath_mode in _ROUNDING and op.dst.dtype == "f32" else ("bf16",)
        if op.src.dtype not in kinds or op.weights.dtype not in kinds:
            return f"data types {op.src.dtype} and {op.weights.dtype}; only products of bf16 are supported"
        return None

    def _refuse(self, op: Matmul | InnerProduct, attr: PrimitiveAttr, packed: str) -> str | None:
        """Return why a product with all layouts chosen is not supported, or None."""
        if beyond := refuse_beyond_inference(op, attr):
            return beyond
        if op.weights.dtype == "f32" and (op.weights.layout.blocks or math.prod(op.dst.dims[:-1]) < _WORTH_ROUNDING):
            return f"weights f32:{op.weights.tag} for few rows or in blocks"
        if any(md.dtype not in _RESULTS for md in (op.dst, op.bias or op.dst)):
            return f"bias and dst must be {' or '.join(_RESULTS)}"
        if not (op.src.is_plain and op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "src, bias and dst must be row-major"
        if op.weights.tag != packed and op.weights.layout.blocks:
            return f"weights layout {op.weights.tag}; only {packed} and layouts without blocks are supported"
        if 0 in op.weights.dims:
            return "weights without elements"
        if any(step.algorithm != "relu" or step.alpha != 0.0 for step in attr.post_ops):
            return "only relu is supported as a post-op"
        return None

    def _describe(
        self, op: Matmul | InnerProduct, attr: PrimitiveAttr, target: Target, packed: str, sizes: tuple[int, int]
    ) -> Program:
        """Return the program; ``sizes`` are the dimensions of weights that count inputs and outputs."""
        depth, columns = (op.weights.dims[dim] for dim in sizes)
        rows = math.prod(op.dst.dims[:-1])
        if rows * columns == 0:
            return Program((), ())
        build = NestBuilder()
        right: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        blocked = MemoryDesc(op.weights.dims, "bf16", packed)
        if op.weights != blocked:
            to = build.book(blocked.nbytes)
            build.move(op.weights, blocked, right, to)
            right = to
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias is not None else ("i", 0)
        self._multiply(build, op, attr, target, (rows, depth, columns), right, bias)
        return build.program()

    def _multiply(
        self, build: NestBuilder, op: Matmul | InnerProduct, attr: PrimitiveAttr, target: Target,
        sizes: tuple[int, int, int], right: LaunchArgument, bias: LaunchArgument,
    ) -> None:  # fmt: skip
        """Add the launches that multiply src by packed weights; ``sizes`` are rows, inputs and columns."""
        rows, depth, columns = sizes
        heights, (height, large, tiles) = product_tiles(target.isa, rows)
        vectors, pairs = -(-columns // 16), -(-depth // 2)
        blocks = output_blocks(target.isa, heights[0], min(max(vectors, 1), 8))
        left, left_row = _whole_pairs(build, op, rows, depth), pairs * 4
        if rows > 1:
            # A pair is moved as a number of 32 bits.
            to = build.book(rows * (left_row + 64))
            numbers = (tiles, height, large, pairs, left_row, 0, left_row + 64)
            args: tuple[LaunchArgument, ...] = (left, to, ("t", build.table([0])), *(("i", n) for n in numbers))
            build.launch(KernelSpec.of("gemm_pack"), args, tiles)
            left, left_row = to, left_row + 64
        strip_tiles = max(1, min(tiles, _STRIP // (pairs * height * 4)))
        kernel = KernelSpec.of(
            "bfloat_product", heights=heights, blocks=blocks, bias=op.bias.dtype if op.bias is not None else "",
            dst=op.dst.dtype,
        )  # fmt: skip
        numbers = (tiles, height, large, columns, pairs, left_row, strip_tiles)
        _, bound = bounds(attr)
        args = (left, right, bias, ("m", (int(Arg.DST), 0)), *(("i", n) for n in numbers), ("f", bound))
        build.launch(kernel, args, -(-vectors // blocks) * -(-tiles // strip_tiles))


class _AmxBFloatProduct(_BFloatProduct):
    """The same by tiles of AMX, for weights in the same layouts."""

    name = "native:amx_bf16"
    extensions = BFLOATS

    def _multiply(
        self, build: NestBuilder, op: Matmul | InnerProduct, attr: PrimitiveAttr, target: Target,
        sizes: tuple[int, int, int], right: LaunchArgument, bias: LaunchArgument,
    ) -> None:  # fmt: skip
        rows, depth, columns = sizes
        pairs, vectors, height = -(-depth // 2), -(-columns // 16), tile_height(rows)
        left = _whole_pairs(build, op, rows, depth)
        groups, products, tail = cut_groups(pairs)
        # Threads share strips of panels, two by two; the left factor of one stays in the second-level cache.
        panels = -(-rows // height)
        most = max(1, _TILES_STRIP // (pairs * 4 * height))
        items = -(-vectors // 2)
        strip_panels = min(most, -(-panels // -(-_ITEMS // items)))
        strip_panels = min(panels, strip_panels + strip_panels % 2)
        strips = -(-panels // strip_panels)
        kernel = KernelSpec.of("bfloat_amx", bias=op.bias.dtype if op.bias is not None else "", dst=op.dst.dtype)
        tables = (("t", build.table([0, products])), ("t", build.table([0, 1])))
        numbers = (rows, columns, pairs, height, strip_panels, strips, pairs * 4, groups, tail)
        _, bound = bounds(attr)
        args: tuple[LaunchArgument, ...] = (
            left, right, bias, ("m", (int(Arg.DST), 0)), *tables, *(("i", n) for n in numbers), ("f", bound),
        )  # fmt: skip
        build.launch(kernel, args, items * strips)


class NativeBFloatMatmul(_BFloatProduct):
    """src bf16 of any rank, row-major, by one matrix of bf16, packed or without blocks; dst and bias f32 or bf16; relu."""

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := self._refuse_types(op, attr, target):
            return why
        if math.prod(op.weights.dims[:-2]) != 1 or not op.bias_is_row:
            return "several matrices of weights, or a bias other than one value a column"
        return self._refuse(self.complete(op, attr, target), attr, _packed(op.weights.ndims))

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        weights = _chosen(op, attr, _packed(op.weights.ndims))
        bias = op.bias and _row_major(op.bias)
        return replace(op, src=_row_major(op.src), weights=weights, bias=bias, dst=_row_major(op.dst))

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        rank = op.weights.ndims
        return self._describe(op, attr, target, _packed(rank), (rank - 2, rank - 1))


class NativeBFloatInnerProduct(_BFloatProduct):
    """The same for src of rank 2 and weights (outputs, inputs), forward."""

    def reject(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := self._refuse_types(op, attr, target):
            return why
        if not op.is_forward or op.src.ndims != 2:
            return "only forward of rank 2 is supported"
        return self._refuse(self.complete(op, attr, target), attr, "AB16a2b")

    def complete(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> InnerProduct:
        weights = _chosen(op, attr, "AB16a2b")
        bias = op.bias and _row_major(op.bias)
        return replace(op, src=_row_major(op.src), weights=weights, bias=bias, dst=_row_major(op.dst))

    def program(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        return self._describe(op, attr, target, "AB16a2b", (1, 0))


def _whole_pairs(build: NestBuilder, op: Matmul | InnerProduct, rows: int, depth: int) -> LaunchArgument:
    """Return where rows of whole pairs of bf16 are: in src, or in a copy of it."""
    left: LaunchArgument = ("m", (int(Arg.SRC), 0))
    if depth % 2 == 0 and op.src.dtype == "bf16":
        return left
    whole = MemoryDesc((rows, depth), "bf16", "aB2b")
    to = build.book(whole.nbytes)
    build.move(MemoryDesc((rows, depth), op.src.dtype), whole, left, to)
    return to


def _packed(ndims: int) -> str:
    """Return the tag with pairs of 16 columns side by side: ``BA16b2a`` for 2."""
    letters = "abcdefghijkl"[:ndims]
    return f"{letters[:-2]}{letters[-1:].upper()}{letters[-2:-1].upper()}16{letters[-1:]}2{letters[-2:-1]}"


def _chosen(op: Matmul | InnerProduct, attr: PrimitiveAttr, packed: str) -> MemoryDesc:
    """Return the descriptor of weights: packed if they are left open, and then bf16 if they may be rounded."""
    if not op.weights.is_any:
        return op.weights
    rounds = attr.fpmath_mode in _ROUNDING and (op.weights.dtype, op.dst.dtype) == ("f32", "f32")
    return replace(op.weights.with_tag(packed), dtype="bf16" if rounds else op.weights.dtype)


def _row_major(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.is_any else md


class NativeAmxBFloatMatmul(_AmxBFloatProduct, NativeBFloatMatmul):
    """`NativeBFloatMatmul` by tiles of AMX."""


class NativeAmxBFloatInnerProduct(_AmxBFloatProduct, NativeBFloatInnerProduct):
    """`NativeBFloatInnerProduct` by tiles of AMX."""
