"""Bytes of a tensor in the host's memory."""

from __future__ import annotations

import ctypes
from typing import Any

from .buffer import Buffer


class HostBytes:
    """Bytes that native kernels address; always open to the host. `view` is writable, `address` its first byte.

    They live as long as `owner`, which is None where the caller keeps them alive.
    """

    __slots__ = ("address", "owner", "view")

    def __init__(self, nbytes: int, given: Any = None) -> None:
        """Take zeroed bytes of our own, or a writable C-contiguous buffer, which is kept and not copied.

        Raises ValueError where the buffer is smaller, and TypeError where it is read-only.
        """
        if given is None:
            own = Buffer(nbytes)
            self.owner: object = own
            self.view: memoryview = own.view
            self.address: int = own.address
            return
        self.owner = given
        self.view = memoryview(given).cast("B")
        if self.view.nbytes < nbytes:
            raise ValueError(f"buffer: expect {nbytes} bytes, got {self.view.nbytes}")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.view)) if nbytes else 0
        self.view = self.view[:nbytes]

    def set_handle(self, nbytes: int, address: int) -> None:
        """Lie at an address whose bytes the caller keeps alive; what was there before is let go."""
        self.owner = None
        self.address = address
        self.view = memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
