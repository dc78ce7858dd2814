"""Run a graph's wire form in float64 with the NumPy references: what optimisation and import are tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from poolrt.graph.constant import Constant
from poolrt.graph.inference.operands import operand_arguments, result_arguments
from poolrt.graph.inference.operations import is_view, op_desc
from poolrt.graph.wire_parser import parse
from poolrt.workers.desc import MemoryDesc, PostOp, PrimitiveAttr, Quantisation, post_op_src, scales_of, zero_points_of
from tests.references import converted, numpy_type, results

Array = NDArray[Any]


def run_wire(wire: dict[str, Any], constants: Sequence[Constant], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs; the wire is sent through msgpack first, and every shape on it is checked.

    Tensors of float32 are computed in float64 and never rounded, those of other types are rounded to them.
    """
    assert msgpack.unpackb(msgpack.packb(wire)) == wire
    descs = [MemoryDesc(tuple(dims), dtype) for dims, dtype in wire["values"]]
    values: dict[int, Array] = {v: held(np.asarray(inputs[name]), descs[v]) for name, v in wire["inputs"]}
    for (number, nbytes), constant in zip(wire["constants"], constants, strict=True):
        memory = np.full(nbytes + 64, 0xA5, np.uint8)
        constant.write_into(memory[:nbytes])
        assert (memory[nbytes:] == 0xA5).all()
        stored = memory[:nbytes].view(numpy_type(descs[number].dtype)).reshape(descs[number].dims)
        values[number] = held(stored, descs[number])
    for node, (kind, name, sources, outputs, _, post_ops, quantisation, *_) in zip(
        parse(wire).nodes, wire["nodes"], strict=True
    ):
        attrs = node.attrs
        wanted = [descs[output] for output in outputs]
        if is_view(kind):
            found = [_view(kind, values[sources[0]], wanted[0].dims, attrs)]
        else:
            op = op_desc(kind, [descs[source] for source in sources], attrs, wanted[0].dtype)
            args = {arg: values[v] for arg, v in zip(operand_arguments(op), sources, strict=True)}
            attr = _attr(post_ops, quantisation, descs, values, args)
            written = results(op, attr, args)
            found = [written[arg] for arg in result_arguments(op)]
        for output, array, desc in zip(outputs, found, wanted, strict=True):
            assert array.shape == desc.dims, name
            values[output] = held(array, desc)
    return {name: values[number] for name, number in wire["outputs"]}


def held(array: Array, desc: MemoryDesc) -> Array:
    """Return an array as a tensor of its data type holds it; float32 ones keep all digits."""
    if desc.dtype == "f32":
        return array.astype(np.float64)
    return converted(array, desc.dtype)


def _view(kind: str, array: Array, dims: tuple[int, ...], attrs: Mapping[str, Any]) -> Array:
    match kind:
        case "reshape":
            return array.reshape(dims)
        case "transpose":
            return array.transpose(attrs["perm"])
        case "slice":
            cut = zip(attrs["starts"], attrs["ends"], attrs["steps"], strict=True)
            return array[tuple(slice(*each) for each in cut)]
        case _:
            return np.broadcast_to(array, dims)


def _attr(
    post_ops: list[list[Any]],
    quantisation: list[list[Any]],
    descs: Sequence[MemoryDesc],
    values: Mapping[int, Array],
    args: dict[int, Array],
) -> PrimitiveAttr:
    """Return the attributes of a node; what they read is put among its arguments."""
    chain = []
    for index, (step, algorithm, *rest) in enumerate(post_ops):
        if step == "binary":
            args[post_op_src(index)] = values[rest[0]]
            chain.append(PostOp(step, algorithm, src1=descs[rest[0]]))
        else:
            chain.append(PostOp(step, algorithm, *rest))
    found: dict[str, list[Quantisation]] = {"scales": [], "zero_points": []}
    for what, arg, mask, value in quantisation:
        args[scales_of(arg) if what == "scales" else zero_points_of(arg)] = values[value]
        found[what].append(Quantisation(arg, mask))
    return PrimitiveAttr(tuple(chain), tuple(found["scales"]), tuple(found["zero_points"]))
