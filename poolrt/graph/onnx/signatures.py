"""What ONNX's schemas say about the data types of a node: operands that must agree, and the types of results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from .element_types import of_schema
from .model_file import onnx_package
from .tensors import Operand, dtype_of

#: Schemas that are kept.
_MOST_KEPT: Final = 1024
#: Operators whose schemas let an attribute or a value decide the type of a result: their functions here see to it.
_DECIDED_ELSEWHERE: Final = frozenset({"Cast", "Constant", "ConstantOfShape", "EyeLike", "QuantizeLinear"})


@lru_cache(maxsize=_MOST_KEPT)
def find_schema(operator: str, domain: str, opset: int) -> Any | None:
    """Return the schema of an operator in a version of its operator set, None if ONNX defines none."""
    defs = onnx_package().defs
    try:
        return defs.get_schema(operator, max(1, min(opset, 2**31 - 1)), domain)
    except defs.SchemaError:
        return None


class TypeMismatch(ValueError):
    """Operands of one node have data types that do not go together."""


def expected_types(schema: Any, operands: Sequence[Operand | None], outputs: int) -> Sequence[frozenset[str] | None]:
    """Return the data types that each result may have, None where the schema does not say.

    Raises TypeMismatch if operands that must be of one type are not.
    """
    return _expected_types(schema, tuple(None if each is None else dtype_of(each) for each in operands), outputs)


@lru_cache(maxsize=_MOST_KEPT)
def _expected_types(schema: Any, operands: tuple[str | None, ...], outputs: int) -> tuple[frozenset[str] | None, ...]:
    """Return the types of results for operands of these types, None for a missing one. Kept: nodes of a model are alike."""
    formal = _spread(tuple(schema.inputs), len(operands))
    bound: dict[str, str] = {}
    for index, (parameter, given) in enumerate(zip(formal, operands, strict=False)):
        if given is None or not parameter.is_homogeneous:
            continue
        known = bound.setdefault(parameter.type_str, given)
        if known != given:
            raise TypeMismatch(
                f"input {index} ({parameter.name}) is of type {given}; expect {known}, as of another input"
            )
    if schema.name in _DECIDED_ELSEWHERE:
        return (None,) * outputs
    found: list[frozenset[str] | None] = []
    for parameter in _spread(tuple(schema.outputs), outputs):
        if parameter.type_str in bound:
            found.append(frozenset({bound[parameter.type_str]}))
        else:
            names = {of_schema(each) for each in parameter.types}
            found.append(frozenset(name for name in names if name is not None))
    return (*found, *(None,) * (outputs - len(found)))


def _spread(formal: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return a parameter for each operand: the last one, if it is variadic, stands for all that follow."""
    if formal and str(formal[-1].option).endswith("Variadic") and count > len(formal):
        return formal + (formal[-1],) * (count - len(formal))
    return formal[:count]
