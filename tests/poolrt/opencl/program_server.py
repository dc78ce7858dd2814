"""A process that builds programs with `poolrt.opencl` and launches them, with a PoCL cache of its own.

Arguments: the folder of PoCL's cache. Requests are ``[function, arguments]``.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from tests.workers.own_process import serve

CACHE = Path(sys.argv[1] if len(sys.argv) > 1 else "/nonexistent")
os.environ["POCL_CACHE_DIR"] = str(CACHE)

import numpy  # noqa: E402
import pyopencl as cl  # noqa: E402

import poolrt  # noqa: E402
import poolrt.cachestore  # noqa: E402
from poolrt.opencl.binaries import default_binaries  # noqa: E402
from tests.workers.compiled import cache  # noqa: E402


class Programs:
    """The requests that the process answers."""

    def __init__(self) -> None:
        name = os.environ.get("POOLRT_TEST_PLATFORM", "Portable")
        platform = next(platform for platform in cl.get_platforms() if name in platform.name)
        self.context = cl.Context(platform.get_devices()[:1])
        self.queue = cl.CommandQueue(self.context)

    def build(self, source: str, options: Any = None, local: int = 0, **more: Any) -> dict[str, Any]:
        """Build a program; with ``local``, launch its kernel ``f(float *, int)`` on 1024 items. Return what happened."""
        before = poolrt.opencl.stats()
        begin = time.monotonic()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's driver always has a log
            try:
                program = poolrt.opencl.Program(self.context, source).build(options, **more)
            except cl.RuntimeError as error:
                return {"code": error.code, "error": str(error), "counts": self._since(before)}
        answer = {
            "seconds": time.monotonic() - begin,
            "counts": self._since(before),
            "warnings": [f"{warning.category.__name__}: {warning.message}" for warning in warned],
            "log": program.get_build_info(self.context.devices[0], cl.program_build_info.LOG),
            "same": program.source == source == program.get_info(cl.program_info.SOURCE),
            "kernels": [kernel.function_name for kernel in program.all_kernels()],
        }
        if local:
            compiled = self._libraries()
            values = numpy.arange(1024, dtype=numpy.float32)
            buffer = cl.Buffer(self.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
            program.f(self.queue, (1024,), (local,), buffer, numpy.int32(3))
            cl.enqueue_copy(self.queue, values, buffer)
            answer |= {"values": values[:3].tolist(), "late": len(self._libraries() - compiled)}
        return answer

    def storm(self, programs: int, begin: float) -> list[dict[str, Any]]:
        """Build and launch many programs, and one that does not compile, all from a wall-clock time on."""
        time.sleep(max(0.0, begin - time.time()))
        body = "__kernel void f(__global float *x, int n) { int i = get_global_id(0); x[i] = x[i] * n + %d; }"
        built = [self.build(body % number, local=32) for number in range(programs)]
        return [*built, self.build("__kernel void f() { nonsense_here; }")]

    def costs(self, source: str, kernels: list[str], sizes: list[int]) -> dict[str, Any]:
        """Build a program and launch kernels ``(float *)`` with local sizes; return seconds of processor time and the counts."""
        before, begin = poolrt.opencl.stats(), time.process_time()
        program = poolrt.opencl.Program(self.context, source).build()
        built = time.process_time()
        buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 1 << 16)
        for name in kernels:
            kernel = cl.Kernel(program, name)
            for size in sizes:
                kernel(self.queue, (size,), (size,), buffer)
                self.queue.finish()
        return {"build": built - begin, "launches": time.process_time() - built, "counts": self._since(before)}

    def publish(self) -> int:
        """Publish the launches so far."""
        return poolrt.opencl.publish_launches()

    def corrupt(self) -> int:
        """Return how many entries the store has found corrupt or forged."""
        stats = default_binaries()._store.stats()
        return stats["corrupt"] + stats["forged"]

    def used_before_its_build(self, source: str) -> list[str]:
        """Return the warnings if a program is asked for something and then built."""
        program = poolrt.opencl.Program(self.context, source)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's driver always has a log
            assert program.reference_count == 1
            program.build()
        assert program.num_kernels == 1
        return [warning.category.__name__ for warning in warned]

    def with_a_store_in(self, home: str, source: str) -> tuple[list[str], dict[str, int]]:
        """Return the warnings of a build with a store in a folder, and the counts of that store."""
        store = poolrt.cachestore.CacheStore.connect(home=home)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's driver always has a log
            program = poolrt.opencl.Program(self.context, source, store=store).build()
        assert program.num_kernels == 1
        store.close()
        return [str(warning.message) for warning in warned], poolrt.opencl.stats(store)

    def other_forms(self, source: str) -> list[list[str]]:
        """Return the kernels of programs made from binaries and from pyopencl's own program, and the error of a number."""
        built = poolrt.opencl.Program(self.context, source).build()
        devices = self.context.devices
        again = poolrt.opencl.Program(self.context, devices, built.binaries).build()
        wrapped = poolrt.opencl.Program(cl.Program(self.context, source).build(cache_dir=False)._get_prg())  # type: ignore[arg-type]
        assert isinstance(built, cl.Program)
        assert built == built.build("-DUNUSED") or built.num_devices == len(devices)
        refused = ""
        try:
            poolrt.opencl.Program(self.context, 5).build()
        except TypeError as error:
            refused = str(error)
        return [*([cl.Kernel(one, "f").function_name] for one in (again, wrapped, built)), [refused]]

    def in_a_graph(self, source: str, home: str) -> dict[str, Any]:
        """Call a kernel of a program, ``f(const float *, float *, int)``, in a graph that this process runs itself."""
        program = poolrt.opencl.Program(self.context, source).build("-D FACTOR=3")
        values, answer = numpy.arange(33, dtype=numpy.float32), {}
        with poolrt.cachestore.CacheStore.connect(f"unix://{home}/none.sock", home=home) as store:
            for name, kernel in (("attribute", program.f), ("constructed", cl.Kernel(program, "f"))):
                executor = poolrt.Executor(_graph_of(kernel), cache=cache(16, store))
                answer[name] = executor.run(x=values)["y"].tolist()
        for name, made in (
            ("plain", cl.Program(self.context, source).build("-D FACTOR=3", cache_dir=False)),  # type: ignore[arg-type]
            ("unknown", poolrt.opencl.Program(self.context, source).build("-D FACTOR=3 -cl-kernel-arg-info")),
            ("binary", poolrt.opencl.Program(self.context, self.context.devices, program.binaries).build()),
        ):
            try:
                _graph_of(cl.Kernel(made, "f"))
            except poolrt.GraphError as error:
                answer[name] = str(error)
        # A kernel that outlives its program, whose handle another program may get.
        left = cl.Kernel(program, "f")
        del program
        gc.collect()
        try:
            _graph_of(left)
        except poolrt.GraphError as error:
            answer["left"] = str(error)
        return answer

    def _since(self, before: dict[str, int]) -> dict[str, int]:
        now = poolrt.opencl.stats()
        return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}

    def _libraries(self) -> set[str]:
        return {str(path) for path in CACHE.rglob("*.so")}


def _graph_of(kernel: Any) -> poolrt.Graph:
    """Return a graph of one call of a kernel."""
    g = poolrt.Graph("own", "opencl")
    x = g.input("x", (33,))
    g.output("y", g.call(kernel, [x], [((x.size(0),), "float32")], scalars=[4], name="mine"))
    return g


def main() -> None:
    """Serve until standard input closes."""
    programs = Programs()
    serve(lambda request: getattr(programs, request[0])(**request[1]))


if __name__ == "__main__":
    main()
