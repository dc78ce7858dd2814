"""Files with tensors from any program: NumPy's ``.npy`` and ``.npz``, and ``.pb`` with an ONNX ``TensorProto``.

NumPy's formats are recognised by their first bytes, not by the file's name, and read without pickle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.cli.report import UsageError

Array = NDArray[Any]

#: First bytes of an archive with members, of one without, and of an array.
_ARCHIVES: Final = (b"PK\x03\x04", b"PK\x05\x06")
_ARRAY: Final = b"\x93NUMPY"


def read_tensors(path: Path) -> dict[str, Array]:
    """Return the arrays of a file by name; the array of an ``.npy`` file has the empty name.

    Raises UsageError, with the file's path, if it is unreadable or has none of these formats.
    """
    try:
        if path.suffix == ".pb":
            return _read_proto(path)
        # Opened here, because NumPy leaves a file open that it fails to read.
        with path.open("rb") as file:
            head = file.read(len(_ARRAY))
            file.seek(0)
            if head.startswith(_ARCHIVES):
                return _read_archive(path, file)
            if head == _ARRAY:
                return {"": _read_array(path, file)}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
    raise UsageError(f"{path}: not a file of arrays; expected NumPy's .npy or .npz, or .pb with an ONNX tensor")


def _read_array(path: Path, file: Any) -> Array:
    try:
        array: Array = np.load(file, allow_pickle=False)
        return array
    except Exception as error:
        # A damaged file can make NumPy or tokenize raise any error.
        raise UsageError(f"{path}: a damaged array file, or one of Python objects: {error}") from error


def _read_archive(path: Path, file: Any) -> dict[str, Array]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except Exception as error:
        # A damaged file can make NumPy, zipfile, zlib or tokenize raise any error.
        raise UsageError(f"{path}: a damaged archive, or one of Python objects: {error}") from error
    strangers = [name for name, member in found.items() if not isinstance(member, np.ndarray)]
    if strangers:
        raise UsageError(f"{path}: not an archive of NumPy arrays: it holds {', '.join(strangers)}")
    return found


def _read_proto(path: Path) -> dict[str, Array]:
    try:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx import numpy_helper
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: reading .pb files needs the onnx package: pip install 'poolrt[onnx]'") from error
    tensor = onnx.TensorProto()
    content = path.read_bytes()
    try:
        tensor.ParseFromString(content)
        return {tensor.name: numpy_helper.to_array(tensor)}
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path}: not an ONNX tensor: {error}") from error
