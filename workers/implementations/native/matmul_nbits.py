"""Product by weights of 4 or 8 bits: a few rows at the speed of memory, more of them by columns that become f32 first."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from poolrt.cachestore.deferred_dataclass import fields, replace

from ...desc import Arg, MatmulNbits, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .blocks import LANES
from .convolution_tiles import output_blocks, product_tiles
from .nest_builder import NestBuilder
from .product import describe_left, lanes, pack_left
from .product_shape import Shape, moved

#: Layouts with 16 columns side by side, and of weights four bytes of each.
_WEIGHTS: Final = "AbC16a4c"
_BLOCKS: Final = "Ab16a"
#: ISA level -> most rows whose tiles convert weights, each for itself; of smaller tiles there are more for as many rows.
_FEW: Final = {"x86-64-v4": 16}
_FEW_OF_SMALL_TILES: Final = 4
#: ISA level -> most rows of a tile, whose sums are in registers.
_ROWS: Final = {"x86-64-v4": 8, "x86-64-v3": 4}
#: Most rows of a tile of whole numbers, and of products without VNNI.
_PLANE_ROWS: Final = 4
_FEW_PLANES: Final = 1
#: Bytes of elements as whole numbers that all columns are multiplied by before the next rows, and the least such rows.
_PLANES: Final = 1 << 20
_LEAST_ROWS: Final = 64
#: Bits of weights -> most inputs of a block whose sums are below 2**31.
_BLOCK_OF_PLANES: Final = {4: 4096, 8: 256}
#: Bytes of converted columns, which the second-level cache holds.
_STRIP: Final = 1 << 20
_NONE: Final[LaunchArgument] = ("i", 0)


class NativeMatmulNbits:
    """f32, row-major src and dst; weights, scales and zero points packed, or in any layout without blocks."""

    name = "native:matmul_nbits"
    engine_kind = "cpu"
    general = True

    def reject(self, op: MatmulNbits, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        rows = [md for md in (op.src, op.dst, op.bias) if md is not None]
        for md in (*rows, op.scales, *([op.points] if op.points and op.points.dtype != "u8" else [])):
            if md.dtype != "f32":
                return f"data type {md.dtype}; only f32 is supported beside packed numbers"
        if not all(md.is_plain for md in rows):
            return "src, bias and dst must be row-major"
        if op.weights.dims[2] % 4:
            return f"blocks of {op.weights.dims[2]} bytes; only multiples of 4 are supported"
        for md in (op.weights, op.scales, *([op.points] if op.points else [])):
            if md.tag != _packed(md) and (md.layout.blocks or md.repeats):
                return f"layout {md}; only {_packed(md)} and layouts without blocks are supported"
        return None

    def complete(self, op: MatmulNbits, attr: PrimitiveAttr, target: Target) -> MatmulNbits:
        tensors = {field.name: getattr(op, field.name) for field in fields(op) if field.name != "bits"}
        chosen: dict[str, Any] = {
            name: md.with_tag(_packed(md) if name in ("weights", "scales", "points") else "")
            for name, md in tensors.items()
            if md is not None and md.is_any
        }
        return replace(op, **chosen)

    def program(self, op: MatmulNbits, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        build = NestBuilder(bytes(64))
        self._describe(build, op, _factors(build, op), target.isa)
        return build.program()

    def _describe(self, build: NestBuilder, op: MatmulNbits, factors: _Factors, isa: str) -> None:
        if op.src.dims[0] > _FEW.get(isa, _FEW_OF_SMALL_TILES):
            _describe_strips(build, op, factors, isa)
        else:
            _describe_rows(build, op, factors, isa)


class NativeMatmulNbitsPlanes(NativeMatmulNbits):
    """The same for elements that become three bytes; blocks are multiples of 16 inputs.

    ``vnni`` takes any number of rows, ``bytes`` one by weights of 4 bits on AVX2.
    """

    def __init__(self, how: str) -> None:
        self.name = f"native:matmul_nbits_{how}"
        self._how = how
        self.extensions = ("avx512_vnni",) if how == "vnni" else ()

    def reject(self, op: MatmulNbits, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := target.lack_of(self.extensions):
            return why
        if self._how == "bytes" and (target.isa != "x86-64-v3" or op.bits != 4):
            return f"{op.bits} bits on {target.isa}; only 4 on x86-64-v3 are supported"
        if self._how == "bytes" and op.src.dims[0] > _FEW_PLANES:
            return f"{op.src.dims[0]} rows; at most {_FEW_PLANES} are supported"
        block = _BLOCK_OF_PLANES[op.bits]
        if op.block % LANES or op.block > block:
            return f"blocks of {op.block}; only multiples of {LANES} up to {block} are supported"
        return super().reject(op, attr, target)

    def _describe(self, build: NestBuilder, op: MatmulNbits, factors: _Factors, isa: str) -> None:
        """Add the launches that make planes of bytes, and multiply them, some rows after the others."""
        (rows, depth), (columns, blocks, nbytes) = op.src.dims, op.weights.dims
        most = max(_LEAST_ROWS, _PLANES // (3 * blocks * op.block))
        strips = -(-rows // most)
        strip = -(-rows // strips)
        planes = build.book(3 * strip * blocks * op.block)
        scales, sums = (build.book(strip * blocks * 4) for _ in range(2))
        tile = -(-rows // -(-rows // _PLANE_ROWS))
        split = KernelSpec.of("nbits_planes", part="planes", how=self._how, rows=1, bits=op.bits, points="")
        kernel = KernelSpec.of("nbits_planes", part="rows", how=self._how, rows=tile, bits=op.bits, points=factors.kind)
        bias: LaunchArgument = _NONE if op.bias is None else ("m", (int(Arg.BIAS), 0))
        for number in range(strips):
            # Even strips: none has fewer rows than a tile.
            first = rows * number // strips
            count = rows * (number + 1) // strips - first
            src: LaunchArgument = ("m", (int(Arg.SRC), first * depth * 4))
            numbers = (depth, op.block, blocks)
            build.launch(split, (src, planes, scales, sums, *(("i", n) for n in numbers)), count * blocks)
            args: tuple[LaunchArgument, ...] = (
                planes, *factors.places, scales, sums, bias, ("m", (int(Arg.DST), first * columns * 4)),
                *(("i", n) for n in (count, columns, nbytes, blocks, factors.line)),
            )  # fmt: skip
            build.launch(kernel, args, -(-columns // 16))


class _Factors(NamedTuple):
    """Places of weights, scales and zero points, the kind of the latter, and bytes of those of 16 columns."""

    places: tuple[LaunchArgument, LaunchArgument, LaunchArgument]
    kind: str
    line: int


def _factors(build: NestBuilder, op: MatmulNbits) -> _Factors:
    weights, scales = (_factor(build, arg, op.memories()[arg]) for arg in (Arg.WEIGHTS, Arg.SCALE))
    if op.points is None:
        return _Factors((weights, scales, _NONE), "", 0)
    points, is_packed = _factor(build, Arg.SHIFT, op.points), op.points.dtype == "u8"
    return _Factors(
        (weights, scales, points), "bytes" if is_packed else "floats", op.points.dims[1] * (16 if is_packed else 64)
    )


def _packed(md: MemoryDesc) -> str:
    return _WEIGHTS if md.ndims == 3 else _BLOCKS


def _factor(build: NestBuilder, arg: Arg, md: MemoryDesc) -> LaunchArgument:
    """Return the place of weights, scales or zero points, which are packed first if they are not."""
    source: LaunchArgument = ("m", (int(arg), 0))
    packed = md.with_tag(_packed(md))
    if md.tag == packed.tag:
        return source
    to = build.book(packed.nbytes)
    build.move(md, packed, source, to)
    return to


def _describe_rows(build: NestBuilder, op: MatmulNbits, factors: _Factors, isa: str) -> None:
    """Add the launches for a few rows: weights become floats in registers."""
    (rows, depth), (columns, blocks, nbytes) = op.src.dims, op.weights.dims
    src: LaunchArgument = ("m", (int(Arg.SRC), 0))
    sums = build.book(rows * blocks * 4)
    most = _ROWS.get(isa, 1)
    # Without AVX-512 few rows are one tile, of three rows too.
    tile = min(1 << (rows.bit_length() - 1), most) if isa == "x86-64-v4" else min(rows, most)
    numbers = (depth, op.block, blocks)
    total = KernelSpec.of("matmul_nbits", part="sums", rows=1, bits=8, points="")
    build.launch(total, (src, sums, *(("i", n) for n in numbers)), rows)
    bias: LaunchArgument = _NONE if op.bias is None else ("m", (int(Arg.BIAS), 0))
    args: tuple[LaunchArgument, ...] = (
        src, *factors.places, sums, bias, ("m", (int(Arg.DST), 0)),
        *(("i", n) for n in (rows, depth, columns, nbytes, blocks, factors.line)),
    )  # fmt: skip
    kernel = KernelSpec.of("matmul_nbits", part="rows", rows=tile, bits=op.bits, points=factors.kind)
    build.launch(kernel, args, -(-columns // 16))


def _describe_strips(build: NestBuilder, op: MatmulNbits, factors: _Factors, isa: str) -> None:
    """Add the launches for many rows: some columns after the others become f32, and multiply all rows."""
    (rows, depth), (columns, blocks, nbytes) = op.src.dims, op.weights.dims
    shape = Shape(rows, depth, columns, (((), ()),))
    heights, (height, large, tiles) = product_tiles(isa, rows)
    vectors = -(-columns // 16)
    wide = output_blocks(isa, heights[0], max(vectors, 2))
    together = min(vectors, max(1, _STRIP // (depth * 64 * wide)) * wide)
    left = describe_left(build, shape, op.src, depth)
    if left.packs:
        pack_left(build, shape, op.src, left, (height, large, tiles), 0, depth)
    step, table = build.table([0, depth, 0]), build.table([left.offsets[0], 0, 0])
    room = build.book(together * depth * 64)
    unpack = KernelSpec.of("matmul_nbits", part="unpack", rows=1, bits=op.bits, points=factors.kind)
    gemm = KernelSpec.of("gemm", heights=heights, blocks=wide, rows=left.along == 4, packs="")
    strides = (blocks * nbytes * 16, blocks * 64, factors.line)
    for first in range(0, vectors, together):
        count = min(together, vectors - first)
        sources = (moved(place, stride * first) for place, stride in zip(factors.places, strides, strict=True))
        build.launch(unpack, (*sources, room, *(("i", n) for n in (depth, nbytes, blocks, factors.line))), count)
        wanted = min(columns - first * 16, count * 16)
        bias: LaunchArgument = _NONE if op.bias is None else ("m", (int(Arg.BIAS), first * 64))
        sizes = (tiles, height, large, wanted, 1, left.across, *lanes(left, height), depth * 64, 64, 4, columns * 4)
        args: tuple[LaunchArgument, ...] = (
            left.at, room, bias, ("m", (int(Arg.DST), first * 64)), _NONE, ("t", table), ("t", step),
            *(("i", n) for n in sizes), _NONE, _NONE, ("f", -math.inf), ("f", -math.inf),
        )  # fmt: skip
        build.launch(gemm, args, -(-count // wide))


IMPLEMENTATIONS = (NativeMatmulNbitsPlanes("vnni"), NativeMatmulNbitsPlanes("bytes"), NativeMatmulNbits())
