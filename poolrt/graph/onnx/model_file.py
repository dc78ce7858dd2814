"""Read ONNX models and their tensors; large tensors are viewed where the parser left them, not copied again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError

Array: TypeAlias = NDArray[Any]
#: TensorProto.DataType -> little-endian NumPy type of its raw data (onnx.proto, "message TensorProto").
_RAW_TYPES: Final = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
FLOAT: Final = 1


def onnx_package() -> ModuleType:
    """Import onnx. Raises ModelError that says how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise ModelError("loading ONNX models needs the onnx package: pip install 'poolrt[onnx]'") from error
    return onnx


def read_model(source: str | os.PathLike[str] | bytes | Any) -> tuple[Any, str, Path | None]:
    """Return the model, a name for messages and the folder of its external data.

    ``source`` is a path, the bytes of a model or an ``onnx.ModelProto``. Raises ModelError in one line.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return source, "model", None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(onnx, bytes(source), "model"), "model", None
    path = Path(source)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _parse(onnx, content, str(path)), str(path), path.parent


def tensor(proto: Any, folder: Path | None) -> Array:
    """Return a TensorProto as an array. Raises ModelError naming the tensor."""
    dims: Sequence[int] = tuple(proto.dims)
    raw_type = _RAW_TYPES.get(proto.data_type)
    try:
        if proto.data_location == 1:
            return _external(proto, np.dtype(raw_type), dims, folder)
        if raw_type is not None and proto.HasField("raw_data"):
            return np.frombuffer(proto.raw_data, raw_type).reshape(dims)
        values: Array = onnx_package().numpy_helper.to_array(proto)
        return values
    except (ValueError, TypeError, OSError) as error:
        raise ModelError(f"tensor {proto.name!r}: {error}") from error


def _parse(onnx: ModuleType, content: bytes, name: str) -> Any:
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception as error:
        raise ModelError(f"{name}: not an ONNX model: {error}") from error
    if not model.HasField("graph"):
        raise ModelError(f"{name}: not an ONNX model: it holds no graph")
    return model


def _external(proto: Any, dtype: np.dtype[Any], dims: Sequence[int], folder: Path | None) -> Array:
    """Map a tensor that lies in a file of its own, which must be inside the model's folder."""
    where = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise ValueError("its data lies in another file, which a model given by its bytes cannot name")
    root = folder.resolve()
    path = (root / where.get("location", "")).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"its data lies outside of the model's folder ({where.get('location')})")
    return np.memmap(path, dtype, "r", int(where.get("offset", 0)), tuple(dims))
