"""A process that lowers, creates and runs networks on OpenCL; answers the largest error and the largest output."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrt.graph.lower import lower
from poolrt.graph.onnx.importer import load_onnx
from poolrt.graph.wire_parser import parse
from poolrt.models import build, load_expected
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.opencl import runtime
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.streams.stream import Stream
from tests.workers import compiled
from tests.workers.own_process import serve


class Networks:
    """One engine and one creator for all requests."""

    def __init__(self) -> None:
        runtime(threads=2)
        self._engine = Engine("opencl")
        self._creator = compiled.creator()

    def answer(self, name: str) -> Any:
        """Return the largest error and the largest value of a network's output, from its second run."""
        wire, given = load_onnx(build(name).SerializeToString(), engine="opencl:0").to_wire()
        lowered = lower(parse(wire), {"cpu": cpu_target(), "opencl:0": self._engine.target})
        raw = {}
        for (value, nbytes), constant in zip(wire["constants"], given, strict=True):
            raw[value] = np.empty(nbytes // 4, np.float32)
            constant.write_into(raw[value])
        plan = lowered.plan
        final = [raw[c.value] if c.reorder is None else np.empty(c.nbytes // 4, np.float32) for c in plan.constants]
        entries = [self._creator.create(pd) for pd in lowered.primitives]
        primitives = realize_all(plan, entries, [self._engine])
        executor = PlanExecutor(plan, primitives, [Stream(self._engine)], [c.ctypes.data for c in final])
        for number, kept in enumerate(plan.constants):
            if kept.reorder is not None:
                executor.reorder_constant(number, raw[kept.value].ctypes.data, final[number].ctypes.data)
        wanted = load_expected(name)
        x, y = wanted.inputs()[plan.inputs[0].name], np.empty(wanted.output.shape, np.float32)
        for _ in range(2):
            y[:] = np.nan
            executor.run([x.ctypes.data], [y.ctypes.data])
        executor.close()
        return wanted.error(y), float(np.abs(wanted.output).max())


if __name__ == "__main__":
    serve(Networks().answer)
