"""The constants of plans in files that processes of the node share: a worker writes them, and maps those of its models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from poolrt.cachestore.constant_files import ConstantFiles, map_constant
from poolrt.cachestore.mapping import MappedBytes

from ..memory.buffer import Buffer

#: Bytes of the memory that is kept between two constants. Most are smaller.
_ROOM_BYTES: Final = 16 << 20


class ConstantStore:
    """Writes and maps constants; ``options`` are those of `ConstantFiles`, none if this node shares no constants."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._files = ConstantFiles(**options) if options else None
        self._room: Buffer | None = None

    def room(self, nbytes: int) -> Buffer:
        """Return memory for a constant until it is written, with any content.

        The same for many of them, until `release`: the first touch of its pages takes longer than to write them to the file.
        They are small ones: huge ones that the host of a virtual machine has to supply take longer still.
        """
        if nbytes > _ROOM_BYTES:
            return Buffer(nbytes, huge=False)
        if self._room is None:
            self._room = Buffer(_ROOM_BYTES, huge=False)
        return self._room

    def release(self) -> None:
        """Free the memory that was kept."""
        self._room = None

    def keep(self, name: str, nbytes: int, make: Callable[[], memoryview]) -> None:
        """Write the constant that ``make`` returns, unless its file is there or cannot be written."""
        opened = None if self._files is None else self._files.open_or_write(name, nbytes, make)
        if opened is not None:
            os.close(opened)

    def map(self, process: int, descriptor: int, name: str, nbytes: int) -> MappedBytes:
        """Map the file of a constant that another process has open, also if it was removed. Raises OSError."""
        # Not a path to the file: it may be evicted while a model uses it.
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = map_constant(opened, name, nbytes)
        finally:
            os.close(opened)
        if found is None:
            raise OSError(f"constant {name} of {nbytes} bytes cannot be mapped")
        return found
