"""Graphs run on the processor of this machine, in this process: lowered, created and executed as in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.streams.stream import Stream
from tests.references import numpy_type
from tests.workers import compiled

Array = NDArray[Any]


class NativeGraphs:
    """One creator and one engine for all graphs: each kernel is compiled once."""

    def __init__(self) -> None:
        self._creator = compiled.creator()
        self._engine = Engine("cpu")

    def run(self, graph: Graph, inputs: Mapping[str, Array], optimize: bool = True) -> dict[str, Array]:
        """Return the outputs of a graph; inputs are converted to its types."""
        wire, given = graph.to_wire(optimize)
        lowered = lower(parse(wire), {"cpu": cpu_target()})
        plan = lowered.plan
        entries = [self._creator.create(pd) for pd in lowered.primitives]
        raw = {value: constant.to_array() for (value, _), constant in zip(wire["constants"], given, strict=True)}
        final = [raw[c.value] if c.reorder is None else np.full(c.nbytes, 0xFF, np.uint8) for c in plan.constants]
        primitives = realize_all(plan, entries, [self._engine])
        executor = PlanExecutor(plan, primitives, [Stream(self._engine)], [c.ctypes.data for c in final])
        for number, constant in enumerate(plan.constants):
            if constant.reorder is not None:
                executor.reorder_constant(number, raw[constant.value].ctypes.data, final[number].ctypes.data)
        sources = [np.ascontiguousarray(inputs[p.name].astype(numpy_type(p.dtype))) for p in plan.inputs]
        results = {p.name: np.full(p.nbytes, 0xFF, np.uint8) for p in plan.outputs}
        executor.run([a.ctypes.data for a in sources], [a.ctypes.data for a in results.values()])
        executor.close()
        return {p.name: results[p.name].view(numpy_type(p.dtype)).reshape(p.dims) for p in plan.outputs}
