"""The CPU engine of one process: realizes native objects and keeps each one mapped once, however many primitives use it."""

from __future__ import annotations

from weakref import WeakValueDictionary

from ..kernels.native.object_loader import NativeKernel, load_object


class CpuEngine:
    """Maps native kernels into this process. A kernel is unmapped when nobody uses it any more."""

    def __init__(self) -> None:
        self._kernels: WeakValueDictionary[bytes, NativeKernel] = WeakValueDictionary()

    def realize(self, binary: bytes) -> NativeKernel:
        """Return the callable kernel of a native object. Raises ObjectError where the object is malformed."""
        kernel = self._kernels.get(binary)
        if kernel is None:
            kernel = self._kernels[binary] = load_object(binary)
        return kernel
