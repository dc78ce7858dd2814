"""Read ONNX models and their tensors; large tensors are views into the file and are not copied."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .detached import detach

Array: TypeAlias = NDArray[Any]
#: TensorProto.DataType -> little-endian NumPy type of its raw data (onnx.proto, "message TensorProto").
_RAW_TYPES: Final = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
FLOAT: Final = 1


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A parsed model: its ``ModelProto``, a label for messages, and the places of the data of its large tensors.

    ``folder`` contains tensors in separate files, ``detached`` the raw data of initialisers by number.
    """

    proto: Any
    label: str
    folder: Path | None = None
    detached: Mapping[int, memoryview] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A name for the graph: the file's, or the graph's own."""
        return Path(self.label).stem if self.folder is not None else self.proto.graph.name or "model"

    def initializers(self) -> dict[str, Array]:
        """Return the initialisers by name. Raises ModelError naming the tensor that is malformed or missing."""
        found = {}
        for number, initializer in enumerate(self.proto.graph.initializer):
            found[initializer.name] = tensor(initializer, self.folder, self.detached.get(number))
        return found


def onnx_package() -> ModuleType:
    """Import onnx. Raises ModelError that says how to get it."""
    try:
        import onnx
    except ImportError as error:
        raise ModelError("loading ONNX models needs the onnx package: pip install 'poolrt[onnx]'") from error
    return onnx


def read_model(source: str | os.PathLike[str] | bytes | Any) -> ModelFile:
    """Return the model of a path, of bytes or of an ``onnx.ModelProto``. Raises ModelError in one line.

    A file is mapped: do not overwrite it in place while its graph is in use. Renaming another file over it is safe.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return ModelFile(source, "model")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(onnx, memoryview(source), "model", None)
    path = Path(source)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return _parse(onnx, content, str(path), path.parent)


def tensor(proto: Any, folder: Path | None, detached: memoryview | None = None) -> Array:
    """Return a TensorProto as an array. Raises ModelError naming the tensor."""
    dims: Sequence[int] = tuple(proto.dims)
    raw_type = _RAW_TYPES.get(proto.data_type)
    try:
        if proto.data_location == 1:
            return _external(proto, np.dtype(raw_type), dims, folder)
        if raw_type is not None and (detached is not None or proto.HasField("raw_data")):
            return np.frombuffer(proto.raw_data if detached is None else detached, raw_type).reshape(dims)
        if detached is not None:
            proto.raw_data = bytes(detached)
        values: Array = onnx_package().numpy_helper.to_array(proto)
        return values
    except (ValueError, TypeError, OSError) as error:
        raise ModelError(f"tensor {proto.name!r}: {error}") from error


def _parse(onnx: ModuleType, content: memoryview, label: str, folder: Path | None) -> ModelFile:
    rest, detached = detach(content)
    try:
        model = onnx.ModelProto.FromString(bytes(rest))
    except Exception as error:
        raise ModelError(f"{label}: not an ONNX model: {error}") from error
    if not model.HasField("graph"):
        raise ModelError(f"{label}: not an ONNX model: it holds no graph")
    return ModelFile(model, label, folder, detached)


def _external(proto: Any, dtype: np.dtype[Any], dims: Sequence[int], folder: Path | None) -> Array:
    """Map a tensor in a separate file, which must be in the model's folder."""
    where = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise ValueError("its data is in another file; load the model by its path")
    root = folder.resolve()
    path = (root / where.get("location", "")).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"its data is outside of the model's folder ({where.get('location')})")
    return np.memmap(path, dtype, "r", int(where.get("offset", 0)), tuple(dims))
