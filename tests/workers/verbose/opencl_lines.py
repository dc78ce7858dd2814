"""A process that executes on OpenCL and writes verbose lines. Arguments: HOME.

For each part it prints a line of JSON: its name, how often each text must occur, and the milliseconds that it took. The
lines of a part end with a line of its name on standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from poolrt import Executor, Graph
from poolrt.cachestore import CacheStore
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers import Arg, Engine, InnerProduct, Memory, MemoryDesc, Reorder, Stream, StreamAttr
from poolrt.workers.engines.opencl import runtime
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.plans.execution_plan import Step
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.threads import ThreadsPool
from poolrt.workers.verbose.output import set_verbose
from poolrt.workers.verbose.text import describe_primitive
from tests.workers import compiled

RUNS = 3


def device_graph() -> Graph:
    """Return a graph that a device computes alone."""
    g = Graph("device", "opencl:0")
    g.output("y", g.binary(g.input("x", (16, 9)), g.input("w", (16, 9)), "add"))
    return g


def mixed_graph() -> Graph:
    """Return a graph with a convolution on the processor, whose weights are reordered, between operations of a device."""
    g = Graph("both", "opencl:0")
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    x = g.eltwise(g.input("x", (1, 16, 9, 9)), "square")
    g.output("y", g.eltwise(g.convolution(x, weights, padding=1, engine="cpu"), "square"))
    return g


class OpenClLines:
    """One device for all parts."""

    def __init__(self, home: str) -> None:
        runtime(threads=2)
        self._device = Engine("opencl")
        self._entries: dict[str, bytes] = {}
        self._creator = compiled.creator()
        self._cache = PrimitiveProvider(64, CacheStore.connect(home=home, url=f"unix://{home}/none.sock"), self.created)

    def created(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive, created once."""
        digest = primitive_key(pd).digest
        if digest not in self._entries:
            self._entries[digest] = self._creator.create(pd)
        return self._entries[digest]

    def plan(self, g: Graph, shared: bool) -> tuple[Callable[[], None], Counter[str]]:
        """Return what runs a graph as a worker does, and the texts of that."""
        wire, given = g.to_wire()
        lowered = lower(parse(wire), {"cpu": cpu_target(), "opencl:0": self._device.target})
        plan = replace(lowered.plan, texts=tuple(map(describe_primitive, lowered.primitives)))
        entries = [self.created(pd) for pd in lowered.primitives]
        raw = {value: constant.to_array() for (value, _), constant in zip(wire["constants"], given, strict=True)}
        final = [np.zeros(c.nbytes, np.uint8) if c.reorder is not None else raw[c.value] for c in plan.constants]
        places = [c.ctypes.data for c in final]
        pool = ThreadsPool(2)
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        self._device.opencl.shares_memory = shared
        known = {"cpu": Stream(Engine("cpu"), attr), "opencl:0": Stream(self._device)}
        streams = [known[name] for name in plan.engines]
        primitives = realize_all(plan, entries, [stream.engine for stream in streams])
        executor = PlanExecutor(plan, primitives, streams, places)
        ports = [[np.zeros(p.nbytes, np.uint8) for p in some] for some in (plan.inputs, plan.outputs)]
        reorders = [c.reorder for c in plan.constants if c.reorder is not None]
        steps = [step.primitive for step in plan.steps if isinstance(step, Step)]

        def run() -> None:
            for number, constant in enumerate(plan.constants):
                if constant.reorder is not None:
                    executor.reorder_constant(number, raw[constant.value].ctypes.data, final[number].ctypes.data)
            for _ in range(RUNS):
                executor.run(*([a.ctypes.data for a in some] for some in ports))
            executor.close()
            pool.close()

        return run, Counter(plan.texts[n] for n in [*reorders, *steps * RUNS])

    def primitives(
        self, found: Sequence[PrimitiveDescIface], stream: Stream
    ) -> tuple[Callable[[], None], Counter[str]]:
        """Return what executes primitives one after the other, several times."""
        made = []
        for iface in found:
            engines = {}
            if iface.pd.op.kind == "reorder":
                engines = {Arg.SRC: iface.query("reorder_src_engine"), Arg.DST: iface.query("reorder_dst_engine")}
            args = {a: Memory(md, engines.get(Arg(a), iface.engine)) for a, md in iface.pd.memories().items()}
            made.append((iface.create(self._cache), args))

        def run() -> None:
            for _ in range(RUNS):
                for primitive, args in made:
                    primitive.execute(stream, args)
            stream.wait()

        return run, Counter(describe_primitive(iface.pd) for iface in found for _ in range(RUNS))

    def executor(self, g: Graph) -> tuple[Callable[[], None], Counter[str]]:
        """Return what runs a graph in this process, and the texts of that."""
        wire, _ = g.to_wire()
        lowered = lower(parse(wire), {"cpu": cpu_target(), "opencl:0": self._device.target})
        steps = [describe_primitive(lowered.primitives[s.primitive]) for s in lowered.plan.steps if isinstance(s, Step)]
        reorders = [
            describe_primitive(lowered.primitives[c.reorder]) for c in lowered.plan.constants if c.reorder is not None
        ]
        executor = Executor(g, cache=self._cache)
        x = np.zeros(lowered.plan.inputs[0].dims, np.float32)

        def run() -> None:
            for _ in range(RUNS):
                executor.run(x=x)

        return run, Counter([*reorders, *steps * RUNS])

    def parts(self) -> Iterable[tuple[str, Callable[[], None], Counter[str]]]:
        """Make each part ready."""
        host, device = Engine("cpu"), Engine("opencl")
        for memory in ("shared", "transferred"):
            yield f"device, {memory} memory", *self.plan(device_graph(), memory == "shared")
            yield f"both engines, {memory} memory", *self.plan(mixed_graph(), memory == "shared")
        flat, turned = MemoryDesc((64, 48), "f32"), MemoryDesc((64, 48), "f32", "ba")
        there = Reorder.PrimitiveDesc(host, flat, device, turned), Reorder.PrimitiveDesc(device, turned, host, flat)
        yield "reorders between engines", *self.primitives(there, Stream(device))
        with ThreadsPool(2, asynchronous=True) as pool:
            attr = StreamAttr("cpu")
            attr.set_threadpool(pool)
            stream = Stream(host, attr)
            there = (
                Reorder.PrimitiveDesc(host, flat, device, turned, stream=stream),
                Reorder.PrimitiveDesc(device, turned, host, flat, stream=stream),
            )
            yield "reorders that the processor computes", *self.primitives(there, Stream(device))
            yield "the same on threads", *self.primitives(there, stream)
        src, weights, dst = (MemoryDesc(dims, "f32") for dims in ((4, 6, 5, 5), (8, 6, 5, 5), (4, 8)))
        nested = InnerProduct.PrimitiveDesc(device, src, weights, None, dst)
        while not nested.pd.nested():
            assert nested.next_impl()
        yield "a primitive that others are nested in", *self.primitives([nested], Stream(device))
        yield "an executor", *self.executor(mixed_graph())


if __name__ == "__main__":
    set_verbose("profile_exec")
    for name, run, texts in OpenClLines(sys.argv[1]).parts():
        begin = time.perf_counter()
        run()
        print(json.dumps([name, texts, 1e3 * (time.perf_counter() - begin)]), flush=True)
        os.write(2, f"{name}\n".encode())
