"""Programs of this process by their handle, so that a `pyopencl.Kernel` leads to the text that it was built from."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import pyopencl as cl

from .errors import Unusual
from .options import parse_options

if TYPE_CHECKING:
    from .program import Program


def note_program(program: Program) -> None:
    """Let kernels of a built program be found while the program exists."""
    _programs()[program.int_ptr] = program


def describe_kernel(kernel: cl.Kernel) -> tuple[str, str, str]:
    """Return source, name and build options of a kernel of a `poolrt.opencl.Program` that still exists.

    Folders of includes are left out. Raises ValueError for a kernel of another program, and for unknown options.
    """
    name: str = kernel.function_name
    try:
        handle = kernel.program.int_ptr
    except cl.Error:  # Intel's driver: the program has been released
        handle = 0
    program = _programs().get(handle)
    # A handle may be used again after its program was built again.
    if program is None or program._prg is None or program._prg.int_ptr != handle:
        raise ValueError(
            f"kernel: {name} is no kernel of a poolrt.opencl.Program that still exists: build and keep one, or give "
            f"poolrt.OpenClKernel(source, {name!r})"
        )
    line, _ = program._process_build_options(kernel.context, program._options)
    try:
        options = parse_options(line.decode())
    except (Unusual, UnicodeError) as error:
        raise ValueError(f"kernel: {name}: {error}") from None
    return program.source, name, " ".join(options.others)


@lru_cache(maxsize=1)
def _programs() -> WeakValueDictionary[int, Program]:
    return WeakValueDictionary()
