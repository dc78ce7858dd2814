"""One process of a storm: get one OpenCL program by way of poolrt's store or as pyopencl does it, run it, check it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import expected
import numpy as np
import pyopencl as cl
from pocl_device import pocl_device

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.opencl import OpenClEngine, runtime
from poolrt.workers.engines.opencl_identity import device_identity
from poolrt.workers.engines.pocl import PLATFORM
from poolrt.workers.engines.target import Target
from poolrt.workers.execution.opencl_binding import RealizedOpenClPrimitive, bind_launches
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from poolrt.workers.kernels.opencl.build import BUILD_OPTIONS
from poolrt.workers.kernels.opencl.source import kernel_source
from poolrt.workers.primitives.creation import PrimitiveCreator
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.primitives.key import primitive_key

ALGORITHM: Final = "logistic"

#: Computes a destination from a source; tells whether this process has built the program.
Compute = Callable[[PrimitiveDesc, cl.Buffer, cl.Buffer], bool]


def main(name: str, home: str) -> None:
    """Do it, and tell how long it took and whether this process has built the program."""
    try:
        context, queue, target, compute = (_Poolrt(home) if name == "poolrt" else _PyOpenCl()).ready()
    except LookupError as error:
        print(error, flush=True)
        return
    md = MemoryDesc(expected.SHAPE, "f32")
    pd = primitive_desc(Eltwise(md, md, ALGORITHM), PrimitiveAttr(), target)
    src, dst = (cl.Buffer(context, cl.mem_flags.READ_WRITE, md.nbytes + 64) for _ in range(2))
    cl.enqueue_copy(queue, src, expected.source())
    queue.finish()
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    created = compute(pd, src, dst)
    result = np.empty(expected.SHAPE, np.float32)
    cl.enqueue_copy(queue, result, dst)
    seconds = time.perf_counter() - begin
    expected.check(ALGORITHM, result)
    print(json.dumps({"seconds": seconds, "created": created}))


class _Poolrt:
    """An engine, and the store in front of its programs."""

    def __init__(self, home: str) -> None:
        self._home = home
        platforms = [device.handle.platform.name for device in runtime().devices]
        if PLATFORM not in platforms:
            raise LookupError("there is no PoCL")
        self._engine = OpenClEngine(platforms.index(PLATFORM))

    def ready(self) -> tuple[cl.Context, cl.CommandQueue, Target, Compute]:
        return self._engine.context, self._engine.queue, self._engine.target, self._compute

    def _compute(self, pd: PrimitiveDesc, src: cl.Buffer, dst: cl.Buffer) -> bool:
        with CacheStore.connect(home=self._home) as store:
            outcome = store.fetch_or_create(primitive_key(pd), lambda: PrimitiveCreator().create(pd))
        primitive = RealizedOpenClPrimitive(parse_entry(outcome.value), self._engine)
        for launch in bind_launches(primitive, {Arg.SRC: (src, 0), Arg.DST: (dst, 0)}, src):
            launch.enqueue(self._engine.queue)
        return outcome.source == "created"


class _PyOpenCl:
    """A context and a queue as everybody makes them; PoCL keeps what it compiles in POCL_CACHE_DIR."""

    def __init__(self) -> None:
        device, processor = pocl_device()
        self._target = Target("opencl", "opencl", device_identity(device, processor))
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(self._context)

    def ready(self) -> tuple[cl.Context, cl.CommandQueue, Target, Compute]:
        return self._context, self._queue, self._target, self._compute

    def _compute(self, pd: PrimitiveDesc, src: cl.Buffer, dst: cl.Buffer) -> bool:
        program = pd.program()
        (spec,), (launch,) = program.kernels, program.launches
        built = cl.Program(self._context, kernel_source(spec)).build(options=list(BUILD_OPTIONS))
        kernel = cl.Kernel(built, spec.generator)
        values: list[Any] = []
        for where, value in launch.args:
            if isinstance(value, tuple):
                values += [src if value[0] == Arg.SRC else dst, np.int64(value[1])]
            elif where in ("s", "t"):
                values += [src, np.int64(value)]
            else:
                values.append(np.float32(value) if where == "f" else np.int64(value))
        kernel.set_args(*values)
        cl.enqueue_nd_range_kernel(self._queue, kernel, launch.global_size, launch.local_size)
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
