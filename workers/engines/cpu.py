"""The CPU engine of a process: maps each native object once, however many primitives use it."""

from __future__ import annotations

from .object_loader import NativeKernel, load_object
from .realized import Realized


class CpuEngine:
    """Maps native kernels into this process. Unused ones are unmapped, except the ``kept`` last used."""

    def __init__(self, kept: int = 0) -> None:
        self._kernels: Realized[NativeKernel] = Realized(load_object, kept)

    def realize(self, binary: bytes) -> NativeKernel:
        """Return the callable kernel of a native object. Raises ObjectError if the object is malformed."""
        return self._kernels.get(binary)
