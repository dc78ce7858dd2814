"""Operators that move or rename data: reshapes, transpositions, concatenation, identities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ...shapes import normalize_axis
from ...values import Value
from ..call import NodeCall, Operator
from ..tensors import Operand, Tensors, shape_of
from .uneven_sequences import reverse


def reshaped(call: NodeCall, source: Operand, dims: Sequence[int]) -> Operand:
    """Reshape a tensor in the graph, a known array at once; a size of 0 keeps the source's."""
    if isinstance(source, Value):
        return call.graph.reshape(source, dims, name=call.name)
    if any(size == 0 for size in dims[len(source.shape) :]):
        raise call.malformed(f"shape {tuple(dims)} keeps sizes that {source.shape} does not have")
    sizes = tuple(source.shape[axis] if size == 0 else size for axis, size in enumerate(dims))
    return call.folding.reshape(source, sizes)


def reshape(call: NodeCall) -> Operand:
    """Reshape; a size of 0 keeps the source's unless ``allowzero`` is set."""
    wanted = call.integers("shape") if call.opset < 5 else call.known_integers(1, "shape")
    if 0 in wanted and call.integer("allowzero", 0):
        return call.math.reshape(call.operand(0), wanted)
    return reshaped(call, call.operand(0), wanted)


def flatten(call: NodeCall) -> Operand:
    """Make a matrix: the dimensions before ``axis``, and the rest."""
    sizes = call.shape(0)
    axis = call.integer("axis", 1)
    if not -len(sizes) <= axis <= len(sizes):
        raise call.malformed(f"axis: expect {-len(sizes)}..{len(sizes)}, got {axis}")
    axis = axis + len(sizes) if axis < 0 else axis
    # With axis 1 the batch may have another size later; otherwise the rows are a product of sizes, which is fixed.
    dims = (0, -1) if axis == 1 else (math.prod(sizes[:axis]), math.prod(sizes[axis:]))
    return reshaped(call, call.operand(0), dims)


def squeeze(call: NodeCall) -> Operand:
    """Drop dimensions of 1: those at the axes, or all of them."""
    axes, source = call.axes(1), call.operand(0)
    if isinstance(source, Value):
        return call.graph.squeeze(source, axes, name=call.name)
    return call.math.squeeze(source, axes)


def unsqueeze(call: NodeCall) -> Operand:
    """Insert dimensions of 1 at axes of the result."""
    axes, source = call.axes(1), call.operand(0)
    if axes is None:
        raise call.malformed("axes are missing")
    if isinstance(source, Value):
        return call.graph.unsqueeze(source, axes, name=call.name)
    return call.math.unsqueeze(source, axes)


def transpose(call: NodeCall) -> Operand:
    """Permute dimensions; without ``perm``, reverse them."""
    source = call.operand(0)
    perm = call.integers("perm", range(len(source.shape) - 1, -1, -1))
    if isinstance(source, Value):
        return call.graph.transpose(source, perm, name=call.name)
    return call.math.transpose(source, perm)


def concat(call: NodeCall) -> Operand:
    """Join along an axis, which is 1 by default until opset 3 and required since."""
    axis = call.integer("axis", 1 if call.opset < 4 else None)
    operands = call.operands_given()
    tensors = [operand for operand in operands if isinstance(operand, Value)]
    if len(tensors) == len(operands) and len({operand.dtype for operand in tensors}) == 1:
        return call.graph.concat(operands, axis, name=call.name)
    return call.math.concat(operands, axis)


def split(call: NodeCall) -> tuple[Operand, ...]:
    """Cut along an axis into parts of given sizes, or of one size, the last of which may be smaller, or empty."""
    source = call.operand(0)
    axis = call.axis(len(source.shape), 0)
    size, count = source.shape[axis], call.results
    if "split" in call.attrs:
        sizes = call.integers("split", most=None)
    elif call.has(1) and call.opset >= 13:
        sizes = call.known_integers(1, "split")
    else:
        count = call.integer("num_outputs", count)
        if count != call.results:
            raise call.malformed(f"num_outputs is {count}, but there are {call.results} outputs")
        part = -(-size // count)
        sizes = (*(part,) * (count - 1), size - part * (count - 1))
    if sum(sizes) != size or len(sizes) < call.results:
        raise call.malformed(f"parts of {sizes} do not make {size}")
    if min(sizes) < 0:
        raise call.malformed(f"parts of {sizes}")
    parts, start = [], 0
    for each in sizes:
        parts.append(call.math.slice(source, [start], [start + each], [axis], [1]))
        start += each
    return tuple(parts)


def expand(call: NodeCall) -> Operand:
    """Broadcast with a shape."""
    source, wanted = call.operand(0), call.known_integers(1, "shape")
    try:
        dims = np.broadcast_shapes(call.shape(0), wanted)
    except ValueError as error:
        raise call.malformed(f"{call.shape(0)} does not expand to {wanted}") from error
    return call.math.expand(source, dims)


def tile(call: NodeCall) -> Operand:
    """Repeat along every dimension."""
    source, sizes = call.tensor(0), call.shape(0)
    if call.opset < 6:
        raise call.unsupported("tiles and axis of opset 1")
    repeats = call.known_integers(1, "repeats")
    if len(repeats) != len(sizes) or min(repeats, default=1) < 0:
        raise call.malformed(f"repeats: expect {len(sizes)} numbers of at least 0, got {repeats}")
    m = call.math
    if 0 in repeats:
        return m.empty([n * size for n, size in zip(repeats, sizes, strict=True)], source)
    if 2 * len(sizes) > _MOST_DIMS:
        raise call.unsupported(f"{len(sizes)} dimensions; at most {_MOST_DIMS // 2} are supported")
    # Short rows are repeated first, so that what other dimensions repeat are longer ones.
    left, found = list(repeats), source
    for axis in range(len(sizes) - 1, -1, -1):
        others = any(n > 1 for n in left[:axis])
        if left[axis] > 1 and others and math.prod(shape_of(found)[axis:]) < _SHORT_ROW:
            found = _repeat(m, found, [n if dim == axis else 1 for dim, n in enumerate(left)])
            left[axis] = 1
    return _repeat(m, found, left)


def _repeat(m: Tensors, source: Operand, repeats: Sequence[int]) -> Operand:
    """Repeat along every dimension, in one step."""
    sizes = shape_of(source)
    paired = [each for size in sizes for each in (1, size)]
    repeated = [each for pair in zip(repeats, sizes, strict=True) for each in pair]
    wide = m.expand(m.reshape(source, paired), repeated)
    return m.reshape(wide, [n * size for n, size in zip(repeats, sizes, strict=True)])


def depth_to_space(call: NodeCall) -> Operand:
    """Move blocks of channels to places of an image."""
    block, mode = call.integer("blocksize"), call.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise call.malformed(f"unknown mode {mode!r}")
    batch, channels, height, width = _image(call, block * block)
    depth = channels // block**2
    m = call.math
    if mode == "DCR":
        apart = m.reshape(call.tensor(0), (batch, block, block, depth, height, width))
        moved = m.transpose(apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = m.reshape(call.tensor(0), (batch, depth, block, block, height, width))
        moved = m.transpose(apart, (0, 1, 4, 2, 5, 3))
    return m.reshape(moved, (batch, depth, height * block, width * block))


def space_to_depth(call: NodeCall) -> Operand:
    """Move places of an image to blocks of channels."""
    block = call.integer("blocksize")
    batch, channels, height, width = _image(call, 1)
    if block < 1 or height % block or width % block:
        raise call.malformed(f"blocks of {block} do not divide {height} x {width}")
    apart = call.math.reshape(call.tensor(0), (batch, channels, height // block, block, width // block, block))
    mode = call.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise call.malformed(f"unknown mode {mode!r}")
    moved = call.math.transpose(apart, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return call.math.reshape(moved, (batch, channels * block**2, height // block, width // block))


def _image(call: NodeCall, parts: int) -> tuple[int, ...]:
    sizes = call.shape(0)
    if len(sizes) != 4 or parts < 1 or sizes[1] % parts:
        raise call.malformed(f"shape {sizes}: expect images with channels that {parts} divides")
    return sizes


def pad(call: NodeCall) -> Operand:
    """Pad at the ends of dimensions; negative numbers cut."""
    mode = call.text("mode", "constant")
    source, sizes = call.operand(0) if mode == "constant" else call.tensor(0), call.shape(0)
    rank = len(sizes)
    if call.opset >= 11:
        pads = call.known_integers(1, "pads")
        axes = [normalize_axis(axis, rank) for axis in call.known_integers(3, "axes")] if call.has(3) else range(rank)
    else:
        pads, axes = call.integers("pads" if call.opset >= 2 else "paddings"), range(rank)
    if len(pads) != 2 * len(axes):
        raise call.malformed(f"pads: expect {2 * len(axes)} numbers, got {len(pads)}")
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[axis], after[axis] = pads[index], pads[index + len(axes)]
    for axis, size in enumerate(sizes):
        if size + before[axis] + after[axis] < 0:
            raise call.malformed(
                f"pads: {before[axis]} and {after[axis]} cut more than dimension {axis} has, which is {size}"
            )
    m = call.math
    starts = [min(max(-low, 0), size) for size, low in zip(sizes, before, strict=True)]
    stops = [max(size + min(high, 0), low) for size, high, low in zip(sizes, after, starts, strict=True)]
    kept = m.slice(source, starts, stops, range(rank), (1,) * rank)
    # What is cut beyond the source is cut from the padding at its other end
    pairs = list(zip(sizes, before, after, strict=True))
    ends = [
        [max(low, 0) - max(-high - size, 0) for size, low, high in pairs],
        [max(high, 0) - max(-low - size, 0) for size, low, high in pairs],
    ]
    if not any((*ends[0], *ends[1])):
        return kept
    if mode != "constant":
        return m.pad(kept, ends[0], ends[1], mode)
    value: Operand = m.number(0, source)
    if call.opset < 11:
        value = m.number(call.number("value", 0.0), source)
    elif call.has(2):
        value = m.reshape(call.operand(2), ())
    return m.pad_constant(kept, ends[0], ends[1], value)


def trilu(call: NodeCall) -> Operand:
    """Keep the upper or lower triangle."""
    source = call.operand(0)
    shift = int(call.known(1, "k").reshape(-1)[0]) if call.has(1) else 0
    if len(source.shape) < 2:
        raise call.malformed(f"expect matrices, got shape {tuple(source.shape)}")
    rows, columns = source.shape[-2:]
    call.folding.book((rows, columns), np.dtype(np.int64))
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    kept = distance >= shift if call.integer("upper", 1) else distance <= shift
    return call.math.select(kept, source, call.math.number(0, source))


def reverse_sequence(call: NodeCall) -> Operand:
    """Reverse the first elements of each sequence."""
    source, rank = call.tensor(0), len(call.shape(0))
    time_axis, batch_axis = call.axis(rank, 0, "time_axis"), call.axis(rank, 1, "batch_axis")
    if time_axis == batch_axis:
        raise call.malformed(f"time_axis and batch_axis are both {time_axis}")
    return reverse(call, source, call.operand(1), time_axis, batch_axis)


def identity(call: NodeCall) -> Operand:
    """Return the operand itself."""
    return call.operand(0)


_MOST_DIMS: Final = 12
#: Elements of rows that are repeated in a step of their own if other dimensions repeat, too.
_SHORT_ROW: Final = 64

OPERATORS: Final[Mapping[str, Operator]] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Split": split,
    "Expand": expand,
    "Tile": tile,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Pad": pad,
    "Trilu": trilu,
    "ReverseSequence": reverse_sequence,
    "Identity": identity,
}
