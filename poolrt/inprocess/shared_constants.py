"""Constants in the layouts of plans that all processes of a node share, as files in the user's cache folder."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.graph.constant import Constant
from poolrt.graph.constant_name import LEAST_BYTES, ROW_MAJOR, name_constant
from poolrt.graph.constant_source import describe_source
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.execution.memory import Memory
from poolrt.workers.primitives.key import primitive_key

from .constants import new_bytes

if TYPE_CHECKING:
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc


class SharedConstants:
    """The constants of one graph that other processes share, while they are made: one after the other, in one piece of memory."""

    def __init__(self, files: ConstantFiles) -> None:
        self._files = files
        self._room: Memory | None = None

    def share(
        self, constant: Constant, reorder: PrimitiveDesc | None, nbytes: int, make: Callable[[Memory], Memory]
    ) -> Memory:
        """Return a constant of ``nbytes`` bytes as a plan's reorder writes it, or row-major.

        ``make`` writes it into the memory that it is given, if no process of the node has it yet. The result is this process's
        own memory if it is small or cannot be shared.
        """
        if nbytes < LEAST_BYTES:
            return make(new_bytes(nbytes))
        layout = ROW_MAJOR if reorder is None else primitive_key(reorder).digest
        name = name_constant(layout, describe_source(constant))
        found = self._files.find_or_write(name, nbytes, lambda: make(self._take(nbytes)).map())
        if found is None:
            return make(new_bytes(nbytes))
        buffer = (ctypes.c_char * nbytes).from_address(found.address)
        buffer.mapped = found  # type: ignore[attr-defined]
        return Memory(MemoryDesc((nbytes,), "u8"), None, buffer)

    def _take(self, nbytes: int) -> Memory:
        """Return memory that the next constant takes too: its pages are touched for the first time only once.

        It grows to the largest constant, since this object ends with the last one. A worker's, `ConstantStore.room`, is bounded:
        it waits for messages between two constants.
        """
        if self._room is None or self._room.desc.nbytes < nbytes:
            self._room = None
            self._room = new_bytes(nbytes)
        return Memory(MemoryDesc((nbytes,), "u8"), None, self._room.map())
