"""Pickles of plain values: numbers, texts, bytes, NumPy arrays and containers of them, in one call of C code.

Every other object is left to cloudpickle, which looks at each class and function in Python.
"""

from __future__ import annotations

import io
import marshal
import pickle
import re
from typing import Any, Final

from .outlined_buffers import OutlinedBuffers, is_array, rebuild_array

#: Bytes of a buffer that is kept.
_KEPT: Final = 64 * 1024
#: Types whose values refer to no other objects; those with a length, and the longest that is pickled at once.
_NUMBERS: Final = frozenset((int, float, bool, type(None), complex))
_TEXTS: Final = frozenset((str, bytes))
_SHORT: Final = 1024
#: Types of the values of lists that are packed without a pickle, and the longest one.
_LISTED: Final = frozenset((int, float))
_SHORT_LIST: Final = 4096
#: The version of marshal's format that all Pythons read, and that has no table of objects.
_MARSHAL: Final = 2
#: The first bytes of scalars in marshal's format, and of a tuple of one scalar.
_SCALAR_KINDS: Final = frozenset(bytes((kind,)) for kind in b"NTFilgysu")
_SINGLE: Final = frozenset(b"(\1\0\0\0" + kind for kind in _SCALAR_KINDS)
#: Bytes of a scalar by its kind, and where the length of one is that has another size.
_SIZES: Final = {kind[0]: size for kind, size in ((b"N", 1), (b"T", 1), (b"F", 1), (b"i", 5), (b"g", 9), (b"y", 17))}
_LENGTHS: Final = {kind[0]: unit for kind, unit in ((b"s", 1), (b"u", 1), (b"l", 2))}
#: The kinds of containers with a count, also with the flag of what is referred to later, and what looks like one of 16,384
#: elements or more, but may be a part of a scalar. Shorter ones take little memory.
_CONTAINERS: Final = b"([<>\xa8\xdb\xbc\xbe"
_LARGE: Final = re.compile(rb"[(\[<>\xa8\xdb\xbc\xbe](?:.[\x40-\xff]..|..[^\0].|...[^\0])", re.DOTALL).search
#: What `unpack_scalar` raises for bytes that nothing packed.
UNPACKING_ERRORS: Final = (EOFError, MemoryError, TypeError, ValueError)


class _NotPlain(Exception):
    """A value has an object that is not plain."""


class _Aside:
    """The buffers of the present pickle. The pickler has this, not itself, as its callback: it is in no circle."""

    __slots__ = ("buffers",)

    def __init__(self) -> None:
        self.buffers: OutlinedBuffers | None = None

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Let a buffer travel beside the pickle, or in it."""
        return self.buffers is None or self.buffers.take(buffer)


class _PlainPickler(pickle.Pickler):
    """Refuses all objects that are not of a built-in type, which never come here, and no arrays of numbers or texts."""

    def __init__(self, file: io.BytesIO, aside: _Aside) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=aside.take)
        self._aside = aside

    def reducer_override(self, obj: Any) -> Any:
        buffers = self._aside.buffers
        if buffers is not None and is_array(obj):
            reduced = buffers.reduce(obj, plain=True)
            if reduced is not NotImplemented:
                return reduced
        elif obj is rebuild_array:
            return NotImplemented  # it is pickled by its name
        raise _NotPlain


def pickle_scalar(value: object) -> bytes | None:
    """Return the pickle of a number, a short text, short bytes or None; None for any other value."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL) if is_scalar(value) else None


def pickle_scalars(args: tuple[Any, ...]) -> bytes | None:
    """Return the pickle of positional arguments that are all scalars, and of no others by name; None for any other ones."""
    for value in args:
        if not is_scalar(value):
            return None
    return pickle.dumps((args, {}), pickle.HIGHEST_PROTOCOL)


def pack_scalar(value: Any) -> bytes | None:
    """Return what `unpack_scalar` reads; None for anything but a number, a short text, short bytes or None.

    That takes a fourth of the time of a pickle.
    """
    kind = type(value)
    if kind in _NUMBERS or (kind in _TEXTS and len(value) <= _SHORT):
        return marshal.dumps(value, _MARSHAL)
    return None


def pack_scalars(args: tuple[Any, ...]) -> bytes | None:
    """Return what `unpack_scalar` reads for arguments that are all scalars; None for any other ones."""
    for value in args:
        kind = type(value)
        if kind not in _NUMBERS and (kind not in _TEXTS or len(value) > _SHORT):
            return None
    return marshal.dumps(args, _MARSHAL)


def pack_numbers(values: list[Any]) -> bytes | None:
    """Return what `unpack_scalar` reads for a list of integers of 32 bits, or of floats; None for a long one, and others."""
    if not 0 < len(values) <= _SHORT_LIST or type(values[0]) not in _LISTED or type(values[-1]) not in _LISTED:
        return None
    try:
        data = marshal.dumps(values, _MARSHAL)
    except ValueError:
        return None  # an object that this format does not have
    return data if _has_numbers(data) else None


def _has_numbers(data: bytes) -> bool:
    """Return whether bytes are a list of integers of 32 bits, or of floats: each of them has the same size."""
    count, size = int.from_bytes(data[1:5], "little"), len(data) - 5
    return data[:1] == b"[" and (
        (size == 5 * count and data[5::5] == b"i" * count) or (size == 9 * count and data[5::9] == b"g" * count)
    )


def unpack_scalar(data: bytes) -> Any:
    """Return what `pack_scalar`, `pack_scalars` or `pack_numbers` was given. Raises `UNPACKING_ERRORS` for most other bytes."""
    # Damaged bytes may say that a tuple has two thousand million elements, whose memory would be taken at once.
    # These steps are in the order of what most values need.
    if data[:1] not in _SCALAR_KINDS and data[:6] not in _SINGLE:
        if data[:1] == b"[":
            if not _has_numbers(data):
                raise ValueError("bytes that are no numbers")
        elif data[3:5] != b"\0\0" or len(data.translate(None, _CONTAINERS)) != len(data) - 1:
            _check_scalars(data)
    return marshal.loads(data)


def _check_scalars(data: bytes) -> None:
    """Raise ValueError for bytes that are not those of a tuple of scalars, if loading them may take much memory."""
    if _LARGE(data) is None:
        return
    end = len(data)
    if data[:1] != b"(" or int.from_bytes(data[1:5], "little") > end:
        raise ValueError("bytes that are no arguments")
    at = 5
    while at < end:
        kind = data[at]
        if kind in _LENGTHS:
            at += 5 + _LENGTHS[kind] * abs(int.from_bytes(data[at + 1 : at + 5], "little", signed=True))
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise ValueError(f"an argument of kind {kind}")


def is_scalar(value: object) -> bool:
    """Return whether a value is a number, a short text, short bytes or None."""
    kind = type(value)
    return kind in _NUMBERS or (kind in _TEXTS and len(value) <= _SHORT)  # type: ignore[arg-type]


class PlainPickles:
    """Pickles plain values, one thread at a time. Making a pickler takes longer than a small value, so it is kept."""

    __slots__ = ("_aside", "_file", "_pickler")

    def __init__(self) -> None:
        self._aside = _Aside()
        self._renew()

    def dumps(self, value: object, buffers: OutlinedBuffers | None = None) -> bytes | None:
        """Return a pickle that `pickle.loads` and every other loader reads, None for a value that is not plain.

        Arrays are plain if there are ``buffers``, which get the long ones. Raises what pickling raises: RecursionError, and
        MemoryError.
        """
        file, pickler = self._file, self._pickler
        self._aside.buffers = buffers
        # An interrupt may have ended the call before anywhere, so each one begins by clearing.
        file.seek(0)
        file.truncate()
        pickler.clear_memo()
        try:
            pickler.dump(value)
        except _NotPlain:
            if buffers is not None:
                buffers.clear()
            return None
        finally:
            self._aside.buffers = None
            pickler.clear_memo()  # it refers to all that was pickled
        data = file.getvalue()
        if len(data) > _KEPT:
            self._renew()
        return data

    def _renew(self) -> None:
        self._file = io.BytesIO()
        self._pickler = _PlainPickler(self._file, self._aside)
