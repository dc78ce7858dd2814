"""Execute primitives on pools of every kind and size, and require the bytes of a synchronous execution of one part.

One pool runs nothing before a thread waits: its `execute` must return before any result exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.native_binding import RealizedPrimitive
from poolrt.workers.execution.native_execution import CpuExecution
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from tests.references import pack

from .checking import CheckingPool, CheckingStream
from .kinds import CASES, Loop, made
from .poison import FreedMemory, poisoned

Array = NDArray[Any]


#: A pool that runs nothing before a thread waits.
HELD_BACK: Final = ("checking", 2)


class EveryPool:
    """Pools of every kind with one, two and seven threads, or of some ``cases``; they are all at work at the same time."""

    def __init__(self, loop: Loop, seed: int, cases: Sequence[tuple[str, int]] = CASES) -> None:
        self._engine = Engine("cpu")
        self._opened = ExitStack()
        self._pools = {case: self._opened.enter_context(made(*case, loop, seed)) for case in cases}
        for case, pool in self._pools.items():
            pool.least_job_ns = 0  # however short the work is, it is cut
            if case == HELD_BACK and isinstance(pool, CheckingPool):
                pool.hold_back()

    def close(self) -> None:
        self._opened.close()

    def check(
        self, pd: PrimitiveDesc, primitive: RealizedPrimitive, args: Mapping[int, Array], wanted: Mapping[int, Array]
    ) -> None:
        """Raise AssertionError unless each pool writes the ``wanted`` bytes.

        ``args`` are in logical dimensions, ``wanted`` are whole buffers. Nobody but the pools keeps what they work with.
        """
        memories = pd.memories()
        contents = {arg: _content(md, args.get(arg)) for arg, md in memories.items()}
        with poisoned() as freed:
            execution = CpuExecution(primitive)
            written = {
                case: self._submit(execution, pool, memories, contents, list(wanted), freed)
                for case, pool in self._pools.items()
            }
            del execution
            for arg, held in written.get(HELD_BACK, {}).items():
                assert held.tobytes() == contents[arg].tobytes(), f"argument {arg} is written before anybody waits"
            for case, found in written.items():
                self._pools[case].wait()
                for arg, want in wanted.items():
                    assert found[arg].tobytes() == want.tobytes(), f"argument {arg} is another on {case}"
            freed.assert_untouched()

    def _submit(
        self,
        execution: CpuExecution,
        pool: ThreadpoolInterface,
        memories: Mapping[int, MemoryDesc],
        contents: Mapping[int, Array],
        written: list[int],
        freed: FreedMemory,
    ) -> dict[int, Array]:
        """Execute on memories and a stream that are dropped at once; return the written bytes."""
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        blocks = {arg: freed.take(md.nbytes) for arg, md in memories.items()}
        for arg, content in contents.items():
            blocks[arg][:] = content
        used = {arg: Memory(md, self._engine, blocks[arg]) for arg, md in memories.items()}
        execution.execute(CheckingStream(self._engine, attr), used)
        return {arg: blocks[arg] for arg in written}


def _content(md: MemoryDesc, values: Array | None) -> Array:
    """Return the bytes of a tensor, which are all 0xFF where it has no values."""
    return np.full(md.nbytes, 0xFF, np.uint8) if values is None else pack(values, md).view(np.uint8)
