"""Verbose lines taken apart, and primitives to execute that write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.executor import ExecutorPool
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers import compiled

ASYNCHRONOUS = ("threads asynchronous", "native asynchronous")
POOLS = ("sequential", "threads", "executor", "native", *ASYNCHRONOUS)
_RELU = (
    "cpu,eltwise,native:eltwise,forward_inference,src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,"
    "alg:eltwise_relu alpha:0 beta:0,{rows}x64"
)


@dataclass(frozen=True)
class Line:
    """A line taken apart: what happened, the fields of the primitive as one text, milliseconds."""

    operation: str
    text: str
    milliseconds: float

    @property
    def fields(self) -> list[str]:
        """Engine, primitive, implementation, propagation kind, memories, attributes with parameters, problem."""
        return self.text.split(",")


#: Returns the lines written since it was last asked.
ReadLines: TypeAlias = Callable[[], list[Line]]


def parsed(written: str) -> list[Line]:
    """Return the lines of a text, all of which must be verbose lines, without first lines of processes."""
    lines = []
    for line in written.splitlines():
        marker, operation, *fields = line.split(",")
        assert marker == "poolrt_verbose", line
        if operation != "info":
            assert len(fields) == 8, line
            lines.append(Line(operation, ",".join(fields[:-1]), float(fields[-1])))
    return lines


@contextmanager
def made(kind: str, threads: int, loop: list[NativeKernel]) -> Iterator[ThreadpoolInterface]:
    """Make one of `POOLS`, and close it."""
    asynchronous = kind.endswith("asynchronous")
    if kind == "sequential":
        pool: Any = nullcontext(SequentialPool())
    elif kind == "executor":
        with ThreadPoolExecutor(threads) as executor:
            yield ExecutorPool(executor, threads)
        return
    elif kind.startswith("threads"):
        pool = ThreadsPool(threads, asynchronous)
    else:
        pool = NativePool(threads, asynchronous, loop)
    with pool as given:
        yield given


class Problem:
    """A primitive on memories of its own, full of zeros; `run` executes it on a stream."""

    def __init__(self, store: CacheStore, pd: PrimitiveDescIface, text: str) -> None:
        self.text = text
        self.cache = compiled.cache(4, store)
        self.primitive = Primitive(pd.pd, pd.engine, self.cache)
        self._args: dict[int, Memory] = {arg: Memory(desc, pd.engine) for arg, desc in pd.pd.memories().items()}
        for memory in self._args.values():
            np.frombuffer(memory.map(), np.float32)[:] = 0
            memory.unmap()

    def stream(self, pool: ThreadpoolInterface) -> Stream:
        """Return a stream on a pool."""
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        return Stream(self.primitive.engine, attr)

    def run(self, stream: Stream) -> None:
        """Execute on a stream."""
        self.primitive.execute(stream, self._args)


def relu(store: CacheStore, rows: int = 3, engine: Engine | None = None) -> Problem:
    """Return a problem of about a microsecond."""
    desc = MemoryDesc((rows, 64), "f32")
    return Problem(store, Eltwise.PrimitiveDesc(engine or Engine("cpu"), desc, desc, "relu"), relu_text(rows))


def relu_text(rows: int = 3) -> str:
    """Return what lines say of `relu`."""
    return _RELU.format(rows=rows)
