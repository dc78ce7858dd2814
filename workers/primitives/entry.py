"""The cached form of a primitive: one msgpack entry holding its launches, tables, scratchpad and compiled kernels.

An entry is parsed only after its signature has been verified, and even then every index and offset is checked, so that
a malformed one gives `MalformedEntry` and no launch ever addresses memory that the entry did not book.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import msgpack

from .program import Launch, LaunchArgument, Program

FORMAT: Final = 1


class MalformedEntry(ValueError):
    """The bytes of an entry are not a primitive of this format. Raised by `parse_entry`."""


class Entry(NamedTuple):
    """A parsed entry. ``binaries`` holds native objects (one a kernel) or OpenCL program binaries with their kernel names."""

    implementation: str
    engine_kind: str
    binaries: tuple[bytes, ...]
    kernel_names: tuple[str, ...]
    launches: tuple[Launch, ...]
    tables: bytes
    scratchpad: int


def pack_entry(
    implementation: str, engine_kind: str, program: Program, binaries: list[bytes], kernel_names: list[str]
) -> bytes:
    """Return the entry of a compiled program."""
    launches = [
        [run.kernel, [list(a) for a in run.args], run.work, run.global_size, run.local_size] for run in program.launches
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
        }
    )
    return packed


def parse_entry(data: bytes) -> Entry:
    """Parse an entry. Raises MalformedEntry saying what does not hold."""
    try:
        raw = msgpack.unpackb(data, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedEntry(f"not msgpack: {error}") from error
    try:
        return _checked(raw)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MalformedEntry(f"{type(error).__name__}: {error}") from error


def _checked(raw: Any) -> Entry:
    if raw["format"] != FORMAT:
        raise MalformedEntry(f"format {raw['format']!r}, expected {FORMAT}")
    binaries, names = raw["binaries"], raw["names"]
    if not all(isinstance(b, bytes) for b in binaries) or not all(isinstance(n, str) for n in names):
        raise MalformedEntry("binaries must be bytes and kernel names text")
    tables, scratchpad = raw["tables"], raw["scratchpad"]
    if not isinstance(tables, bytes) or not isinstance(scratchpad, int) or scratchpad < 0:
        raise MalformedEntry("tables must be bytes and the scratchpad a size")
    kernels = len(names) or len(binaries)
    launches = tuple(_launch(item, kernels, len(tables), scratchpad) for item in raw["launches"])
    return Entry(str(raw["implementation"]), str(raw["engine"]), binaries, names, launches, tables, scratchpad)


def _launch(item: Any, kernels: int, tables: int, scratchpad: int) -> Launch:
    kernel, args, work, global_size, local_size = item
    if not 0 <= kernel < kernels or work < 0:
        raise MalformedEntry(f"kernel {kernel} or work {work} is out of range")
    for where, value in args:
        limit = {"s": scratchpad, "t": tables}.get(where)
        if limit is not None and not 0 <= value <= limit:
            raise MalformedEntry(f"offset {value} is outside of {limit} bytes")
        if where == "m":
            arg, offset = value
            if not (isinstance(arg, int) and isinstance(offset, int)):
                raise MalformedEntry("a memory argument must be a pair of integers")
        elif not isinstance(value, {"f": (int, float)}.get(where, int)):
            raise MalformedEntry(f"argument {where!r} has a value of type {type(value).__name__}")
        if where not in ("i", "f", "m", "s", "t"):
            raise MalformedEntry(f"unknown kind of argument {where!r}")
    return Launch(kernel, cast("tuple[LaunchArgument, ...]", args), work, tuple(global_size), tuple(local_size))
