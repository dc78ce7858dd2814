"""Operators on arrays that are known while a model is loaded: constants, shapes and integers computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...shapes import normalize_axis
from ...values import Value
from ..call import NodeCall, Operand, Operator
from ..model_file import numpy_type, tensor


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
    """Pick from a known array."""
    return call.folding.take(call.known(0, "data"), call.known(1, "indices"), call.integer("axis", 0))


def cast(call: NodeCall) -> Operand:
    """Convert a known array; a tensor may only be cast to its own type."""
    number = call.integer("to")
    target = numpy_type(number)
    if target is None:
        raise call.unsupported(f"data type {number} is not supported")
    found = call.operand(0)
    if isinstance(found, Value):
        if target != np.float32:
            raise call.unsupported(f"a tensor cannot be cast to {target}; only float32 is computed")
        return found
    return call.folding.cast(found, target)


def slice_known(call: NodeCall) -> Operand:
    """Slice a known array."""
    if call.opset < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes, steps = call.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = call.known_integers(1, "starts"), call.known_integers(2, "ends")
        axes = call.known_integers(3, "axes") if call.has(3) else tuple(range(len(starts)))
        steps = call.known_integers(4, "steps") if call.has(4) else (1,) * len(starts)
    data = call.known(0, "data")
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = normalize_axis(axis, data.ndim)
        # An end before the first element, when walking backwards, cannot be written as a Python index.
        stop = None if step < 0 and end < -data.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


OPERATORS: Final[Mapping[str, Operator]] = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Shape": shape,
    "Gather": gather,
    "Cast": cast,
    "Slice": slice_known,
}
