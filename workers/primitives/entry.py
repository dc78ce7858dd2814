"""The cached form of a primitive: one msgpack entry holding its launches, tables, scratchpad and compiled kernels.

An entry is parsed only after its signature has been verified, and even then every type, index and offset is checked, so
that a malformed one gives `MalformedEntry` and no launch ever addresses memory that the entry did not book.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgpack

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..implementations.program import Launch, LaunchArgument, NestedLaunch, Program, Transfer

FORMAT: Final = 6

#: The range of a launch's numbers: int64.
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
#: Bytes that no process can address.
_MOST_SCRATCHPAD: Final = 1 << 47

_T = TypeVar("_T")


class MalformedEntry(ValueError):
    """The bytes of an entry are not a primitive of this format. Raised by `parse_entry`."""


class Entry(NamedTuple):
    """A parsed entry. ``binaries`` holds native objects (one a kernel) or OpenCL program binaries with their kernel names.

    ``kernels`` holds the identity of each binary (see `kernel_identity`); it is empty if no other primitive has use of them.
    ``nested`` holds the canonical bytes of the keys of nested primitives, ``nanoseconds`` the estimated time of executing
    the primitive on one thread, what is nested in it aside.
    """

    implementation: str
    engine_kind: str
    binaries: tuple[bytes, ...]
    kernel_names: tuple[str, ...]
    launches: tuple[Launch | NestedLaunch, ...]
    tables: bytes
    scratchpad: int
    nested: tuple[bytes, ...] = ()
    copies_in: tuple[Transfer, ...] = ()
    copies_out: tuple[Transfer, ...] = ()
    nanoseconds: int = 0
    kernels: tuple[bytes, ...] = ()


def pack_entry(
    implementation: str,
    engine_kind: str,
    program: Program,
    binaries: list[bytes],
    kernel_names: list[str],
    nested: Sequence[bytes] = (),
    nanoseconds: int = 0,
    kernels: Sequence[bytes] = (),
) -> bytes:
    """Return the entry of a compiled program.

    ``nested`` are the canonical bytes of its nested primitives' keys, ``kernels`` the identities of its binaries.
    """
    launches = [
        [run.primitive, run.args, run.scratchpad]
        if isinstance(run, NestedLaunch)
        else [run.kernel, run.args, run.work, run.global_size, run.local_size]
        for run in program.launches
    ]
    packed: bytes = msgpack.packb(
        {
            "format": FORMAT,
            "implementation": implementation,
            "engine": engine_kind,
            "binaries": binaries,
            "names": kernel_names,
            "launches": launches,
            "tables": program.tables,
            "scratchpad": program.scratchpad,
            "nested": list(nested),
            "copies_in": program.copies_in,
            "copies_out": program.copies_out,
            "nanoseconds": nanoseconds,
            "kernels": list(kernels),
        }
    )
    return packed


def parse_entry(data: bytes) -> Entry:
    """Parse an entry. Raises MalformedEntry naming what is wrong."""
    try:
        raw = msgpack.unpackb(data, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedEntry(f"not msgpack: {error}") from error
    try:
        return _checked(raw)
    except MalformedEntry:
        raise
    except (KeyError, TypeError, ValueError) as error:
        # A part is missing, or is no table or list.
        raise MalformedEntry(f"{type(error).__name__}: {error}") from error


def _checked(raw: Any) -> Entry:
    if raw["format"] != FORMAT:
        raise MalformedEntry(f"format {raw['format']!r:.60}, expected {FORMAT}")
    implementation, engine = _of(str, raw["implementation"]), _of(str, raw["engine"])
    binaries = tuple(_of(bytes, binary) for binary in _of(tuple, raw["binaries"]))
    names = tuple(_of(str, name) for name in _of(tuple, raw["names"]))
    if len(names) != (len(binaries) if engine == "opencl" else 0):
        raise MalformedEntry(f"{len(names)} kernel names for {len(binaries)} binaries of engine {engine!r:.60}")
    tables, scratchpad = _of(bytes, raw["tables"]), _number(raw["scratchpad"], 0, _MOST_SCRATCHPAD)
    nested = tuple(_of(bytes, key) for key in _of(tuple, raw["nested"]))
    room = _Room(len(binaries), len(tables), scratchpad, len(nested))
    launches = tuple(
        _nested_launch(item, room) if len(item) == 3 else _launch(item, room) for item in _of(tuple, raw["launches"])
    )
    copies_in, copies_out = (
        tuple(_transfer(item, room) for item in _of(tuple, raw[name])) for name in ("copies_in", "copies_out")
    )
    kernels = tuple(_of(bytes, identity) for identity in _of(tuple, raw["kernels"]))
    if len(kernels) not in (0, len(binaries)):
        raise MalformedEntry(f"{len(kernels)} identities of kernels for {len(binaries)} binaries")
    ended = copies_in, copies_out, _number(raw["nanoseconds"], 0, _MOST), kernels
    return Entry(implementation, engine, binaries, names, launches, tables, scratchpad, nested, *ended)


class _Room(NamedTuple):
    """The bounds of what launches may name: numbers of kernels and nested primitives, bytes of tables and scratchpad."""

    kernels: int
    tables: int
    scratchpad: int
    nested: int


def _nested_launch(item: Any, room: _Room) -> NestedLaunch:
    number, args, scratchpad = item
    placed = []
    for arg, place in _of(tuple, args):
        where, value = _of(tuple, place)
        if where not in ("m", "s", "t"):
            raise MalformedEntry(f"argument {where!r:.60} of a nested primitive")
        placed.append((_number(arg, _LEAST, _MOST), _argument(where, value, room)))
    return NestedLaunch(_number(number, 0, room.nested - 1), tuple(placed), _number(scratchpad, 0, room.scratchpad))


def _transfer(item: Any, room: _Room) -> Transfer:
    arg, place, nbytes = item
    where, value = _of(tuple, place)
    if where not in ("m", "s"):
        raise MalformedEntry(f"transfer to or from {where!r:.60}")
    _number(nbytes, 0, _MOST_SCRATCHPAD)
    _argument(where, value, room)
    if where == "s":
        _number(value, 0, room.scratchpad - nbytes)
    return Transfer(_number(arg, _LEAST, _MOST), (where, value), nbytes)


def _argument(where: Any, value: Any, room: _Room) -> LaunchArgument:
    if where == "m":
        arg, offset = _of(tuple, value)
        _number(arg, _LEAST, _MOST)
        _number(offset, _LEAST, _MOST)
    elif where == "i":
        _number(value, _LEAST, _MOST)
    elif where == "s":
        _number(value, 0, room.scratchpad)
    elif where == "t":
        _number(value, 0, room.tables)
    elif where != "f" or type(value) not in (int, float):
        raise MalformedEntry(f"argument {where!r:.60} of value {value!r:.60}")
    return where, value


def _launch(item: Any, room: _Room) -> Launch:
    kernel, args, work, global_size, local_size = item
    return Launch(
        _number(kernel, 0, room.kernels - 1),
        tuple(_argument(where, value, room) for where, value in _of(tuple, args)),
        _number(work, 0, _MOST),
        tuple(_number(size, 0, _MOST) for size in _of(tuple, global_size)),
        tuple(_number(size, 0, _MOST) for size in _of(tuple, local_size)),
    )


def _of(kind: type[_T], value: Any) -> _T:
    """Return a value that is exactly of a type."""
    if type(value) is not kind:
        raise MalformedEntry(f"{value!r:.60} instead of {kind.__name__}")
    return value


def _number(value: Any, least: int, most: int) -> int:
    """Return a whole number within a range."""
    if type(value) is not int or not least <= value <= most:
        raise MalformedEntry(f"{value!r:.60} instead of a number from {least} to {most}")
    return value
