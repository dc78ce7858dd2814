"""Run a graph's wire form in float64 with the NumPy references: what optimisation and import are tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from poolrt.graph.constant import Constant
from poolrt.graph.shapes import op_desc
from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, multiple_src, post_op_src
from tests.references import reference

Array = NDArray[Any]

_ARGUMENTS = {
    "convolution": (Arg.SRC, Arg.WEIGHTS, Arg.BIAS),
    "inner_product": (Arg.SRC, Arg.WEIGHTS, Arg.BIAS),
    "matmul": (Arg.SRC, Arg.WEIGHTS, Arg.BIAS),
    "batch_normalization": (Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT),
    "binary": (Arg.SRC, Arg.SRC_1),
    "sum": tuple(multiple_src(i) for i in range(64)),
    "concat": tuple(multiple_src(i) for i in range(64)),
}


def run_wire(wire: dict[str, Any], constants: Sequence[Constant], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs in float64; the wire is sent through msgpack first, and every shape on it is checked."""
    assert msgpack.unpackb(msgpack.packb(wire)) == wire
    values: dict[int, Array] = {number: np.asarray(inputs[name], np.float64) for name, number in wire["inputs"]}
    for (number, nbytes), constant in zip(wire["constants"], constants, strict=True):
        memory = np.full(nbytes + 64, 0xA5, np.uint8)
        constant.write_into(memory[:nbytes])
        assert (memory[nbytes:] == 0xA5).all()
        values[number] = memory[:nbytes].view(np.float32).reshape(wire["values"][number][0]).astype(np.float64)
    for kind, name, sources, output, attrs, post_ops in wire["nodes"]:
        arrays = [values[source] for source in sources]
        expected = tuple(wire["values"][output][0])
        result = _node(kind, arrays, expected, attrs, post_ops, values)
        assert result.shape == expected, name
        values[output] = result
    return {name: values[number] for name, number in wire["outputs"]}


def _node(
    kind: str,
    arrays: list[Array],
    dims: tuple[int, ...],
    attrs: dict[str, Any],
    post_ops: list[list[Any]],
    values: Mapping[int, Array],
) -> Array:
    if kind == "reshape":
        return arrays[0].reshape(dims)
    if kind == "transpose":
        return arrays[0].transpose(attrs["perm"])
    op = op_desc(kind, [MemoryDesc(array.shape, "f32") for array in arrays], attrs)
    numbers = _ARGUMENTS.get(kind, (Arg.SRC,))
    args = {int(number): array for number, array in zip(numbers, arrays, strict=False)}
    chain = []
    for index, (step, algorithm, *rest) in enumerate(post_ops):
        if step == "binary":
            args[post_op_src(index)] = values[rest[0]]
            chain.append(PostOp(step, algorithm, src1=MemoryDesc(values[rest[0]].shape, "f32")))
        else:
            chain.append(PostOp(step, algorithm, *rest))
    return reference(op, PrimitiveAttr(tuple(chain)), args)
