"""The payload of a program's entry: the binary for one device, the compiler's log, and what completes the binary later.

Parsed only after the store has verified its signature: a driver executes a binary, and writes the files that it names.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgpack

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.workers.engines.opencl_program import LARGEST

_FORMAT: Final = 1
#: Characters of a log that are kept.
_LONGEST_LOG: Final = 1 << 16


class MalformedProgram(Exception):
    """Signed bytes are no program: another version of poolrt wrote them. The message has the reason."""


@dataclass(frozen=True, slots=True)
class ProgramBinary:
    """One program for one device.

    ``log`` is the compiler's. ``suffix`` was appended to the source (see `late_compiles`), ``launches`` are the kernels'
    work-group sizes that the binary has code for, as PoCL names them; both empty for other drivers.
    """

    binary: bytes
    log: str
    suffix: str = ""
    launches: tuple[str, ...] = ()


def pack_program(program: ProgramBinary) -> bytes:
    """Return a program as bytes. Raises ValueError for a binary of more than `LARGEST` bytes."""
    if len(program.binary) > LARGEST:
        raise ValueError(f"a program binary has {len(program.binary)} bytes, more than {LARGEST}")
    binary, log = zlib.compress(program.binary), program.log[:_LONGEST_LOG].encode(errors="replace").decode()
    return bytes(msgpack.packb([_FORMAT, binary, log, program.suffix, list(program.launches)]))


def parse_program(payload: bytes) -> ProgramBinary:
    """Return the program that `pack_program` packed. Raises MalformedProgram."""
    try:
        fields: Any = msgpack.unpackb(payload)
        version, packed, log, suffix, launches = fields
        unpacking = zlib.decompressobj()
        binary = unpacking.decompress(packed, LARGEST)
    except (ValueError, TypeError, msgpack.UnpackException, zlib.error) as error:
        raise MalformedProgram(f"{len(payload)} bytes are no program: {error}") from None
    texts = isinstance(log, str) and isinstance(suffix, str) and isinstance(launches, list)
    if version != _FORMAT or not texts or not all(isinstance(launch, str) for launch in launches):
        raise MalformedProgram(f"{len(payload)} bytes are a program of another format: {version!r:.20}")
    if not unpacking.eof or not binary:
        raise MalformedProgram(f"the binary in {len(payload)} bytes is empty, cut short or longer than {LARGEST}")
    return ProgramBinary(binary, log, suffix, tuple(launches))
