"""Bytes of a tensor in host memory."""

from __future__ import annotations

import ctypes
from typing import Any

from .buffer import Buffer


class HostBytes:
    """Bytes that native kernels address; the host always has access. `view` is writable, `address` its first byte.

    They live as long as `owner`, which is None if the caller keeps them alive.
    """

    __slots__ = ("address", "owner", "view")

    def __init__(self, nbytes: int, given: Any = None) -> None:
        """Take new zeroed bytes, or a writable C-contiguous buffer, which is kept and not copied.

        Raises ValueError if the buffer is smaller, and TypeError if it is read-only.
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
        """Use the bytes at an address, which the caller keeps alive, and release the former ones."""
        self.owner = None
        self.address = address
        self.view = memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
