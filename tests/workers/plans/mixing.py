"""A process that runs graphs on the processor and on OpenCL at once, on shared or on transferred memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.opencl import runtime
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.plans.execution_plan import CrossEngineReorder
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.poolrt.graph.every_operation import graph_of, values_of
from tests.poolrt.graph.interpreter import run_wire
from tests.references import numpy_type
from tests.workers import compiled

Array = NDArray[Any]
ROUNDS = 4


def graphs() -> dict[str, Graph]:
    """Return graphs whose tensors pass between engines in all the ways there are."""
    random = np.random.default_rng(0)

    def array(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    there_and_back = Graph("there and back")
    x = there_and_back.eltwise(there_and_back.input("x", (6, 40)), "tanh")
    y = there_and_back.matmul(x, array(40, 24), array(24), engine="opencl:0")
    there_and_back.output("y", there_and_back.softmax(y))

    residual = Graph("layouts, views and a residual")
    x = residual.input("x", (2, 16, 9, 9))
    y = residual.convolution(x, array(16, 16, 3, 3), padding=1)
    part = residual.slice(residual.eltwise(y, "tanh"), (3, 1), (11, 8), (1, 2), (1, 2))
    z = residual.eltwise(part, "exp", engine="opencl:0")
    z = residual.binary(z, part, "add")
    residual.output("z", residual.pooling(z, "max", 2, engine="opencl:0"))
    residual.output("y", y)

    device = Graph("a device with one step on the host", "opencl:0")
    x = device.convolution(device.input("x", (1, 8, 10, 10)), array(24, 8, 3, 3), array(24))
    h = device.eltwise(x, "tanh", engine="cpu")
    h = device.convolution(h, array(24, 24, 3, 3), array(24), padding=1)
    device.output("y", device.eltwise(device.binary(h, x, "add"), "relu"))
    device.output("h", h)

    outputs = Graph("outputs that are read on the other side")
    x, w = outputs.input("x", (5, 7)), outputs.input("w", (5, 7))
    y = outputs.eltwise(x, "exp", engine="opencl:0")
    z = outputs.eltwise(y, "tanh", engine="cpu")
    outputs.output("y", y)
    outputs.output("z", z)
    outputs.output("v", outputs.binary(z, w, "mul", engine="opencl:0"))
    outputs.output("x again", x)
    return {g.name: g for g in (there_and_back, residual, device, outputs)}


class Mixing:
    """Engines and creator for all graphs."""

    def __init__(self, shared: bool) -> None:
        runtime(threads=2)
        device, attr = Engine("opencl"), StreamAttr("cpu")
        device.opencl.shares_memory = shared
        self._creator = compiled.creator()
        self._pool = ThreadsPool(2)
        attr.set_threadpool(self._pool)
        self._streams = {"cpu": Stream(Engine("cpu"), attr), "opencl:0": Stream(device)}

    def error(self, graph: Graph, given_inputs: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """Return the largest error of some runs, how many reorders between engines a graph has and copies, and its engines."""
        wire, given = graph.to_wire()
        lowered = lower(parse(wire), {"cpu": cpu_target(), "opencl:0": self._streams["opencl:0"].engine.target})
        plan = lowered.plan
        entries = [self._creator.create(pd) for pd in lowered.primitives]
        raw = {value: constant.to_array() for (value, _), constant in zip(wire["constants"], given, strict=True)}
        final = [raw[c.value] if c.reorder is None else np.full(c.nbytes, 0xFF, np.uint8) for c in plan.constants]
        streams = [self._streams[name] for name in plan.engines]
        primitives = realize_all(plan, entries, [stream.engine for stream in streams])
        executor = PlanExecutor(plan, primitives, streams, [c.ctypes.data for c in final])
        for number, constant in enumerate(plan.constants):
            if constant.reorder is not None:
                executor.reorder_constant(number, raw[constant.value].ctypes.data, final[number].ctypes.data)
        worst = 0.0
        for turn in range(ROUNDS if given_inputs is None else 1):
            # Inputs and outputs move from run to run, and come back to where they were.
            random = np.random.default_rng(turn % 3)
            inputs = given_inputs or {p.name: random.standard_normal(p.dims).astype(np.float32) for p in plan.inputs}
            places = [np.ascontiguousarray(inputs[p.name].astype(numpy_type(p.dtype))) for p in plan.inputs]
            results = [np.full(p.nbytes, 0xFF, np.uint8) for p in plan.outputs]
            executor.run([a.ctypes.data for a in places], [a.ctypes.data for a in results])
            wanted = run_wire(*graph.to_wire(), inputs)
            for port, flat in zip(plan.outputs, results, strict=True):
                got = flat.view(numpy_type(port.dtype)).reshape(port.dims).astype(np.float64)
                worst = max(worst, float(np.abs(got - wanted[port.name]).max()))
        executor.close()
        reorders = sum(isinstance(step, CrossEngineReorder) for step in plan.steps)
        return {"error": worst, "reorders": reorders, "copies": executor.copies, "engines": plan.engines}

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()


if __name__ == "__main__":
    mixing = Mixing(sys.argv[1] != "transferred")
    if sys.argv[1] == "operations":
        found = {name: mixing.error(graph_of(name, engine="opencl:0"), {"x": values_of(name)}) for name in sys.argv[2:]}
    else:
        found = {name: mixing.error(graph) for name, graph in graphs().items()}
    print(json.dumps(found))
    mixing.close()
