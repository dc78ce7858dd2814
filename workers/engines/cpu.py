"""The CPU engine of one process: realizes native objects and keeps each one mapped once, however many primitives use it."""

from __future__ import annotations

from typing import Final

from ..kernels.native.object_loader import NativeKernel, load_object
from .realized import Realized

#: Kernels that stay mapped although nobody uses them; one takes 10 to 50 KB.
_KEPT: Final = 256


class CpuEngine:
    """Maps native kernels into this process. One that nobody uses is unmapped when enough others have been used since."""

    def __init__(self) -> None:
        self._kernels: Realized[NativeKernel] = Realized(load_object, _KEPT)

    def realize(self, binary: bytes) -> NativeKernel:
        """Return the callable kernel of a native object. Raises ObjectError where the object is malformed."""
        return self._kernels.get(binary)
