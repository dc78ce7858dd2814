"""A native primitive bound to memory: launches with packed arguments, which can be called repeatedly.

A native kernel takes one pointer to packed 64-bit arguments: binding writes them once, and a call passes an address.
Only arguments that move from run to run (inputs and outputs) are written again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..desc.args import Arg
from ..engines.cpu import CpuEngine
from ..engines.object_loader import NativeKernel
from ..memory.buffer import Table
from ..primitives.entry import Entry
from ..threadpools.interface import Region
from ..threadpools.jobs import Jobs
from .resource import LinkedLaunch, Resource

#: First two slots of every packed argument block: the range of work items.
_RANGE: Final = 2


class BindError(ValueError):
    """A launch needs an argument that was not given. Raised while binding; names the argument."""


class RealizedPrimitive(Resource[NativeKernel, Table]):
    """An entry with its kernels mapped on one engine, its constant tables, and the resources of nested primitives."""

    def __init__(self, entry: Entry, engine: CpuEngine, nested: Sequence[RealizedPrimitive] = ()) -> None:
        kernels = [engine.realize(binary) for binary in entry.binaries]
        super().__init__(entry, kernels, Table(entry.tables), nested)


class ArgumentBlock:
    """The packed arguments of each job of one launch."""

    def __init__(self, launch: LinkedLaunch[NativeKernel], jobs: Jobs) -> None:
        self.kernel = launch.kernel
        self.nanoseconds = launch.nanoseconds
        parts = jobs.cut(launch.work, launch.nanoseconds)
        # Longer parts first: threads that take one after the other end closer to each other.
        each, more = divmod(launch.work, parts)
        bounds = [each * i + min(i, more) for i in range(parts + 1)]
        size = _RANGE + len(launch.args)
        self.blocks = [(ctypes.c_int64 * size)(bounds[i], bounds[i + 1]) for i in range(parts)]
        self.addresses = [ctypes.addressof(block) for block in self.blocks]

    def place(self, index: int) -> int:
        """Return the place of argument ``index`` in each block."""
        return _RANGE + index

    def put(self, index: int, value: int) -> None:
        """Write argument ``index`` into every block."""
        for block in self.blocks:
            block[_RANGE + index] = value


class BoundPrimitive:
    """Launches with their arguments. An address or scratchpad of None moves: `moving` lists its places, by argument.

    The scratchpad is the argument `Arg.SCRATCHPAD`, whether the user or the library provides it.
    """

    def __init__(
        self, primitive: RealizedPrimitive, addresses: Mapping[int, int | None], scratchpad: int | None, jobs: Jobs
    ) -> None:
        self._keep = primitive
        self._scratchpad = scratchpad
        self.blocks: list[ArgumentBlock] = []
        self.moving: dict[int, list[tuple[ArgumentBlock, int, int]]] = {}
        for launch in primitive.launches:
            if launch.work == 0:
                continue
            block = ArgumentBlock(launch, jobs)
            self.blocks.append(block)
            for index, (where, value) in enumerate(launch.args):
                self._bind(block, index, where, value, addresses)

    def regions(self, name: str) -> list[Region]:
        """Return the launches as parallel regions, which keep this primitive; errors say ``name``."""
        return [Region(block.kernel.address, block.addresses, name, self, block.nanoseconds) for block in self.blocks]

    def move(self, arg: int, address: int) -> None:
        """Write the address of an argument that moves into all its places."""
        for block, index, offset in self.moving.get(arg, ()):
            block.put(index, address + offset)

    def _bind(
        self, block: ArgumentBlock, index: int, where: str, value: Any, addresses: Mapping[int, int | None]
    ) -> None:
        if where == "m":
            arg, offset = value
            if arg not in addresses:
                raise BindError(f"{self._keep.entry.implementation} needs argument {arg}, which is not given")
            self._place(block, index, arg, addresses[arg], offset)
        elif where == "s":
            self._place(block, index, Arg.SCRATCHPAD, self._scratchpad, value)
        elif where == "t":
            tables, offset = value
            block.put(index, tables.address + offset)
        elif where == "f":
            block.put(index, ctypes.c_int64.from_buffer_copy(ctypes.c_double(value)).value)
        else:
            block.put(index, value)

    def _place(self, block: ArgumentBlock, index: int, arg: int, address: int | None, offset: int) -> None:
        if address is None:
            self.moving.setdefault(arg, []).append((block, index, offset))
        else:
            block.put(index, address + offset)
