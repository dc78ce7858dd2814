"""Run cases on native kernels as a worker would: created once each, realized, bound, executed in parts."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg
from poolrt.workers.engines.cpu import CpuEngine
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.execution.native_binding import BoundPrimitive, RealizedPrimitive
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.threadpools.jobs import Jobs
from tests.references import assert_padding_is_zero, between, numpy_type, pack, reference, unpack
from tests.workers import compiled

from .cases import Case
from .levels import target_of

Array = NDArray[Any]
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


class RegionWrites:
    """Notes what the tasks of one region change. They may run side by side, so no two may write to the same byte."""

    def __init__(self, written: Mapping[str, Array]) -> None:
        self._written = {
            name: (content, content.copy(), np.zeros(content.size, bool)) for name, content in written.items()
        }

    def end_task(self) -> None:
        """Note what a task has changed. Raises AssertionError if another one has changed it too."""
        for name, (content, before, taken) in self._written.items():
            changed = content != before
            assert not (changed & taken).any(), f"{name}: two tasks of one region write to the same bytes"
            taken |= changed
            before[:] = content


class NativeRunner:
    """Creates primitives with one creator and runs them on one engine; compiles each kernel once a level."""

    def __init__(self, target: Target | None = None) -> None:
        self._creator = compiled.creator()
        self._engine = CpuEngine()
        self.target = target or cpu_target()

    def describe(self, case: Case, isa: str) -> PrimitiveDesc:
        """Return the primitive descriptor that is chosen for a case."""
        return primitive_desc(case.op, case.attr, target_of(isa))

    def run(self, pd: PrimitiveDesc, args: Mapping[int, Array], parts: int = 1) -> dict[int, Array]:
        """Return everything that a primitive writes, flat and in its data type, by execution argument.

        ``args`` are in logical dimensions; what is written may be among them, as it is before (a sum post-op reads it).
        Raises AssertionError where anything else was changed: other arguments, gaps between strides, memory behind.
        """
        return self._run(pd, self.realized(pd), args, parts)

    def _run(
        self, pd: PrimitiveDesc, primitive: RealizedPrimitive, args: Mapping[int, Array], parts: int
    ) -> dict[int, Array]:
        memories = pd.memories()
        buffers = {arg: self.memory(md.nbytes, arg in pd.op.outputs()) for arg, md in memories.items()}
        scratchpad = self.scratchpad(primitive.entry.scratchpad)
        for arg, values in args.items():
            buffers[arg].content[:] = pack(values, memories[arg]).view(np.uint8)
        before = {arg: buffer.content.copy() for arg, buffer in buffers.items()}
        addresses: dict[int, int | None] = {arg: buffer.address for arg, buffer in buffers.items()}
        bound = BoundPrimitive(primitive, addresses, scratchpad.address, Jobs(parts))
        result = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(result)
        written = pd.op.outputs()
        contents = {f"argument {arg}": buffers[arg].content for arg in written}
        for block in bound.blocks:
            region = RegionWrites({**contents, "scratchpad": scratchpad.content} if len(block.addresses) > 1 else {})
            for address in reversed(block.addresses):
                assert block.kernel.function(start, start + 32, address) == 0
                region.end_task()
        for arg, buffer in buffers.items():
            buffer.assert_nothing_behind_was_written()
            md = memories[arg]
            if arg not in written:
                assert np.array_equal(buffer.content, before[arg]), f"argument {arg} was changed"
            elif md.strides:
                gaps, given = (between(content, md).tobytes() for content in (buffer.content, before[arg]))
                assert gaps == given, f"argument {arg}: gaps between its elements were written"
        scratchpad.assert_nothing_behind_was_written()
        return {arg: buffers[arg].content.view(numpy_type(memories[arg].dtype)) for arg in written}

    def memory(self, nbytes: int, is_written: bool) -> GuardedBuffer:
        """Return memory for an argument."""
        return GuardedBuffer(nbytes)

    def scratchpad(self, nbytes: int) -> GuardedBuffer:
        """Return memory for a scratchpad."""
        return GuardedBuffer(nbytes)

    def realized(self, pd: PrimitiveDesc) -> RealizedPrimitive:
        """Return a primitive mapped on the engine, its kernels compiled when they are first needed."""
        nested = [self.realized(inner) for inner in pd.nested()]
        return RealizedPrimitive(parse_entry(self._creator.create(pd)), self._engine, nested)

    def results(self, pd: PrimitiveDesc, args: Mapping[int, Array]) -> dict[int, Array]:
        """Return everything that a primitive writes in logical dimensions, by execution argument.

        Raises AssertionError unless padding is zero and every cut of the work gives the same bytes.
        """
        memories, flat = pd.memories(), self.cut(pd, self.realized(pd), args)
        return {arg: unpack(values, memories[arg]) for arg, values in flat.items()}

    def cut(self, pd: PrimitiveDesc, primitive: RealizedPrimitive, args: Mapping[int, Array]) -> dict[int, Array]:
        """Return what `run` does, of a primitive that is realized and whose work was cut into parts, too.

        Raises AssertionError where `results` does.
        """
        flat, memories = self._run(pd, primitive, args, 1), pd.memories()
        for arg, values in flat.items():
            if not memories[arg].strides:
                assert_padding_is_zero(values, memories[arg])
        for parts in PARTS[1:]:
            for arg, again in self._run(pd, primitive, args, parts).items():
                assert again.tobytes() == flat[arg].tobytes(), (
                    f"argument {arg}: work in {parts} parts gives other bytes"
                )
        return flat

    def check(self, case: Case, isa: str) -> None:
        """Raise AssertionError unless the result is right, its padding zero, and the same for any cut of the work."""
        got = self.results(self.describe(case, isa), case.args)
        case.check(got[Arg.DST], reference(case.op, case.attr, case.args))
