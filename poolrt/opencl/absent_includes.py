"""Includes that no folder of the options has: the driver may have them, or a condition leaves them out.

Headers that serve C, too, name files of the C library in branches that no OpenCL compiler takes. If a driver has no such
file, a build that succeeds has not reached the line: the binary is the same wherever the driver is the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyopencl as cl

from .errors import Unusual
from .private import program_from_source


def refuse_those_of_driver(names: tuple[str, ...], device: cl.Device) -> None:
    """Raise Unusual if the driver finds one of the files, or if it does not say."""
    for name in names:
        if any(mark in name for mark in '"<>\\\n'):
            raise Unusual(f"the include {name!r} is in no folder of the options")
    found = _found_by_driver(names, device)
    if found is None or found:
        reason = f"the driver alone finds the include {found[0]!r}" if found else "the driver knows no __has_include"
        raise Unusual(reason)


@lru_cache(maxsize=256)
def _found_by_driver(names: tuple[str, ...], device: cl.Device) -> tuple[str, ...] | None:
    """Return the names whose files the driver finds, None if it does not say."""
    lines = ["#ifndef __has_include\n#error\n#endif"]
    for number, name in enumerate(names):
        lines.append(
            f'#if __has_include(<{name}>) || __has_include("{name}")\n__kernel void found_{number}() {{}}\n#endif'
        )
    context = cl.Context([device])  # Intel's driver needs it until the kernels' names are known
    program: Any = program_from_source(context, "\n".join([*lines, "__kernel void none() {}\n"]).encode())
    try:
        program._build(options=b"", devices=[device])
        kernels = {kernel.function_name for kernel in program.all_kernels()}
    except cl.Error:
        return None
    if "none" not in kernels:
        return None
    return tuple(name for number, name in enumerate(names) if f"found_{number}" in kernels)
