"""Operators that a function defines: those that ONNX defines by other operators, and functions of the model itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from .domains import ONNX_DOMAINS, imported_version
from .element_types import number_of
from .model_file import onnx_package
from .signatures import find_schema
from .tensors import Operand, dtype_of, shape_of

#: Functions within functions, and nodes of all of them in one model.
MOST_DEPTH: Final = 12
MOST_NODES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Expansion:
    """The body of a function: its nodes, the names of its parameters, and the version of the operator set that they use."""

    nodes: Sequence[Any]
    inputs: Sequence[str]
    outputs: Sequence[str]
    opset: int
    defaults: Mapping[str, Any]


def local_functions(model: Any) -> dict[tuple[str, str], Expansion]:
    """Return the functions that a model defines, by domain and name."""
    own = imported_version(model.opset_import)
    return {
        (each.domain, each.name): Expansion(
            each.node,
            each.input,
            each.output,
            imported_version(each.opset_import, default=own),
            {default.name: default for default in each.attribute_proto},
        )
        for each in model.functions
    }


def find_expansion(node: Any, opset: int, version: int, operands: Sequence[Operand | None]) -> Expansion | None:
    """Return the body that ONNX gives an operator for these operands, None if it gives none.

    ``opset`` is the version of ONNX's own operators in the model, ``version`` that of the operators of the node's domain.
    """
    schema = find_schema(node.op_type, "" if node.domain in ONNX_DOMAINS else node.domain, version)
    if schema is None:
        return None
    serialised = _body(schema, node, version, operands)
    if not serialised:
        return None
    body = onnx_package().FunctionProto.FromString(serialised)
    defaults = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.ByteSize()}
    version = imported_version(body.opset_import, default=opset)
    return Expansion(body.node, body.input, body.output, version, defaults)


def _body(schema: Any, node: Any, opset: int, operands: Sequence[Operand | None]) -> bytes | None:
    version = _newest(schema.function_opset_versions, opset)
    if version is not None:
        return bytes(schema.get_function_with_opset_version(version))
    version = _newest(schema.context_dependent_function_opset_versions, opset)
    if version is None:
        return None
    given = onnx_package().NodeProto()
    given.CopyFrom(node)
    known = {each.name for each in node.attribute}
    for name, each in schema.attributes.items():
        if name not in known and each.default_value.ByteSize():
            given.attribute.append(each.default_value)
    types = [_type(operand).SerializeToString() for operand in operands]
    return bytes(schema.get_context_dependent_function_with_opset_version(version, given.SerializeToString(), types))


def _newest(versions: Sequence[int], opset: int) -> int | None:
    """Return the newest version that an operator set has; a body that only a later one has is taken too."""
    return max((each for each in versions if each <= opset), default=min(versions, default=None))


def _type(operand: Operand | None) -> Any:
    onnx = onnx_package()
    if operand is None:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(number_of(dtype_of(operand)), shape_of(operand))
