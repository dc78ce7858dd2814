"""Primitives on an OpenCL device, in a process of its own: prints what came of it as JSON. Arguments: HOME."""

from __future__ import annotations

import gc
import json
import sys
import threading
import weakref
from typing import Any

import numpy as np

from poolrt.cachestore import CacheStore
from poolrt.workers import Arg, Convolution, Engine, Memory, MemoryDesc, PrimitiveAttr, Stream
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from tests.workers import compiled

CHANNELS, SIZE = 32, 6
MIDDLE = 9.0 * CHANNELS


def describe(engine: Engine, mode: str = "library") -> PrimitiveDescIface:
    """Return a 3 x 3 convolution, which needs scratch memory for its padded copy."""
    md, weights = MemoryDesc((1, CHANNELS, SIZE, SIZE), "f32"), MemoryDesc((CHANNELS, CHANNELS, 3, 3), "f32")
    window = ((1, 1), (0, 0), (1, 1), (1, 1))
    return Convolution.PrimitiveDesc(engine, md, weights, None, md, *window, attr=PrimitiveAttr(scratchpad_mode=mode))


class Problem:
    """Arguments of a convolution of constants, and what its result must be."""

    def __init__(self, pd: PrimitiveDescIface, value: int) -> None:
        self.value = value
        descs = {Arg.SRC: pd.src_desc(), Arg.WEIGHTS: pd.weights_desc(), Arg.DST: pd.dst_desc()}
        if pd.scratchpad_desc().nbytes:
            descs[Arg.SCRATCHPAD] = pd.scratchpad_desc()
        self.args = {arg: Memory(desc, pd.engine) for arg, desc in descs.items()}

    def computes(self, primitive: Primitive, stream: Stream) -> bool:
        """Execute, and return whether the result is right."""
        for arg, content in ((Arg.SRC, self.value), (Arg.WEIGHTS, 1), (Arg.DST, np.nan)):
            self.args[arg].map()
            self.args[arg].numpy()[:] = content
            self.args[arg].unmap()
        primitive.execute(stream, self.args)
        stream.wait()
        self.args[Arg.DST].map()
        result = self.args[Arg.DST].numpy().copy()
        self.args[Arg.DST].unmap()
        return bool((result[0, :, 1:-1, 1:-1] == MIDDLE * self.value).all() and np.isfinite(result).all())


def side_by_side(pd: PrimitiveDescIface, primitive: Primitive) -> list[str]:
    """Execute a primitive from many threads, half of them on one stream; return what went wrong."""
    shared, wrong = Stream(pd.engine), list[str]()

    def compute(number: int) -> None:
        try:
            stream = Stream(pd.engine) if number % 2 else shared
            problem = Problem(pd, number + 1)
            wrong.extend(f"thread {number}" for _ in range(10) if not problem.computes(primitive, stream))
        except Exception as error:  # noqa: BLE001 - reported by the test
            wrong.append(repr(error))

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [*wrong, *(f"{thread.name} has not ended" for thread in threads if thread.is_alive())]


def let_go(pd: PrimitiveDescIface, primitive: Primitive) -> bool:
    """Enqueue on memories that only the stream refers to, and wait; return whether it has released them only then."""
    stream, problem = Stream(pd.engine), Problem(pd, 1)
    primitive.execute(stream, problem.args)
    kept = weakref.ref(problem.args[Arg.SRC])
    del problem
    gc.collect()
    held = kept() is not None
    stream.wait()
    return held and kept() is None


def refused(pd: PrimitiveDescIface, primitive: Primitive) -> list[str]:
    """Return what wrong executions say."""
    said, args = [], Problem(pd, 1).args
    other = Engine("opencl")
    for stream, given in (
        (Stream(other), args),
        (Stream(pd.engine), {**args, Arg.SRC: Memory(pd.src_desc(), other)}),
        (Stream(pd.engine), {**args, Arg.SRC: Memory(pd.src_desc())}),
    ):
        try:
            primitive.execute(stream, given)
        except ValueError as error:
            said.append(str(error))
    return said


def main(home: str) -> None:
    """Create, execute, destroy, and ask again on a new engine."""
    # Without Redis the counts are those of this node's files: no server that answers late leaves any out.
    with CacheStore.connect("unix:///no-server", home=home) as store:
        cache = compiled.cache(8, store)
        found: dict[str, object] = {"sources": [], "wrong": []}
        engine = Engine("opencl")
        for mode in ("library", "user"):
            pd = describe(engine, mode)
            found[mode] = [pd.scratchpad_desc().nbytes > 0, pd.create(cache).source]
            found["wrong"] = [found["wrong"], side_by_side(pd, pd.create(cache))]
        pd = describe(engine)
        primitive = pd.create(cache)
        found["refused"] = refused(pd, primitive)
        found["held"] = let_go(pd, primitive)
        gone: list[weakref.ref[Any]] = [weakref.ref(engine), weakref.ref(primitive.resources)]
        del engine, primitive, pd
        gc.collect()
        found["gone"] = [reference() is None for reference in gone]
        # A new engine has a new context
        engine = Engine("opencl")
        pd = describe(engine)
        primitive = pd.create(cache)
        found["again"] = [primitive.source, Problem(pd, 2).computes(primitive, Stream(engine))]
        found["creations"] = store.stats()["creations"]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
