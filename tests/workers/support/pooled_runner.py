"""Runs primitives of a CPU on the threadpools too: the bytes are the same on each."""

from __future__ import annotations

from collections.abc import Mapping

from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from tests.references import unpack
from tests.workers.native_runner import Array, NativeRunner
from tests.workers.threadpools.every_pool import EveryPool


class PooledRunner:
    """Takes results from a runner, and compares what streams on threadpools write with them."""

    def __init__(self, runner: NativeRunner, pools: EveryPool) -> None:
        self.target = runner.target
        self._runner = runner
        self._pools = pools

    def results(self, pd: PrimitiveDesc, args: Mapping[int, Array]) -> dict[int, Array]:
        """Return everything that a primitive writes in logical dimensions, by execution argument.

        Raises AssertionError where the runner does, and where a threadpool makes other bytes of it.
        """
        primitive, memories = self._runner.realized(pd), pd.memories()
        flat = self._runner.cut(pd, primitive, args)
        self._pools.check(pd, primitive, args, flat)
        return {arg: unpack(values, memories[arg]) for arg, values in flat.items()}
