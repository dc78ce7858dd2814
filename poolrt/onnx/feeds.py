"""The inputs of a run, checked against what the model declares: every error names the input and both values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrt.graph.onnx.ports import is_symbol
from poolrt.spelling import describe_type, hint

from .errors import InvalidArgument
from .ort_value import OrtValue
from .signature import Port, tensor_type
from .strings import as_strings, number_of_array

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_feed(ports: Sequence[Port], feed: object) -> dict[str, NDArray[Any]]:
    """Return the inputs in the order of the ports, as arrays of the declared types and of sizes that go together.

    A value that is no array is converted. bfloat16 is also taken as the uint16 of its bits. Raises ValueError for an input
    that is missing (as ONNX Runtime does), InvalidArgument for an unknown name, and for a wrong data type, rank or size.
    """
    if not isinstance(feed, Mapping):
        raise InvalidArgument(f"input_feed: expect a dict of inputs by name, got {describe_type(feed)}")
    names = [port.name for port in ports]
    missing = [name for name in names if name not in feed]
    if missing:
        raise InvalidArgument(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
    for name in feed:
        if name not in names:
            raise InvalidArgument(
                f"Invalid input name: {name}; the model takes {', '.join(names)}{hint(str(name), names)}"
            )
    arrays = {port.name: to_array(port, feed[port.name]) for port in ports}
    check_sizes(ports, {name: array.shape for name, array in arrays.items()})
    return arrays


def to_array(port: Port, value: Any) -> NDArray[Any]:
    """Return the value of one input as an array of its type."""
    wanted = port.dtype
    if wanted is None:
        raise InvalidArgument(f"input {port.name} is of type {port.type}, which poolrt does not have")
    array = value.numpy() if isinstance(value, OrtValue) else value
    if wanted.kind == "O" and array is not None:
        try:
            return as_strings(array)
        except ValueError as error:
            raise InvalidArgument(f"input {port.name}: {error}; the model declares {port.type}") from error
    if not isinstance(array, np.ndarray):
        if array is None:
            raise InvalidArgument(f"input {port.name}: expect an array of {port.type}, got None")
        try:
            return np.asarray(array, wanted)
        except (TypeError, ValueError, OverflowError) as error:
            given = describe_type(value)
            raise InvalidArgument(
                f"input {port.name}: expect an array of {port.type}, got {given} ({error})"
            ) from error
    if array.dtype != wanted:
        if wanted.name == "bfloat16" and array.dtype == np.uint16:
            return array.view(wanted)
        raise InvalidArgument(
            f"Unexpected input data type. Actual: ({_type_of(array)}) , expected: ({port.type}); input {port.name}: "
            f"convert it: array.astype({wanted.name!r})"
        )
    return array


def check_sizes(ports: Sequence[Port], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise InvalidArgument for a rank or size that the model does not declare, and for symbols of two sizes."""
    symbols: dict[str, tuple[str, int, int]] = {}
    for port in ports:
        name, given, dims = port.name, tuple(shapes[port.name]), port.dims
        if dims is not None and len(dims) != len(given):
            raise InvalidArgument(
                f"Invalid rank for input: {name} Got: {len(given)} Expected: {len(dims)}; its shape is {given}, the model "
                f"declares {_shown(dims)}"
            )
        for axis, size in enumerate(given):
            if size < 0:
                raise InvalidArgument(f"input {name}: dimension {axis} of {given} is negative")
            wanted = dims[axis] if dims is not None else None
            if isinstance(wanted, int) and wanted != size:
                raise InvalidArgument(
                    f"Got invalid dimensions for input: {name} for the following indices index: {axis} Got: {size} "
                    f"Expected: {wanted}; its shape is {given}, the model declares {_shown(dims or ())}"
                )
            if isinstance(wanted, str) and is_symbol(wanted):
                other, other_axis, found = symbols.setdefault(wanted, (name, axis, size))
                if found != size:
                    raise InvalidArgument(
                        f"dimension {wanted!r} has two sizes: {found} in input {other} (dimension {other_axis} of "
                        f"{tuple(shapes[other])}) and {size} in input {name} (dimension {axis} of {given})"
                    )


def _type_of(array: NDArray[Any]) -> str:
    try:
        found = tensor_type(number_of_array(array))
        return found if array.dtype.isnative else f"{found} in another byte order, {array.dtype}"
    except ValueError:
        return f"array of dtype {array.dtype}"


def _shown(dims: Sequence[int | str | None]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in dims)})"
