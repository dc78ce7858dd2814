"""Engines as users name them: a device of this process by kind and index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.immutable import Immutable

from ..verbose.output import Verbose, writer
from .cpu import CpuEngine
from .realized import InUse
from .target import Target, cpu_target

if TYPE_CHECKING:
    from .opencl import OpenClEngine

ENGINE_KINDS: Final = ("cpu", "opencl")
#: Unused kernels that stay realized: primitives are often dropped and asked for again.
_KEPT: Final = 256


def engine_kind(kind: str) -> str:
    """Return the kind of an engine. Raises ValueError naming those that exist."""
    if kind not in ENGINE_KINDS:
        raise ValueError(f"kind: unknown engine kind {kind!r}; known: {', '.join(ENGINE_KINDS)}")
    return kind


class Engine(Immutable):
    """One device, with this process's objects on it: mapped kernels, or an OpenCL context and its programs.

    Descriptors, keys and cached primitives know only its `target`, so a primitive created through one engine serves every
    other engine of an equal target, in this process or another. Any number of threads may use it; it refuses assignment.
    """

    __slots__ = ("__weakref__", "_device", "index", "kind", "resources", "target", "verbose")

    kind: str
    index: int
    target: Target
    #: The writer of verbose lines, kept here because every hit in the primitive cache needs it.
    verbose: Verbose
    #: The resources of primitives, which equal primitives share. Released with their last user.
    resources: InUse[Any]
    _device: CpuEngine | OpenClEngine

    def __init__(self, kind: str, index: int = 0, *, kept: int = _KEPT) -> None:
        """Open device ``index`` of a kind: ``cpu``, of which there is one, or ``opencl``.

        ``kept`` is the number of kernels that stay realized after their last use. Code for the CPU is made for all
        instructions of this host, or for those that the setting max_cpu_isa names (``POOLRT_MAX_CPU_ISA``).

        The first OpenCL engine of a process starts the drivers, their CPU devices with as many threads as this process
        may use cores. Raises ValueError naming the argument or the setting, and EngineUnavailable if there is no such device.
        """
        device: CpuEngine | OpenClEngine
        engine_kind(kind)
        if kind == "cpu":
            if index != 0:
                raise ValueError(f"index: there is one engine of kind cpu, with index 0, got {index}")
            device, target = CpuEngine(kept), cpu_target()
        else:
            from .opencl import OpenClEngine

            device = OpenClEngine(index, _cores(), kept)
            target = device.target
        own = {
            "kind": kind,
            "index": index,
            "target": target,
            "verbose": writer(),
            "_device": device,
            "resources": InUse(),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def count(kind: str) -> int:
        """Return how many engines of a kind there are."""
        if engine_kind(kind) == "cpu":
            return 1
        from .opencl import runtime

        return len(runtime(_cores()).devices)

    @property
    def cpu(self) -> CpuEngine:
        """The CPU device, which realizes native kernels. Raises ValueError for an engine of another kind."""
        if not isinstance(self._device, CpuEngine):
            raise ValueError(f"engine: expect one of kind cpu, got {self}")
        return self._device

    @property
    def opencl(self) -> OpenClEngine:
        """The OpenCL device with its context and queue. Raises ValueError for an engine of another kind."""
        if isinstance(self._device, CpuEngine):
            raise ValueError(f"engine: expect one of kind opencl, got {self}")
        return self._device

    def __repr__(self) -> str:
        return f"Engine({self.kind!r}, {self.index})"


def _cores() -> int:
    return len(os.sched_getaffinity(0))
