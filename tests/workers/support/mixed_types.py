"""The descriptors of operations whose tensors have several data types, and the shapes of operations of one tensor."""

from __future__ import annotations

import math
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import (
    ArgReduction,
    Determinant,
    Dft,
    DynamicQuantise,
    MatmulNbits,
    MemoryDesc,
    NonMaxSuppression,
    NonZero,
    OpDesc,
    TopK,
)
from tests.workers.desc.windows import Sizes

Array = NDArray[Any]
SHAPES: Final[tuple[Sizes, ...]] = ((2, 19, 5, 3), (3, 17), (33,), (1, 16, 3, 3), (2, 5, 3, 2, 4), (0, 4, 2, 2))


def arg_reductions(prop: str, dtype: str) -> list[OpDesc]:
    """Indices are s64 and s32 in turn."""
    axes = (1, 1, 0, 3, 0, 2, 1, 0)
    shapes: tuple[Sizes, ...] = (*SHAPES, (5, 70), (9, 3, 40))
    found: list[OpDesc] = []
    for number, (dims, axis) in enumerate(zip(shapes, axes, strict=True)):
        dst = MemoryDesc((*dims[:axis], 1, *dims[axis + 1 :]), ("s64", "s32")[number % 2])
        found.append(ArgReduction(MemoryDesc(dims, dtype), dst, ("max", "min")[number // 2 % 2], axis, number % 3 == 1))
    return found


def top_ks(prop: str, dtype: str) -> list[OpDesc]:
    """Indices are s64 and s32 in turn."""
    shapes: tuple[tuple[Sizes, int, int], ...] = (
        ((2, 19, 5, 3), 1, 4), ((3, 17), 1, 17), ((33,), 0, 1), ((1, 16, 3, 3), 3, 2), ((0, 4), 1, 2), ((5, 3, 20), 2, 7),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, (dims, axis, k) in enumerate(shapes):
        dst = (*dims[:axis], k, *dims[axis + 1 :])
        indices = MemoryDesc(dst, ("s64", "s32")[number % 2])
        found.append(TopK(MemoryDesc(dims, dtype), MemoryDesc(dst, dtype), indices, k, axis, number % 3 != 1))
    return found


def non_max_suppressions(prop: str, dtype: str) -> list[OpDesc]:
    """Indices and counts are s64 and s32 in turn; limits are f32."""
    shapes: tuple[tuple[Sizes, int], ...] = (
        ((2, 3, 19), 5), ((1, 1, 40), 40), ((3, 2, 1), 1), ((1, 4, 33), 17), ((2, 0, 5), 2), ((2, 1, 8), 8),
    )  # fmt: skip
    found: list[OpDesc] = []
    for number, ((images, classes, size), most) in enumerate(shapes):
        kind = ("s64", "s32")[number % 2]
        boxes, scores = MemoryDesc((images, size, 4), dtype), MemoryDesc((images, classes, size), dtype)
        rows, count = MemoryDesc((images * classes * most, 3), kind), MemoryDesc((1,), kind)
        limits = MemoryDesc((3,), "f32")
        found.append(NonMaxSuppression(boxes, scores, limits, rows, count, most, number % 3 == 1))
    return found


def non_zeros(prop: str, dtype: str) -> list[OpDesc]:
    """Indices and counts are s64 and s32 in turn."""
    found: list[OpDesc] = []
    for number, dims in enumerate(SHAPES):
        kind = ("s64", "s32")[number % 2]
        indices, count = MemoryDesc((len(dims), math.prod(dims)), kind), MemoryDesc((1,), kind)
        found.append(NonZero(MemoryDesc(dims, dtype), indices, count))
    return found


def matmuls_nbits(prop: str, dtype: str) -> list[OpDesc]:
    """Zero points are packed, missing or numbers in turn. Shapes are (M, K, N), bytes of a block, and bits."""
    shapes = ((3, 37, 19, 8, 4), (1, 70, 33, 16, 4), (20, 33, 5, 16, 8), (2, 64, 17, 32, 8), (0, 9, 4, 8, 4))
    found: list[OpDesc] = []
    for number, (rows, depth, columns, nbytes, bits) in enumerate(shapes):
        blocks = -(-depth * bits // (8 * nbytes))
        packed = MemoryDesc((columns, -(-blocks * bits // 8)), "u8")
        points = (packed, None, MemoryDesc((columns, blocks), dtype))[number % 3]
        weights, bias = MemoryDesc((columns, blocks, nbytes), "u8"), MemoryDesc((columns,), dtype)
        src, scales, dst = (MemoryDesc(d, dtype) for d in ((rows, depth), (columns, blocks), (rows, columns)))
        found.append(MatmulNbits(src, weights, scales, points, None if number % 2 else bias, dst, bits))
    return found


def dfts(prop: str, dtype: str) -> list[OpDesc]:
    """Signals that are cut and lengthened, of composite and prime lengths, along each axis."""
    shapes: tuple[tuple[Sizes, int, int, bool, bool], ...] = (
        ((2, 12, 3, 2), 1, 12, False, False), ((3, 5, 1), 1, 20, False, True), ((9, 2, 2), 0, 7, True, False),
        ((2, 6, 2), 1, 10, True, True), ((2, 17, 1), 1, 17, True, False), ((0, 4, 2), 1, 8, False, False),
    )  # fmt: skip
    found: list[OpDesc] = []
    for dims, axis, length, inverse, half in shapes:
        dst = Dft.result_dims(dims, axis, length, inverse, half)
        found.append(Dft(MemoryDesc(dims, dtype), MemoryDesc(dst, dtype), axis, length, inverse, half))
    return found


def determinants(prop: str, dtype: str) -> list[OpDesc]:
    """Matrices of one row to more than two panels of columns, and none."""
    return [
        Determinant(MemoryDesc((count, rows, rows), dtype), MemoryDesc((count,), dtype))
        for count, rows in ((3, 5), (1, 1), (2, 19), (0, 4), (4, 8), (2, 0))
    ]


def permuted_triangles(op: Determinant, seed: int) -> Array:
    """Return upper triangles of small integers whose rows are permuted: elimination is exact, and unsigned types hold them."""
    rng, (count, rows, _) = np.random.default_rng(seed), op.src.dims
    found = np.triu(rng.integers(0, 2, (count, rows, rows)), 1) + np.eye(rows) * rng.integers(1, 3, (count, rows, 1))
    for matrix in found:
        rng.shuffle(matrix)
    return found


def dynamic_quantises(prop: str, dtype: str) -> list[OpDesc]:
    """Zero points are u8 and s32 in turn."""
    found: list[OpDesc] = []
    for number, dims in enumerate(SHAPES):
        point = MemoryDesc((), ("u8", "s32")[number % 2])
        found.append(DynamicQuantise(MemoryDesc(dims, dtype), MemoryDesc(dims, "u8"), MemoryDesc((), "f32"), point))
    return found


def random_dft(rng: Random) -> OpDesc:
    """Return a descriptor of rank 2 to 4."""
    sizes = (*(rng.choice((1, 2, 3, 5, 16, 17)) for _ in range(rng.choice((1, 2, 3)))), rng.choice((1, 2)))
    axis, length = rng.randrange(len(sizes) - 1), rng.randint(1, 9)
    inverse, one_sided = rng.random() < 0.5, rng.random() < 0.5
    made = Dft.result_dims(sizes, axis, length, inverse, one_sided)
    return Dft(MemoryDesc(sizes, "f32"), MemoryDesc(made, "f32"), axis, length, inverse, one_sided)


def random_determinant(rng: Random) -> OpDesc:
    """Return a descriptor of few matrices."""
    count, rows = rng.choice((0, 1, 3)), rng.choice((0, 1, 4, 9))
    return Determinant(MemoryDesc((count, rows, rows), "f32"), MemoryDesc((count,), "f32"))
