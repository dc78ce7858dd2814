"""Files with tensors from any program: NumPy's ``.npy`` and ``.npz``, and ``.pb`` with an ONNX ``TensorProto``.

NumPy's formats are recognised by their first bytes, not by the file's name, and read without pickle. Headers are read
before data, because a few bytes of an archive may stand for gigabytes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.cli.report import UsageError

Array = NDArray[Any]
_T = TypeVar("_T")

#: First bytes of an archive with members, of one without, and of an array.
_ARCHIVES: Final = (b"PK\x03\x04", b"PK\x05\x06")
_ARRAY: Final = b"\x93NUMPY"
#: Version of the format -> bytes of the number that counts those of the header; version 3 is for structures only.
_LENGTHS: Final = {b"\x01\x00": 2, b"\x02\x00": 4}
#: Bytes of a header, which NumPy limits too, but only after reading all of it.
_MOST_HEADER: Final = 10_000
#: What NumPy writes; the other methods decompress any amount at once.
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class Header:
    """The shape and data type of an array in a file."""

    dims: tuple[int, ...]
    dtype: np.dtype[Any]


def read_headers(path: Path) -> dict[str, Header]:
    """Return the headers of all arrays of a file by name; the array of an ``.npy`` file has the empty name.

    Guarantees: no data are decompressed. Raises UsageError, with the file's path, if the file is unreadable or has none of
    these formats.
    """
    return _read(path, _proto_headers, lambda file: {"": _header(file)}, _archive_headers)


def read_tensor(path: Path, name: str, header: Header) -> Array:
    """Return one array of a file, of which `read_headers` returned this header. Raises UsageError as it does."""

    def from_array(file: BinaryIO) -> Array:
        return _data(file, header)

    def from_archive(file: BinaryIO) -> Array:
        with zipfile.ZipFile(file) as archive, archive.open(_members(archive)[name]) as member:
            return _data(member, header)

    return _read(path, lambda path: _read_proto(path)[name], from_array, from_archive)


def _read(
    path: Path,
    from_proto: Callable[[Path], _T],
    from_array: Callable[[BinaryIO], _T],
    from_archive: Callable[[BinaryIO], _T],
) -> _T:
    """Return what the reader of a file's format returns; errors become UsageErrors."""
    try:
        if path.suffix == ".pb":
            return from_proto(path)
        with path.open("rb") as file:
            head = file.read(len(_ARRAY))
            file.seek(0)
            if head.startswith(_ARCHIVES):
                return _guard(f"{path}: a damaged archive, or one of Python objects", from_archive, file)
            if head == _ARRAY:
                return _guard(f"{path}: a damaged array file, or one of Python objects", from_array, file)
    except _NotArrays as error:
        raise UsageError(f"{path}: not an archive of NumPy arrays: it holds {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
    raise UsageError(f"{path}: not a file of arrays; expected NumPy's .npy or .npz, or .pb with an ONNX tensor")


class _NotArrays(Exception):
    """An archive has members that are no arrays; the message lists them."""


def _guard(complaint: str, read: Callable[[BinaryIO], _T], file: BinaryIO) -> _T:
    try:
        return read(file)
    except _NotArrays:
        raise
    except Exception as error:
        # A damaged file can make NumPy, zipfile, zlib or tokenize raise any error.
        raise UsageError(f"{complaint}: {error}") from error


def _archive_headers(file: BinaryIO) -> dict[str, Header]:
    found: dict[str, Header] = {}
    strangers = []
    with zipfile.ZipFile(file) as archive:
        for name, info in _members(archive).items():
            with archive.open(info) as member:
                if member.read(len(_ARRAY)) != _ARRAY:
                    strangers.append(info.filename)
                    continue
                found[name] = _header(member, begun=True)
    if strangers:
        raise _NotArrays(", ".join(strangers))
    return found


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive by the names of their arrays."""
    for info in archive.infolist():
        if info.compress_type not in _METHODS:
            raise ValueError(f"{info.filename} is compressed in a way that NumPy does not use")
    return {info.filename.removesuffix(".npy"): info for info in archive.infolist()}


def _header(file: IO[bytes], begun: bool = False) -> Header:
    """Read the header of an array, of which the first bytes are read already if it is ``begun``."""
    if not begun and file.read(len(_ARRAY)) != _ARRAY:
        raise ValueError("the first bytes are not an array's")
    version = file.read(2)
    if version not in _LENGTHS:
        raise ValueError(f"version {tuple(version)} of the format is not supported")
    counted = file.read(_LENGTHS[version])
    length = int.from_bytes(counted, "little")
    if length > _MOST_HEADER:
        raise ValueError(f"its header has {length} bytes, expect at most {_MOST_HEADER}")
    parse = np.lib.format.read_array_header_1_0 if len(counted) == 2 else np.lib.format.read_array_header_2_0
    dims, _, dtype = parse(io.BytesIO(counted + file.read(length)))
    if dtype.hasobject:
        raise ValueError("its elements are Python objects")
    return Header(tuple(dims), dtype)


def _data(file: IO[bytes], header: Header) -> Array:
    """Read an array. Raises ValueError if it does not have the header any more."""
    if _header(file) != header:
        raise ValueError("it changes while it is read")
    file.seek(0)
    array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _proto_headers(path: Path) -> dict[str, Header]:
    return {name: Header(array.shape, array.dtype) for name, array in _read_proto(path).items()}


def _read_proto(path: Path) -> dict[str, Array]:
    try:
        import onnx
        from google.protobuf.message import DecodeError

        from poolrt.graph.errors import ModelError
        from poolrt.graph.onnx.model_file import tensor
    except ModuleNotFoundError as error:
        raise UsageError(f"{path}: reading .pb files needs the onnx package: pip install 'poolrt[onnx]'") from error
    proto = onnx.TensorProto()
    content = path.read_bytes()
    try:
        proto.ParseFromString(content)
        return {str(proto.name): tensor(proto, None)}
    except (DecodeError, ModelError, ValueError) as error:
        raise UsageError(f"{path}: not an ONNX tensor: {error}") from error
