"""The private names of pyopencl that this room uses. If one of them is missing, pyopencl builds all programs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyopencl
from pyopencl import _cl as raw

from .errors import Unusual

#: Where a name is expected -> the names.
_EXPECTED: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (pyopencl.Program, ("_process_build_options", "_build_and_catch_errors")),
    (raw, ("_Program", "_ErrorRecord")),
    (getattr(raw, "_Program", None), ("_build", "build")),
)


def check_names() -> None:
    """Raise Unusual if this pyopencl lacks a name."""
    for owner, names in _EXPECTED:
        for name in names:
            if not hasattr(owner, name):
                raise Unusual(f"pyopencl {pyopencl.VERSION_TEXT} has no {name}, which the cache needs")


def program_from_source(context: pyopencl.Context, text: bytes) -> Any:
    """Return a program without pyopencl's cache; its ``build(options, devices)`` adds the compiler's log to errors."""
    return raw._Program(context, text)


def program_from_binaries(
    context: pyopencl.Context, devices: Sequence[pyopencl.Device], binaries: Sequence[bytes], options: bytes
) -> Any:
    """Return a built program. Raises pyopencl's errors if a driver refuses a binary."""
    program: Any = raw._Program(context, devices, binaries)
    program._build(options=options, devices=devices)
    return program


def error_of(kind: str, message: str, code: int, routine: str) -> pyopencl.Error:
    """Return pyopencl's error of a class, as its drivers' calls raise it."""
    error: pyopencl.Error = getattr(pyopencl, kind)(raw._ErrorRecord(msg=message, code=code, routine=routine))
    return error
