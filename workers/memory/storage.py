"""A memory: a tensor's descriptor together with the bytes it lies in, in this process."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..desc.data_type import numpy_name
from ..desc.memory_desc import MemoryDesc
from .buffer import Buffer

if TYPE_CHECKING:
    import numpy


class Memory:
    """Memory of one descriptor: its own zeroed bytes, or a writable C-contiguous buffer of the caller's (kept, not copied).

    Raises ValueError where the given buffer is smaller than the descriptor needs.
    """

    def __init__(self, desc: MemoryDesc, buffer: Any = None) -> None:
        self.desc = desc
        if buffer is None:
            own = Buffer(desc.nbytes)
            self._keep: object = own
            self.address = own.address
            self._view = memoryview((ctypes.c_char * desc.nbytes).from_address(own.address)).cast("B")
        else:
            self._view = memoryview(buffer).cast("B")
            if self._view.nbytes < desc.nbytes:
                raise ValueError(f"buffer: {desc} needs {desc.nbytes} bytes, got {self._view.nbytes}")
            self._keep = buffer
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._view)) if desc.nbytes else 0

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Return a view as an array of the descriptor's dimensions. Raises ValueError for a layout that is not row-major."""
        import numpy

        if not self.desc.is_plain:
            raise ValueError(f"{self.desc} is not row-major: reorder it first")
        array = numpy.frombuffer(self._view, numpy_name(self.desc.dtype), self.desc.elements)
        return array.reshape(self.desc.dims)

    def __repr__(self) -> str:
        return f"Memory({self.desc})"
