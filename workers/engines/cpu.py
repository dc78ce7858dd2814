"""The CPU engine of one process: realizes native objects and keeps each one mapped once, however many primitives use it."""

from __future__ import annotations

from .object_loader import NativeKernel, load_object
from .realized import Realized


class CpuEngine:
    """Maps native kernels into this process. Those that nobody uses are unmapped, but for the ``kept`` last used ones."""

    def __init__(self, kept: int = 0) -> None:
        self._kernels: Realized[NativeKernel] = Realized(load_object, kept)

    def realize(self, binary: bytes) -> NativeKernel:
        """Return the callable kernel of a native object. Raises ObjectError where the object is malformed."""
        return self._kernels.get(binary)
