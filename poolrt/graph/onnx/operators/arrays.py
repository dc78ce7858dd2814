"""Constants, shapes, casts, and elements picked from tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import STORED_TYPES, array_type
from ..model_file import tensor
from ..tensors import MOST_SORTED, Operand, array_dtype, dtype_of


def constant(call: NodeCall) -> Operand:
    """Return the value of a Constant node."""
    for name in call.attrs:
        match name:
            case "value":
                return tensor(call.proto(name), None)
            case "value_float":
                return np.asarray(call.number(name), np.float32)
            case "value_floats":
                return np.asarray(call.numbers(name), np.float32)
            case "value_int":
                return np.asarray(call.integer(name), np.int64)
            case "value_ints":
                return np.asarray(call.integers(name, most=None), np.int64)
            case _:
                raise call.unsupported(f"attribute {name} is not supported")
    raise call.malformed("it has no value")


def constant_of_shape(call: NodeCall) -> Operand:
    """Return one number broadcast to a shape, which takes the memory of one number."""
    number = tensor(call.proto("value"), None) if "value" in call.attrs else np.zeros(1, np.float32)
    return call.folding.fill(number, call.known_integers(0, "shape"))


def shape(call: NodeCall) -> Operand:
    """Return the shape of a tensor."""
    sizes = np.asarray(call.shape(0), np.int64)
    return sizes[call.integer("start", 0) : call.integer("end", len(sizes))]


def gather(call: NodeCall) -> Operand:
    """Pick along an axis."""
    return call.math.take(call.operand(0), call.operand(1), call.integer("axis", 0))


def gather_elements(call: NodeCall) -> Operand:
    """Pick one element for each element of the indices."""
    return call.math.gather_elements(call.tensor(0), call.tensor(1), call.integer("axis", 0))


def gather_nd(call: NodeCall) -> Operand:
    """Pick at places that are rows of the indices."""
    return call.math.gather_nd(call.tensor(0), call.tensor(1), call.integer("batch_dims", 0))


def scatter_elements(call: NodeCall) -> Operand:
    """Write one element for each element of the indices."""
    if 0 in call.shape(1):
        return call.operand(0)
    data, indices, updates = call.math.value(call.tensor(0)), call.tensor(1), call.math.value(call.tensor(2))
    how, axis = call.text("reduction", "none"), call.axis(len(data.shape), 0)
    return call.graph.scatter_elements(data, indices, updates, axis, how, name=call.name)


def scatter_nd(call: NodeCall) -> Operand:
    """Write at places that are rows of the indices; known arrays are written at once."""
    if 0 in call.shape(1)[:-1]:
        return call.operand(0)
    operands, how = [call.tensor(index) for index in range(3)], call.text("reduction", "none")
    known = [each for each in operands if not isinstance(each, Value)]
    if len(known) == 3 and how == "none":
        return call.folding.scatter(*known)
    data, indices, updates = operands
    return call.graph.scatter_nd(call.math.value(data), indices, call.math.value(updates), how, name=call.name)


def cast(call: NodeCall) -> Operand:
    """Convert to another data type."""
    number = call.integer("to")
    found = call.operand(0)
    target = array_type(number)
    if target is None:
        raise call.unsupported(f"data type {number} is not supported")
    return _converted(call, found, target.name)


def cast_like(call: NodeCall) -> Operand:
    """Convert to the data type of another operand."""
    found, wanted = call.operand(0), dtype_of(call.operand(1))
    return _converted(call, found, wanted)


def _converted(call: NodeCall, found: Operand, wanted: str) -> Operand:
    """Return an operand in another data type; to one that graphs do not have, known arrays alone are converted."""
    if wanted not in STORED_TYPES.values():
        return call.math.cast(found, wanted)
    if isinstance(found, Value):
        raise call.unsupported(f"a tensor cannot be cast to {wanted}")
    if wanted == "float8_e8m0fnu":
        raise call.unsupported(f"an array cannot be cast to {wanted}")
    if wanted.startswith("float8") and dtype_of(found) not in STORED_TYPES.values() and call.integer("saturate", 1):
        numbers = np.arange(256, dtype=np.uint8).view(array_dtype(wanted)).astype(np.float64)
        limit = numbers[np.isfinite(numbers)].max()
        wide = call.folding.cast(found, np.dtype(np.float64))
        found = call.folding.cast(np.clip(wide, -limit, limit), found.dtype)
    return call.math.cast(found, wanted)


def slice_(call: NodeCall) -> Operand:
    """Slice along axes."""
    if call.opset < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes, steps = call.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = call.known_integers(1, "starts"), call.known_integers(2, "ends")
        axes = call.known_integers(3, "axes") if call.has(3) else tuple(range(len(starts)))
        steps = call.known_integers(4, "steps") if call.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise call.malformed(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    if 0 in steps:
        raise call.malformed("a step is 0")
    return call.math.slice(call.operand(0), starts, ends, axes, steps)


def range_(call: NodeCall) -> Operand:
    """Return the numbers from a start to a limit in steps."""
    start, limit, step = (call.known(index, what) for index, what in enumerate(("start", "limit", "delta")))
    if any(each.size != 1 for each in (start, limit, step)) or not step.any():
        raise call.malformed("expect single numbers, and a delta that is not 0")
    first, last, pace = (each.reshape(()) for each in (start, limit, step))
    if first.dtype.kind in "iu":
        count = max(0, -(-(int(last) - int(first)) // int(pace)))
    else:
        length = (float(last) - float(first)) / float(pace)
        if not -np.inf < length < 2.0**53:
            raise call.malformed(f"it has {length} elements")
        count = max(0, int(np.ceil(length)))
    call.folding.book((count,), first.dtype)
    call.folding.book((count,), np.dtype(np.float64))
    if first.dtype.kind in "iu":
        whole = np.uint64(int(pace) % 2**64) * np.arange(count, dtype=np.uint64)
        return (np.uint64(int(first) % 2**64) + whole).astype(first.dtype)
    return (float(first) + float(pace) * np.arange(count, dtype=np.float64)).astype(first.dtype)


def eye_like(call: NodeCall) -> Operand:
    """Return ones on a diagonal, zeros elsewhere."""
    sizes = call.shape(0)
    if len(sizes) != 2:
        raise call.malformed(f"expect a matrix, got shape {sizes}")
    dtype = array_type(call.integer("dtype")) if "dtype" in call.attrs else None
    if "dtype" in call.attrs and dtype is None:
        raise call.unsupported(f"data type {call.integer('dtype')} is not supported")
    chosen: Any = np.dtype(dtype_of(call.operand(0))) if dtype is None else dtype
    call.folding.book(sizes, chosen)
    return np.eye(*sizes, call.integer("k", 0), dtype=chosen)


def one_hot(call: NodeCall) -> Operand:
    """Compare indices with each place; negative ones count from the end."""
    indices, values = call.tensor(0), call.tensor(2)
    depth = int(call.known(1, "depth").reshape(-1)[0])
    if not 1 <= depth <= MOST_SORTED:
        raise call.malformed(f"depth: expect 1..{MOST_SORTED}, got {depth}")
    m, rank = call.math, len(indices.shape)
    axis = call.axis(rank + 1, -1)
    whole = indices if dtype_of(indices) == "int64" else m.cast(indices, "int64")
    negative = m.cast(m.binary(whole, np.asarray(0, np.int64), "lt"), "int64")
    places = m.binary(whole, m.binary(negative, np.asarray(depth, np.int64), "mul"), "add")
    numbers = np.arange(depth, dtype=np.int64).reshape(*(1,) * axis, depth, *(1,) * (rank - axis))
    hot = m.binary(m.unsqueeze(places, (axis,)), numbers, "eq")
    off, on = (m.slice(values, [index], [index + 1], [0], [1]) for index in range(2))
    return m.select(hot, m.reshape(on, ()), m.reshape(off, ()))


OPERATORS: Final[Mapping[str, Operator]] = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Shape": shape,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Cast": cast,
    "CastLike": cast_like,
    "Slice": slice_,
    "Range": range_,
    "EyeLike": eye_like,
    "OneHot": one_hot,
}
