"""Read ONNX models and their tensors; large tensors are views into the file and are not copied."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.cachestore.portable_error import sendable
from poolrt.spelling import describe_type

from ..errors import ModelError
from ..mapped_file import MappedFile
from .detached import detach
from .external_data import ExternalData, open_regular
from .foreign_format import describe_format
from .message_count import TooManyMessages, check_messages
from .names import undecodable_name
from .versions import check_versions

Array: TypeAlias = NDArray[Any]
#: TensorProto.DataType -> little-endian NumPy type of its raw data (onnx.proto, "message TensorProto").
_RAW_TYPES: Final = {
    1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4", 13: "<u8",
}  # fmt: skip
FLOAT: Final = 1
_STRING, _BOOL, _BFLOAT16 = 8, 9, 16
#: TensorProto.DataType that NumPy does not have, of 8 bits or less -> the bits of an element in a tensor's data.
_BITS: Final = {17: 8, 18: 8, 19: 8, 20: 8, 24: 8, 21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
#: NumPy's limit for the rank of an array.
_MOST_DIMS: Final = 64
#: Protobuf's limit for a message, without the raw data that are taken out before.
_MOST_BYTES: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A parsed model: its ``ModelProto``, a label for messages, and the places of the data of its large tensors.

    ``external`` has tensors in separate files, ``detached`` the raw data of initialisers by number.
    """

    proto: Any
    label: str
    external: ExternalData | None = None
    detached: Mapping[int, memoryview] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A name for the graph: the file's, or the graph's own."""
        if self.external is not None:
            return sendable(Path(self.label).stem)
        name = self.proto.graph.name
        return name if name and isinstance(name, str) else "model"

    def initializers(self, but: int = 0) -> dict[str, Array]:
        """Return the initialisers by name, without those of the TensorProto.DataType ``but``.

        Raises ModelError naming the tensor that is malformed or missing.
        """
        found = {}
        for number, initializer in enumerate(self.proto.graph.initializer):
            if initializer.data_type == but:
                continue
            found[initializer.name] = tensor(initializer, self.external, self.detached.get(number))
        return found


@cache
def onnx_package() -> ModuleType:
    """Import onnx. Raises ModelError that says how to get it."""
    try:
        with deferred_interrupts():  # protobuf's C code crashes when one interrupts the Python code that it calls
            import onnx
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):
            raise ModelError(f"the onnx package cannot be imported: {error}") from error
        raise ModelError("loading ONNX models needs the onnx package: pip install 'poolrt[onnx]'") from error
    return onnx


def read_model(source: str | os.PathLike[str] | bytes | Any) -> ModelFile:
    """Return the model of a path, of bytes or of an ``onnx.ModelProto``. Raises ModelError in one line.

    A file is mapped: do not overwrite it in place while its graph is in use. Renaming another file over it is safe.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return _checked(onnx, ModelFile(source, "model"))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(onnx, memoryview(source), "model", None)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"model: expect a path, the bytes of a model or an onnx.ModelProto, got {describe_type(source)}"
        )
    path = Path(source)
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = MappedFile(file, path).data if size else memoryview(b"")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return _parse(onnx, content, str(path), ExternalData(path.parent))


def tensor(proto: Any, external: ExternalData | None, detached: memoryview | None = None) -> Array:
    """Return a TensorProto of numbers as an array. Raises ModelError naming the tensor.

    Its data must have exactly the bytes that its shape and type need.
    """
    try:
        dims, raw_type = _dims(proto), _RAW_TYPES.get(proto.data_type)
        if raw_type is None and proto.data_type != _BFLOAT16 and proto.data_type not in _BITS:
            raise ValueError(
                "it has strings" if proto.data_type == _STRING else f"data type {proto.data_type} is not supported"
            )
        if proto.data_location == 1 and proto.data_type in _BITS:
            return _unpacked(proto, _external(proto, dims, external))
        if detached is None and proto.data_type in _BITS and proto.HasField("raw_data"):
            _check_bytes(len(proto.raw_data), _needed(proto.data_type, dims), f"{dims} of data type {proto.data_type}")
        if proto.data_location == 1:
            return _typed(_external(proto, dims, external), proto.data_type, dims)
        if raw_type is not None and (detached is not None or proto.HasField("raw_data")):
            return _typed(proto.raw_data if detached is None else detached, proto.data_type, dims)
        if detached is not None:
            proto.raw_data = bytes(detached)
        values: Array = onnx_package().numpy_helper.to_array(proto)
        return values
    except (ValueError, TypeError, OSError) as error:
        raise ModelError(f"tensor {proto.name!r}: {error}") from error


def numpy_type(number: int) -> np.dtype[Any] | None:
    """Return the NumPy type of a TensorProto.DataType, None for a type that NumPy does not have."""
    raw_type = _RAW_TYPES.get(number)
    return None if raw_type is None else np.dtype(raw_type)


def _parse(onnx: ModuleType, content: memoryview, label: str, external: ExternalData | None) -> ModelFile:
    rest, detached = detach(content)
    if len(rest) > _MOST_BYTES:
        raise ModelError(f"{label}: not an ONNX model: {len(rest)} bytes beside its data, expect {_MOST_BYTES} at most")
    try:
        check_messages(memoryview(rest), onnx.ModelProto.DESCRIPTOR)
    except TooManyMessages as error:
        raise _no_model(label, content, str(error)) from error
    try:
        model = onnx.ModelProto.FromString(bytes(rest))
    except Exception as error:
        raise _no_model(label, content, str(error)) from error
    if not model.HasField("graph"):
        raise _no_model(label, content, "it holds no graph")
    return _checked(onnx, ModelFile(model, label, external, detached))


def _checked(onnx: ModuleType, file: ModelFile) -> ModelFile:
    name = undecodable_name(file.proto)
    if name is not None:
        raise ModelError(f"{file.label}: the name {name!r} is not UTF-8")
    try:
        check_versions(file.proto, onnx.defs.C.schema_version_map())
    except ModelError as error:
        raise ModelError(f"{file.label}: {error}") from error
    return file


def _no_model(label: str, content: memoryview, reason: str) -> ModelError:
    return ModelError(
        f"{label}: not an ONNX model: {describe_format(content) or f'{reason}; export or download it again'}"
    )


def _dims(proto: Any) -> tuple[int, ...]:
    if len(proto.dims) > _MOST_DIMS:
        raise ValueError(f"it has {len(proto.dims)} dimensions; expect at most {_MOST_DIMS}")
    dims = tuple(proto.dims)
    if min(dims, default=0) < 0:
        raise ValueError(f"its shape {dims} has a negative size")
    return dims


def _typed(data: Any, data_type: int, dims: tuple[int, ...]) -> Array:
    """Return little-endian data as an array."""
    kind = np.dtype(_RAW_TYPES[data_type])
    _check_size(len(data), kind, dims)
    given: Array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    # A boolean of NumPy's is 0 or 1; other bytes would make it neither.
    return given.reshape(dims) != 0 if data_type == _BOOL else given.view(kind).reshape(dims)


def _unpacked(proto: Any, data: Array) -> Array:
    """Return the elements of bytes that hold one element or several each."""
    whole = onnx_package().TensorProto(dims=proto.dims, data_type=proto.data_type, raw_data=data.tobytes())
    values: Array = onnx_package().numpy_helper.to_array(whole)
    return values


def _needed(number: int, dims: tuple[int, ...]) -> int:
    """Return the bytes of a tensor's data."""
    kind = numpy_type(number)
    return -(-math.prod(dims) * (_BITS[number] if kind is None else 8 * kind.itemsize) // 8)


def _check_size(size: int, kind: np.dtype[Any], dims: tuple[int, ...]) -> None:
    _check_bytes(size, math.prod(dims) * kind.itemsize, f"{dims} of {kind}")


def _check_bytes(size: int, needed: int, shape: str) -> None:
    if size != needed:
        raise ValueError(f"its shape {shape} needs {needed} bytes, its data have {size}")


def _external(proto: Any, dims: tuple[int, ...], external: ExternalData | None) -> Array:
    """Return the bytes of a tensor in a separate file, which must be in the model's folder."""
    where = {entry.key: entry.value for entry in proto.external_data}
    if external is None:
        raise ValueError("its data is in another file; load the model by its path")
    kind = numpy_type(proto.data_type)
    if kind is None and proto.data_type not in _BITS:
        raise ValueError(f"data type {proto.data_type} is not supported in another file")
    needed = _needed(proto.data_type, dims)
    offset = _natural(where, "offset", 0)
    _check_bytes(_natural(where, "length", needed), needed, f"{dims} of {kind or f'data type {proto.data_type}'}")
    return external.read(where.get("location", ""), offset, needed)


def _natural(where: Mapping[str, str], key: str, default: int) -> int:
    text = where.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(f"{key}: expect a number of bytes, got {text!r:.60}")
    return int(text)
