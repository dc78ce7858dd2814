"""Products by weights of a few bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ....values import Value
from ...call import NodeCall, Operator
from ...tensors import Operand, dtype_of, shape_of


def matmul_nbits(call: NodeCall) -> Operand:
    """Multiply by weights of 4 or 8 bits with a scale, and maybe a zero point, for each block of inputs."""
    m, bits, block = call.math, call.integer("bits", 4), call.integer("block_size")
    columns, depth = call.integer("N"), call.integer("K")
    if bits not in (4, 8):
        raise call.unsupported(f"bits={bits} is not supported, only 4 and 8 are")
    if call.integer("weight_prepacked", 0) or call.has(4):
        raise call.unsupported("weight_prepacked and g_idx are not supported")
    if block < 16 or block & (block - 1):
        raise call.malformed(f"block_size: expect a power of two of at least 16, got {block}")
    source, weights = call.real(0), call.tensor(1)
    *outer, inputs = shape_of(source)
    blocks = -(-depth // block)
    if inputs != depth or shape_of(weights) != (columns, blocks, block * bits // 8) or dtype_of(weights) != "uint8":
        raise call.malformed(f"A {shape_of(source)} and B {shape_of(weights)} do not fit K={depth} and N={columns}")
    numbers = m.reshape(call.real(2), (columns, blocks))
    result = call.graph.matmul_nbits(
        m.value(m.reshape(source, (math.prod(outer), depth))),
        m.value(weights),
        m.value(numbers),
        _zero_points(call, columns, blocks, bits),
        None if not call.has(5) else m.value(call.real(5)),
        bits=bits,
        name=call.name,
    )
    return m.reshape(result, (*outer, columns))


def _zero_points(call: NodeCall, columns: int, blocks: int, bits: int) -> Value | None:
    """Return zero points, packed as uint8 or of the type of A, as a matrix; None if there are none."""
    if not call.has(3):
        return None
    given = call.tensor(3)
    size = -(-blocks * bits // 8) if dtype_of(given) == "uint8" else blocks
    if math.prod(given.shape) != columns * size:
        raise call.malformed(f"zero_points: expect ({columns}, {size}), got {shape_of(given)}")
    return call.math.value(call.math.reshape(given, (columns, size)))


OPERATORS: Final[Mapping[str, Operator]] = {"MatMulNBits": matmul_nbits}
