"""Products by weights of a few bits, and rows of tables of such numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...call import NodeCall, Operator
from ...folding import Array
from ...tensors import Operand, dtype_of, shape_of

#: Types of which a table's numbers may be, one number an element -> the type that holds them in a graph.
_STORED: Final = {"uint4": "uint8", "int4": "int8"}


def matmul_nbits(call: NodeCall) -> Operand:
    """Multiply by weights of 2, 4 or 8 bits with a scale, and maybe a zero point, for each block of inputs."""
    m, bits, block = call.math, call.integer("bits", 4), call.integer("block_size")
    columns, depth = call.integer("N"), call.integer("K")
    if bits not in (2, 4, 8):
        raise call.unsupported(f"bits={bits} is not supported, only 2, 4 and 8 are")
    if call.integer("weight_prepacked", 0) or call.has(4):
        raise call.unsupported("weight_prepacked and g_idx are not supported")
    _check_block(call, block)
    source, weights = call.real(0), call.tensor(1)
    *outer, inputs = shape_of(source)
    blocks = -(-depth // block)
    if inputs != depth or shape_of(weights) != (columns, blocks, block * bits // 8) or dtype_of(weights) != "uint8":
        raise call.malformed(f"A {shape_of(source)} and B {shape_of(weights)} do not fit K={depth} and N={columns}")
    numbers = m.reshape(call.real(2), (columns, blocks))
    points = _zero_points(call, columns, blocks, bits)
    if bits == 2:
        bits, weights, points = (
            4,
            _in_nibbles(call, call.known(1, "B")),
            _points_in_nibbles(call, points, columns, blocks),
        )
    result = call.graph.matmul_nbits(
        m.value(m.reshape(source, (math.prod(outer), depth))),
        m.value(weights),
        m.value(numbers),
        None if points is None else m.value(points),
        None if not call.has(5) else m.value(call.real(5)),
        bits=bits,
        name=call.name,
    )
    return m.reshape(result, (*outer, columns))


def gather_block_quantized(call: NodeCall) -> Operand:
    """Pick along an axis of a table of small integers, with a scale, and maybe a zero point, for each block of another axis."""
    m, block = call.math, call.integer("block_size", 128)
    _check_block(call, block)
    rank = len(call.shape(0))
    along, blocked = call.axis(rank, 0, "gather_axis"), call.axis(rank, 1, "quantize_axis")
    indices, scales, points = call.tensor(1), call.real(2), call.optional(3)
    table, points = _table(call, points, blocked)
    length = table.shape[blocked]
    wanted = tuple(-(-size // block) if axis == blocked else size for axis, size in enumerate(table.shape))
    for each, what in ((scales, "scales"), (points, "zero_points")):
        if each is not None and shape_of(each) != wanted:
            raise call.malformed(f"{what} of shape {shape_of(each)}; blocks of {block} expect {wanted}")
    # Rows stay bytes in memory: they become floats when they are picked.
    axis = blocked if blocked < along else blocked + len(indices.shape) - 1
    parts: list[Operand] = []
    for each in (scales, *(() if points is None else (points,))):
        if along == blocked:
            parts.append(m.take(_repeated(call, each, blocked, block, length), indices, along))
        else:
            parts.append(_repeated(call, m.take(each, indices, along), axis, block, length))
    found = m.cast(m.take(table, indices, along), "float32")
    if len(parts) > 1:
        found = m.binary(found, m.cast(parts[1], "float32"), "sub")
    return m.cast(m.binary(found, m.cast(parts[0], "float32"), "mul"), dtype_of(scales))


def _check_block(call: NodeCall, block: int) -> None:
    if block < 16 or block & (block - 1):
        raise call.malformed(f"block_size: expect a power of two of at least 16, got {block}")


def _table(call: NodeCall, points: Operand | None, blocked: int) -> tuple[Operand, Operand | None]:
    """Return the numbers of a table and its zero points as bytes, one number each."""
    m, kind, bits = call.math, dtype_of(call.operand(0)), call.integer("bits", 4)
    if points is not None and dtype_of(points) != kind:
        raise call.malformed(f"zero_points are of type {dtype_of(points)}, data of type {kind}")
    if kind in _STORED:
        data = call.known(0, "data")
        return m.cast(data, _STORED[kind]), None if points is None else m.cast(points, _STORED[kind])
    if kind != "uint8" or bits not in (2, 4, 8):
        raise call.unsupported(
            f"data of {kind} and bits={bits} is not supported; uint8 of 2, 4 or 8 bits, int4 and uint4 are"
        )
    if blocked != len(call.shape(0)) - 1:
        raise call.malformed(f"quantize_axis: expect the last axis for packed data, got {blocked}")
    if bits == 8:
        return call.tensor(0), np.full(shape_of(call.tensor(2)), 128, np.uint8) if points is None else points
    table = _unpacked(call, call.known(0, "data"), bits)
    if points is None:
        return table, np.full(shape_of(call.tensor(2)), 1 << (bits - 1), np.uint8)
    numbers = _unpacked(call, call.known(3, "zero_points"), bits)
    return table, numbers[..., : call.shape(2)[-1]]


def _repeated(call: NodeCall, given: Operand, axis: int, block: int, length: int) -> Operand:
    """Return numbers of blocks as often as blocks have elements."""
    m, dims = call.math, shape_of(given)
    before, after = dims[: axis + 1], dims[axis + 1 :]
    wide = m.expand(m.reshape(given, (*before, 1, *after)), (*before, block, *after))
    joined = m.reshape(wide, (*dims[:axis], dims[axis] * block, *after))
    return m.slice(joined, [0], [length], [axis], [1])


def _unpacked(call: NodeCall, packed: Array, bits: int) -> Array:
    """Return the numbers in bytes along the last axis, the first in the lowest bits."""
    count = 8 // bits
    call.folding.book((*packed.shape, count), packed.dtype)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers: Array = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], packed.shape[-1] * count)


def _in_nibbles(call: NodeCall, packed: Array) -> Array:
    """Return numbers of two bits as numbers of four."""
    numbers = _unpacked(call, packed, 2)
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], -1)
    pairs: Array = numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4)
    return pairs


def _points_in_nibbles(call: NodeCall, points: Operand | None, columns: int, blocks: int) -> Operand:
    """Return zero points of numbers of two bits for the same numbers in four."""
    if points is None:
        return np.full((columns, -(-blocks // 2)), 0x22, np.uint8)
    if dtype_of(points) != "uint8":
        return points
    return _in_nibbles(call, call.known(3, "zero_points").reshape(columns, -1))[:, : -(-blocks // 2)]


def _zero_points(call: NodeCall, columns: int, blocks: int, bits: int) -> Operand | None:
    """Return zero points, packed as uint8 or of the type of A, as a matrix; None if there are none."""
    if not call.has(3):
        return None
    given = call.tensor(3)
    size = -(-blocks * bits // 8) if dtype_of(given) == "uint8" else blocks
    if math.prod(given.shape) != columns * size:
        raise call.malformed(f"zero_points: expect ({columns}, {size}), got {shape_of(given)}")
    return call.math.reshape(given, (columns, size))


OPERATORS: Final[Mapping[str, Operator]] = {
    "MatMulNBits": matmul_nbits,
    "GatherBlockQuantized": gather_block_quantized,
}
