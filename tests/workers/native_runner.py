"""Run cases on native kernels as a worker would: created once each, realized, bound, executed in parts."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.bound_primitive import BoundPrimitive, RealizedPrimitive
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.cpu import CpuEngine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.primitives.create import PrimitiveCreator
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.primitives.primitive_desc import PrimitiveDesc, primitive_desc
from tests.references import assert_padding_is_zero, pack, reference, unpack

from .cases import Case

Array = NDArray[Any]
#: The levels whose code is tested, weakest first: without FMA, with 256-bit and with 512-bit registers.
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
#: Into how many parts the work of each launch is cut; every cut must give the same bytes.
PARTS = (1, 2, 7)
_GUARD = 256


class GuardedBuffer:
    """Memory that starts on a 64-byte boundary with a guarded area behind it; everything is NaN at first."""

    def __init__(self, nbytes: int) -> None:
        self._raw = np.full(nbytes + 64 + _GUARD, 0xFF, np.uint8)
        start = -self._raw.ctypes.data % 64
        self.content = self._raw[start : start + nbytes]
        self._behind = self._raw[start + nbytes : start + nbytes + _GUARD]
        self.address = self._raw.ctypes.data + start

    def assert_nothing_behind_was_written(self) -> None:
        assert (self._behind == 0xFF).all(), "a kernel wrote behind the end of its destination"


class NativeRunner:
    """Creates primitives with one creator and runs them on one engine; compiles each kernel once a level."""

    def __init__(self) -> None:
        self._creator = PrimitiveCreator()
        self._engine = CpuEngine()

    def describe(self, case: Case, isa: str) -> PrimitiveDesc:
        """Return the primitive descriptor that is chosen for a case."""
        return primitive_desc(case.op, case.attr, cpu_target(isa))

    def compute(self, case: Case, isa: str, parts: int = 1) -> tuple[Array, MemoryDesc]:
        """Return the flat destination as computed with each launch cut into ``parts``, and its descriptor."""
        pd = self.describe(case, isa)
        primitive = RealizedPrimitive(parse_entry(self._creator.create(pd)), self._engine)
        memories = pd.memories()
        buffers = {arg: GuardedBuffer(md.nbytes) for arg, md in memories.items()}
        scratchpad = GuardedBuffer(primitive.entry.scratchpad)
        for arg, values in case.args.items():
            buffers[arg].content[:] = pack(values, memories[arg]).view(np.uint8)
        before = {arg: buffer.content.copy() for arg, buffer in buffers.items()}
        addresses: dict[int, int | None] = {arg: buffer.address for arg, buffer in buffers.items()}
        bound = BoundPrimitive(primitive, addresses, scratchpad.address, parts)
        result = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(result)
        for block in bound.blocks:
            for address in reversed(block.addresses):
                assert block.function(start, start + 32, address) == 0
        for arg, buffer in buffers.items():
            buffer.assert_nothing_behind_was_written()
            assert arg == Arg.DST or np.array_equal(buffer.content, before[arg]), f"argument {arg} was changed"
        scratchpad.assert_nothing_behind_was_written()
        dst = memories[Arg.DST]
        return buffers[Arg.DST].content.view(np.float32), dst

    def check(self, case: Case, isa: str) -> None:
        """Raise AssertionError unless the result is right, its padding zero, and the same for any cut of the work."""
        flat, md = self.compute(case, isa)
        assert_padding_is_zero(flat, md)
        case.check(unpack(flat, md), reference(case.op, case.attr, case.args))
        for parts in PARTS[1:]:
            again, _ = self.compute(case, isa, parts)
            assert again.tobytes() == flat.tobytes(), f"{case.name}: work in {parts} parts gives other bytes"
