"""`IOBinding`: inputs and outputs of a session's runs that stay in the same memory from run to run."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrt.spelling import hint

from .errors import InvalidArgument
from .feeds import to_array
from .ort_value import OrtValue, dtype_of, require_cpu
from .signature import Port

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .session import InferenceSession

    Arrays = dict[str, NDArray[Any]]


class IOBinding:
    """Bound inputs and outputs by name. Made by `InferenceSession.io_binding`; one thread uses it at a time.

    Bound inputs are read when a run begins, where they are; an output that is bound to memory is written there, without a
    copy where kernels can write to that place.
    """

    def __init__(self, session: InferenceSession, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        self._session = session
        self._input_ports = {port.name: port for port in inputs}
        self._output_ports = {port.name: port for port in outputs}
        self._inputs: Arrays = {}
        #: None for an output in new memory.
        self._outputs: dict[str, NDArray[Any] | None] = {}
        self._results: Arrays = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: NDArray[Any]) -> None:
        """Read an input from an array. Raises InvalidArgument for an unknown name or another data type."""
        self._inputs[name] = to_array(_find(self._input_ports, name), arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read an input from an address, which holds a row-major tensor as long as it is bound."""
        require_cpu(device_type, device_id)
        port = _find(self._input_ports, name)
        self._inputs[name] = to_array(port, _at_address(buffer_ptr, shape, dtype_of(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from a value."""
        self._inputs[name] = to_array(_find(self._input_ports, name), ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in new memory, or at an address, with its type and shape.

        Raises InvalidArgument for an unknown name and an output of maps, ValueError for an address without type and shape.
        """
        require_cpu(device_type, device_id)
        self._find_output(name)
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self._outputs[name] = _at_address(buffer_ptr, shape, dtype_of(element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output into a value."""
        self._find_output(name)
        self._outputs[name] = ortvalue.numpy()

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return [self._session._value(name, self._results[name]) for name in self._outputs if name in self._results]

    def copy_outputs_to_cpu(self) -> list[NDArray[Any]]:
        """Return copies of the outputs of the last run, in the order in which they were bound."""
        return [np.array(self._results[name]) for name in self._outputs if name in self._results]

    def clear_binding_inputs(self) -> None:
        """Bind no inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Bind no outputs, and forget those of the last run."""
        self._outputs.clear()
        self._results = {}

    def synchronize_inputs(self) -> None:
        """Do nothing: inputs are in the memory of the processor."""

    def synchronize_outputs(self) -> None:
        """Do nothing: a run returns when its outputs are there."""

    def _find_output(self, name: str) -> None:
        _find(self._output_ports, name)
        self._session._require_tensors([name])

    def _run(self, run: Callable[[Arrays, Arrays], Arrays]) -> None:
        if not self._outputs:
            raise InvalidArgument("At least one output should be requested: bind_output(name)")
        into = {name: array for name, array in self._outputs.items() if array is not None}
        found = run(self._inputs, into)
        for name, array in into.items():
            result = found[name]
            if result is array:
                continue
            if result.shape != array.shape or result.dtype != array.dtype:
                expected, given = (f"{each.dtype}{list(each.shape)}" for each in (result, array))
                raise InvalidArgument(f"output {name}: it is {expected}, and bound to memory of {given}")
            array[...] = result
            found[name] = array
        self._results = {name: found[name] for name in self._outputs}


def _find(ports: dict[str, Port], name: str) -> Port:
    if name not in ports:
        known = ", ".join(ports)
        raise InvalidArgument(
            f"Failed to find NodeArg with name: {name} in the def list: {known}{hint(str(name), ports)}"
        )
    return ports[name]


def _at_address(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the array at an address, which the caller keeps."""
    dims = tuple(int(size) for size in shape)
    if address == 0 or min(dims, default=1) < 0:
        raise InvalidArgument(f"buffer_ptr: expect an address and a shape, got {address} and {dims}")
    room = (ctypes.c_uint8 * (math.prod(dims) * dtype.itemsize)).from_address(address)
    array: NDArray[Any] = np.ctypeslib.as_array(room).view(dtype).reshape(dims)
    return array
