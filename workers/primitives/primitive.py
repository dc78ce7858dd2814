"""A primitive in this process: got from the store or created there, realized on an engine, executed on memories."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from poolrt.cachestore import CacheStore

from ..bound_primitive import BoundPrimitive, RealizedPrimitive
from ..engines.cpu import CpuEngine
from ..memory.buffer import Buffer
from ..memory.storage import Memory
from .entry import parse_entry
from .key import primitive_key
from .primitive_desc import PrimitiveDesc


class Primitive:
    """A created primitive with its scratchpad. `source` says where it came from: memory, files, redis, waited or created."""

    def __init__(self, pd: PrimitiveDesc, engine: CpuEngine, store: CacheStore) -> None:
        key = primitive_key(pd)
        outcome = store.fetch_or_create(key, lambda: _create(pd))
        self.pd = pd
        self.source = outcome.source
        self._realized = RealizedPrimitive(parse_entry(outcome.value), engine)
        self._scratchpad = Buffer(self._realized.entry.scratchpad)
        self._wanted = pd.memories()

    def execute(self, args: Mapping[int, Memory]) -> None:
        """Compute on memories given by argument. Raises ValueError where one is missing or differently described."""
        for arg, desc in self._wanted.items():
            if arg not in args:
                raise ValueError(f"argument {arg} ({desc}) is missing")
            if args[arg].desc != desc:
                raise ValueError(f"argument {arg}: expect {desc}, got {args[arg].desc}")
        addresses: dict[int, int | None] = {int(arg): memory.address for arg, memory in args.items()}
        bound = BoundPrimitive(self._realized, addresses, self._scratchpad.address, threads=1)
        result = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(result)
        for block in bound.blocks:
            for address in block.addresses:
                if block.function(start, start + 32, address):
                    raise RuntimeError(f"{self.pd.impl_name()} failed")


def _create(pd: PrimitiveDesc) -> bytes:
    from .create import PrimitiveCreator  # the way to the compilers: only where the entry is missing

    return PrimitiveCreator().create(pd)
