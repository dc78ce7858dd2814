"""Constants in the layouts of plans that all processes of a node share, as files in the user's cache folder."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.constant_files import ConstantFiles
from poolrt.graph.constant import Constant, turn_as_stored
from poolrt.graph.mapped_file import file_of
from poolrt.version import VERSION
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.execution.memory import Memory
from poolrt.workers.primitives.key import primitive_key

from .constants import new_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc

#: Bytes of a constant from which it is shared: a file of its own costs some 100 us.
LEAST_BYTES: Final = 1 << 20
#: Of a file's data, this many bytes are read in each piece of this size, to notice changes that the file's times do not show.
_SAMPLE: Final = 4096
_PIECE: Final = 1 << 20


class SharedConstants:
    """The constants of one graph that other processes share, while they are made: one after the other, in one piece of memory."""

    def __init__(self, files: ConstantFiles) -> None:
        self._files = files
        self._room: Memory | None = None

    def share(
        self, constant: Constant, reorder: PrimitiveDesc | None, nbytes: int, make: Callable[[Memory], Memory]
    ) -> Memory:
        """Return a constant of ``nbytes`` bytes as a reorder writes it, or row-major.

        ``make`` writes it into the memory that it is given, if no process of the node has it yet. The result is this process's
        own memory if it is small or cannot be shared.
        """
        if nbytes < LEAST_BYTES:
            return make(new_bytes(nbytes))
        found = self._files.find_or_write(_digest(constant, reorder), nbytes, lambda: make(self._take(nbytes)).map())
        if found is None:
            return make(new_bytes(nbytes))
        buffer = (ctypes.c_char * nbytes).from_address(found.address)
        buffer.mapped = found  # type: ignore[attr-defined]
        return Memory(MemoryDesc((nbytes,), "u8"), None, buffer)

    def _take(self, nbytes: int) -> Memory:
        """Return memory that the next constant takes too: its pages are touched for the first time only once."""
        if self._room is None or self._room.desc.nbytes < nbytes:
            self._room = None
            self._room = new_bytes(nbytes)
        return Memory(MemoryDesc((nbytes,), "u8"), None, self._room.map())


def _digest(constant: Constant, reorder: PrimitiveDesc | None) -> str:
    """Return a digest of all that determines the bytes of a constant."""
    array, scale = constant.array, constant.scale
    layout = "row-major" if reorder is None else primitive_key(reorder).digest
    scaled = "" if scale is None else hashlib.sha256(scale.tobytes()).hexdigest()
    fields = (VERSION, layout, constant.dtype, array.dtype.str, array.shape, scaled, *_source(array))
    return hashlib.sha256(repr(fields).encode()).hexdigest()


def _source(array: NDArray[Any]) -> tuple[Any, ...]:
    """Return what distinguishes the elements of an array: their place in a file that has not changed, else their bytes."""
    file, stored = file_of(array), turn_as_stored(array)[0]
    if file is None or not stored.flags.c_contiguous or not file.is_settled():
        return "bytes", hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
    content, samples = stored.reshape(-1).view(np.uint8), hashlib.sha256()
    for start in (*range(0, len(content), _PIECE), max(len(content) - _SAMPLE, 0)):
        samples.update(content[start : start + _SAMPLE].data)
    file.leave(content)
    return "file", file.identity, file.place(stored), array.strides, samples.hexdigest()
