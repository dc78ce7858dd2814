"""The inputs and outputs of a model: their shapes and data types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelError
from .element_types import GRAPH_TYPES, STORED_TYPES, array_type, label
from .folding import Array
from .tensors import Operand, dtype_of

#: What exporters write as the symbol of a size that they do not know: two of them are not equal.
_UNKNOWN: Final = frozenset({"", "?", "*", "-1", "None"})


def is_symbol(name: str) -> bool:
    """Return whether a dimension's name is a symbol: all dimensions that have it are of one size."""
    return name not in _UNKNOWN


def open_input(declared: Any, batch: int | None, given: Sequence[int] | None) -> tuple[tuple[int, ...], str]:
    """Return shape and data type of an input, its open first dimension set to the batch."""
    number = _element_type(declared)
    if number not in GRAPH_TYPES:
        known = ", ".join(map(label, GRAPH_TYPES))
        hint = f"; give the input while loading: values={{{declared.name!r}: ...}}" if number in STORED_TYPES else ""
        raise ModelError(f"input {declared.name!r}: a graph has no tensors of {label(number)}; it has {known}{hint}")
    return _input_shape(declared, batch, given), GRAPH_TYPES[number]


def declared_shape(declared: Any) -> tuple[int | str | None, ...]:
    """Return the shape that the model declares: a size, the name of an open one, or None; empty without a shape."""
    return tuple(
        int(dim.dim_value) if dim.dim_value > 0 else str(dim.dim_param) or None
        for dim in declared.type.tensor_type.shape.dim
    )


def known_input(declared: Any, given: ArrayLike) -> Array:
    """Return the array of an input whose value is given; a plain number is also a list of one."""
    number = _element_type(declared)
    wanted = array_type(number)
    if wanted is None:
        raise ModelError(f"values: input {declared.name!r} is of type {label(number)}, which arrays do not have")
    try:
        array = np.asarray(given) if isinstance(given, np.ndarray | np.generic) else np.asarray(given, wanted)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"values: input {declared.name!r}: {error}") from error
    if array.dtype != wanted:
        raise ModelError(f"values: input {declared.name!r} is of type {wanted.name}, got {array.dtype}")
    kind = declared.type.tensor_type
    if kind.HasField("shape"):
        if array.ndim == 0 and len(kind.shape.dim) == 1 and not isinstance(given, np.ndarray | np.generic):
            array = array.reshape(1)
        sizes = [each.dim_value if each.HasField("dim_value") else None for each in kind.shape.dim]
        fits = len(sizes) == array.ndim and all(a in (None, b) for a, b in zip(sizes, array.shape, strict=True))
        if not fits:
            shown = ", ".join("?" if size is None else str(size) for size in sizes)
            raise ModelError(f"values: input {declared.name!r} has the shape ({shown}), got {array.shape}")
    return array


def check_output(declared: Any, found: Operand) -> None:
    """Raise ModelError if an output is not of the data type that the model declares."""
    if not declared.type.HasField("tensor_type"):
        if declared.type.WhichOneof("value") is None:
            return
        raise ModelError(f"output {declared.name!r}: expect a tensor, got a {declared.type.WhichOneof('value')}")
    number = declared.type.tensor_type.elem_type
    wanted = array_type(number)
    if number and (wanted is None or wanted.name != dtype_of(found)):
        raise ModelError(
            f"output {declared.name!r}: the model declares {label(number)}, its nodes give {dtype_of(found)}"
        )


def _element_type(declared: Any) -> int:
    if not declared.type.HasField("tensor_type"):
        kind = declared.type.WhichOneof("value") or "value without a type"
        raise ModelError(f"input {declared.name!r}: expect a tensor, got a {kind.removesuffix('_type')}")
    return int(declared.type.tensor_type.elem_type)


def _input_shape(declared: Any, batch: int | None, given: Sequence[int] | None) -> tuple[int, ...]:
    """Return the shape of an input, its open first dimension set to the batch."""
    kind = declared.type.tensor_type
    if given is not None:
        return tuple(int(size) for size in given)
    if not kind.HasField("shape"):
        raise ModelError(f"input {declared.name!r}: the model gives no shape; {_ask_for_shape(declared.name)}")
    sizes: list[int] = []
    symbols: dict[str, int] = {}
    for axis, dim in enumerate(kind.shape.dim):
        if dim.dim_value > 0:
            sizes.append(dim.dim_value)
        elif axis == 0 or dim.dim_param in symbols:
            sizes.append(1 if batch is None else batch)
            symbols = {dim.dim_param: sizes[-1]} if is_symbol(dim.dim_param) else symbols
        else:
            which = dim.dim_param or "unnamed"
            reason = f"dimension {axis} ({which}) is open; {_ask_for_shape(declared.name)}"
            raise ModelError(f"input {declared.name!r}: {reason}")
    if batch is not None and sizes and sizes[0] != batch:
        raise ModelError(f"input {declared.name!r}: the model fixes its batch at {sizes[0]}; got batch={batch}")
    return tuple(sizes)


def _ask_for_shape(name: str) -> str:
    return f"pass shapes={{{name!r}: ...}}, or --shape {name}=... on the command line"
