"""`OrtValue`: a tensor in the memory of the process that shares it with the NumPy array that it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrt.spelling import describe_type

from .errors import InvalidArgument
from .signature import tensor_type
from .strings import dtype_of_number, number_of_array

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OrtDevice:
    """A device: the processor, which is the only one whose memory values have."""

    def __init__(self, name: str, index: int) -> None:
        """Raises InvalidArgument for a device other than the processor."""
        require_cpu(name, index)
        self._name, self._index = name, index

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return the device of a name, ``cpu``."""
        return OrtDevice(ort_device_name, device_id)

    def device_id(self) -> int:
        """Return the index of the device."""
        return self._index

    def device_type(self) -> int:
        """Return 0, ONNX Runtime's number of processors."""
        return 0

    def device_mem_type(self) -> int:
        """Return 0, the default memory."""
        return 0

    def device_vendor_id(self) -> int:
        """Return 0: no vendor."""
        return 0


class OrtValue:
    """A dense tensor. It shares memory with the array that it was made of, as those of ONNX Runtime do on a processor.

    An array in another byte order is copied.
    """

    def __init__(self, array: NDArray[Any], element_type: int | None = None) -> None:
        """Share an array's memory; ``element_type`` is a TensorProto.DataType if it is not that of the array's type.

        Raises InvalidArgument for anything else, and for a type that ONNX does not have.
        """
        if not isinstance(array, np.ndarray):
            raise InvalidArgument(f"OrtValue: expect a numpy.ndarray, got {describe_type(array)}")
        # ONNX has no byte orders: another one than the processor's would be other numbers.
        array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        if element_type is None:
            try:
                element_type = number_of_array(array)
            except ValueError as error:
                raise InvalidArgument(f"OrtValue: {error}") from error
        wanted = dtype_of_number(element_type)
        if wanted is None or wanted.itemsize != array.dtype.itemsize:
            raise InvalidArgument(f"OrtValue: an array of dtype {array.dtype} cannot be a {tensor_type(element_type)}")
        self._array = np.ascontiguousarray(array).reshape(array.shape).view(wanted)
        self._element_type = element_type

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: NDArray[Any], /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a value that shares the memory of a row-major array; another one is copied."""
        require_cpu(device_type, device_id)
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: NDArray[Any], onnx_element_type: int) -> OrtValue:
        """Return a value of a TensorProto.DataType whose elements have as many bytes, such as bfloat16 of uint16."""
        return cls(data, onnx_element_type)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a value of a shape, not initialised, of a NumPy type or TensorProto.DataType."""
        require_cpu(device_type, device_id)
        return cls(np.empty(tuple(shape), dtype_of(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """Return a value that shares the memory of another library's tensor on the processor."""
        return cls(np.from_dlpack(data))

    def __dlpack__(self, *, stream: object = None) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        device, index = self._array.__dlpack_device__()
        return int(device), int(index)

    def numpy(self) -> NDArray[Any]:
        """Return the tensor as an array that shares its memory."""
        return self._array

    def update_inplace(self, data: NDArray[Any] | OrtValue) -> None:
        """Copy an array or value of the same type and shape into the memory of this one."""
        source = data._array if isinstance(data, OrtValue) else data
        if not isinstance(source, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        if source.dtype != self._array.dtype or source.shape != self._array.shape:
            expected = f"{self._array.dtype}{list(self._array.shape)}"
            raise InvalidArgument(f"update_inplace: expect {expected}, got {source.dtype}{list(source.shape)}")
        self._array[...] = source

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._array.ctypes.data)

    def shape(self) -> list[int]:
        """Return the shape."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Return the type, such as ``tensor(float)``."""
        return tensor_type(self._element_type)

    def element_type(self) -> int:
        """Return the TensorProto.DataType."""
        return self._element_type

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of the tensor."""
        return self._array.nbytes

    def device_name(self) -> str:
        """Return ``cpu``."""
        return "cpu"

    def has_value(self) -> bool:
        """Return True: every value is a tensor."""
        return True

    def is_tensor(self) -> bool:
        """Return True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return False."""
        return False


def require_cpu(device_type: str, device_id: int) -> None:
    """Raise InvalidArgument for a device other than the processor."""
    if device_type.lower() != "cpu" or device_id != 0:
        raise InvalidArgument(
            f"device {device_type}:{device_id}: values are in the memory of the processor (cpu, 0); a session with "
            "engine='opencl' copies them where its device needs that"
        )


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """Return the NumPy type of a NumPy type, or of a TensorProto.DataType. Raises InvalidArgument."""
    if not isinstance(element_type, int):
        try:
            found: np.dtype[Any] | None = np.dtype(element_type)
        except TypeError as error:
            raise InvalidArgument(f"element_type: {error}") from error
    else:
        found = dtype_of_number(element_type)
    if found is None or found.kind == "O":
        kind = tensor_type(element_type) if found is None else "strings"
        raise InvalidArgument(f"element_type: there is no memory for tensors of {kind}")
    return found
