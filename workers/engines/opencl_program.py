"""Turn a program binary into kernels of this process's context, and set their arguments with explicit types.

A kernel realized from a binary does not report the types of its arguments, so the launch decides them: whole numbers are
``long``, fractions ``float``, memory is a buffer and a ``long`` offset in bytes.
"""

from __future__ import annotations

import warnings
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyopencl


#: Bytes of a program binary at most; PoCL itself writes none larger.
LARGEST: Final = 256 << 20


class RealizeError(RuntimeError):
    """A driver refuses a program binary, or it has no such kernel: its key missed something that the binary depends on."""


def realize_program(
    context: pyopencl.Context, device: pyopencl.Device, compressed: bytes, largest: int = LARGEST
) -> pyopencl.Program:
    """Return the program of a compressed binary in ``context``. It must have been authenticated: it is machine code."""
    import pyopencl as cl

    try:
        unpacking = zlib.decompressobj()
        binary = unpacking.decompress(compressed, largest)
    except zlib.error as error:
        raise RealizeError(f"{len(compressed)} bytes are not a compressed program binary: {error}") from error
    if not unpacking.eof:
        raise RealizeError(f"a program binary of {len(compressed)} bytes is cut short or has more than {largest} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(context, [device], [binary])
            program.build()
            return program
    except cl.Error as error:
        raise RealizeError(f"the driver refuses a program binary of {len(binary)} bytes: {error}") from error


def realize_kernel(program: pyopencl.Program, name: str) -> pyopencl.Kernel:
    """Return a new kernel object, with arguments of its own. Raises RealizeError if the program has none of this name."""
    import pyopencl as cl

    try:
        return cl.Kernel(program, name)
    except cl.Error as error:
        raise RealizeError(f"a program binary has no kernel {name!r}: {error}") from error


def set_number(kernel: pyopencl.Kernel, index: int, value: int | float, real: bool) -> None:
    """Set argument ``index`` to a ``float`` (real) or ``long``."""
    import numpy

    kernel.set_arg(index, numpy.float32(value) if real else numpy.int64(value))


def set_memory(kernel: pyopencl.Kernel, index: int, buffer: pyopencl.Buffer, offset: int) -> None:
    """Set arguments ``index`` and ``index + 1`` to a buffer and an offset in bytes."""
    kernel.set_arg(index, buffer)
    set_number(kernel, index + 1, offset, real=False)
