"""Reference implementations on OpenCL: the CPU's descriptions, launched on kernels in OpenCL C that take the same arguments.

A kernel's parameters are the number of items, the tables, the arguments of the native kernel before its operands (records as
places in the tables, fractions as the bits of a float64), and the operands as buffers. How many of those it has is fixed
when it is compiled: a few more than needed, so that few programs serve all.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import OpDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..contract import Implementation
from ..program import Launch, LaunchArgument, Program
from .grid import HEAVY, MAX_ITEMS, group, launch

#: Data types that are computed in double only.
_WIDE: Final = ("f64", "s64", "u64")
#: Numbers of operands that programs are made for: this, and its doubles.
_FEW: Final = 16


@dataclass(frozen=True, slots=True)
class OpenClReference:
    """The counterpart of a reference implementation for the CPU; computes in double, or float if there is no double."""

    native: Implementation[Any]
    engine_kind: str = "opencl"
    general: bool = True

    @property
    def name(self) -> str:
        """The name of the reference implementation, which is the same for each kind of engine."""
        return self.native.name

    def reject(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> str | None:
        """Return why ``op`` cannot be computed, or None."""
        why = self.native.reject(op, attr, target)
        if why is not None:
            return why
        for desc in (*op.memories().values(), *attr.memories(op.memories()).values()):
            if desc.dtype in _WIDE and not _fp64(target):
                return f"{desc}: the device has no double precision"
            if not desc.is_any and math.prod(desc.padded_dims) > MAX_ITEMS:
                return f"{desc}: more elements than one launch can hold"
        return None

    def complete(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> Any:
        """Return ``op`` with every layout ``any`` chosen."""
        return self.native.complete(op, attr, target)

    def program(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> Program:
        """Describe kernels and launches like those for the CPU."""
        described = self.native.program(op, attr, target)
        local = group(target, HEAVY)
        kernels: list[KernelSpec] = []
        launches: list[Launch] = []
        for run in described.launches:
            if not isinstance(run, Launch):
                raise TypeError(f"{self.name} has nested primitives, for which there is no counterpart")
            spec, given = described.kernels[run.kernel], _operands(run)
            operands = max(_FEW, 1 << (given - 1).bit_length())
            params = {**dict(spec.params), "fp64": _fp64(target), "operands": operands, "local": local}
            kernel = KernelSpec.of(spec.generator, **params)
            if kernel not in kernels:
                kernels.append(kernel)
            first = len(run.args) - given
            args = [_argument(*argument, _fp64(target)) for argument in run.args[:first]]
            args += [*run.args[first:], *[("t", 0)] * (operands - given)]
            launches.append(launch(kernels.index(kernel), run.work, local, ("i", run.work), ("t", 0), *args))
        return Program(tuple(kernels), tuple(launches), described.tables, described.scratchpad)


def _fp64(target: Target) -> bool:
    return dict(target.device).get("fp64") == "True"


def _argument(where: str, value: int | float | tuple[int, int], fp64: bool) -> LaunchArgument:
    """Return the kernel's form of an argument of a native one."""
    if where == "t":
        return ("i", value)
    if where != "f" or isinstance(value, tuple):
        return (where, value)
    if not fp64:
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return ("i", bits)


def _operands(run: Launch) -> int:
    """Return how many operands end a launch's arguments: memories, then constants in the tables."""
    kinds = "".join(where for where, _ in run.args)
    return len(kinds) - len(kinds.rstrip("t").rstrip("m"))
