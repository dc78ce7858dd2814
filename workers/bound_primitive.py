"""A primitive bound to memory: its launches with their arguments packed, ready to be called again and again.

A native kernel takes one pointer to packed 64-bit arguments, so binding writes them once and a call passes an address.
Only arguments that move from run to run (inputs and outputs) are written again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Final

from .engines.cpu import CpuEngine
from .memory.buffer import Buffer
from .primitives.entry import Entry
from .primitives.program import Launch, LaunchArgument

#: First two slots of every packed argument block: the range of work items.
_RANGE: Final = 2


class BindError(ValueError):
    """A primitive's launches need an argument that was not given. Raised while binding; names the argument."""


class RealizedPrimitive:
    """An entry whose kernels are mapped on one engine; its constant tables live here. Immutable and shareable."""

    def __init__(self, entry: Entry, engine: CpuEngine) -> None:
        self.entry = entry
        self.kernels = [engine.realize(binary) for binary in entry.binaries]
        self.tables = Buffer(len(entry.tables), entry.tables)


class ArgumentBlock:
    """The packed arguments of one launch for each thread that takes part."""

    def __init__(self, launch: Launch, function: Callable[[int, int, int], int], threads: int) -> None:
        self.function = function
        parts = max(1, min(threads, launch.work))
        bounds = [launch.work * i // parts for i in range(parts + 1)]
        size = _RANGE + len(launch.args)
        self.blocks = [(ctypes.c_int64 * size)(bounds[i], bounds[i + 1]) for i in range(parts)]
        self.addresses = [ctypes.addressof(block) for block in self.blocks]

    def put(self, index: int, value: int) -> None:
        """Write argument ``index`` into every block."""
        for block in self.blocks:
            block[_RANGE + index] = value


class BoundPrimitive:
    """Launches with their arguments. `moving` lists, by argument id, the places that follow an input or output."""

    def __init__(
        self, primitive: RealizedPrimitive, addresses: Mapping[int, int | None], scratchpad: int, threads: int
    ) -> None:
        self._keep = primitive
        self.blocks: list[ArgumentBlock] = []
        self.moving: dict[int, list[tuple[ArgumentBlock, int, int]]] = {}
        for launch in primitive.entry.launches:
            if launch.work == 0:
                continue
            block = ArgumentBlock(launch, primitive.kernels[launch.kernel].function, threads)
            self.blocks.append(block)
            for index, argument in enumerate(launch.args):
                self._bind(block, index, argument, addresses, scratchpad)

    def _bind(
        self,
        block: ArgumentBlock,
        index: int,
        argument: LaunchArgument,
        addresses: Mapping[int, int | None],
        scratchpad: int,
    ) -> None:
        where, value = argument
        if isinstance(value, tuple):
            arg, offset = value
            if arg not in addresses:
                raise BindError(f"{self._keep.entry.implementation} needs argument {arg}, which is not given")
            address = addresses[arg]
            if address is None:
                self.moving.setdefault(arg, []).append((block, index, offset))
            else:
                block.put(index, address + offset)
        elif where == "f":
            block.put(index, ctypes.c_int64.from_buffer_copy(ctypes.c_double(value)).value)
        else:
            base = {"s": scratchpad, "t": self._keep.tables.address}.get(where, 0)
            block.put(index, base + int(value))
