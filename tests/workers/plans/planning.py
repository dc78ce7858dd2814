"""A process that runs a small plan on OpenCL, on shared or on transferred memory, and prints what it found as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from poolrt.workers.desc import Arg, Binary, Eltwise, MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.opencl import runtime
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import Launch, Program
from poolrt.workers.plans.execution_plan import ExecutionPlan, Place, PlaceKind, PlanConstant, Port, Step
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.primitives.entry import pack_entry, parse_entry
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import KernelFailed
from tests.workers import compiled

ROWS, COLUMNS = 6, 35


def main(shared: bool) -> None:
    runtime(threads=2)
    engine = Engine("opencl")
    engine.opencl.shares_memory = shared
    wide, flat = MemoryDesc((ROWS, COLUMNS), "f32"), MemoryDesc((1, COLUMNS), "f32")
    turned = MemoryDesc((COLUMNS, ROWS), "f32", "ba")
    ops = (
        Binary(wide, flat, wide, "add"),
        Eltwise(wide, wide, "relu"),
        Reorder(turned, turned.with_tag("ab")),
        Reorder(flat.with_tag("ba"), flat),
    )
    creator = compiled.creator()
    entries = [creator.create(primitive_desc(op, PrimitiveAttr(), engine.target)) for op in ops]
    source, result, work = (Place(k, 0) for k in (PlaceKind.INPUT, PlaceKind.OUTPUT, PlaceKind.WORK))
    second = Place(PlaceKind.WORK, 1024)
    steps = (
        Step(0, ((Arg.SRC, source), (Arg.SRC_1, Place(PlaceKind.CONSTANT, 0)), (Arg.DST, work)), "add"),
        Step(1, ((Arg.SRC, work), (Arg.DST, second)), "relu"),
        Step(2, ((Arg.SRC, second), (Arg.DST, result)), "turn"),
    )
    constant = PlanConstant(0, flat.nbytes, flat.nbytes, 3)
    ports = (Port("x", wide.dims, "f32", wide.nbytes), Port("y", turned.dims, "f32", turned.nbytes))
    plan = ExecutionPlan(("opencl:0",), steps, (constant,), ports[:1], ports[1:], (2048,), (0,) * len(ops))
    given = np.arange(COLUMNS, dtype=np.float32) - 10
    constants = np.full_like(given, np.nan)
    executor = PlanExecutor(plan, realize_all(plan, entries, [engine]), [Stream(engine)], [constants.ctypes.data])
    executor.reorder_constant(0, given.ctypes.data, constants.ctypes.data)
    wrong = 0
    buffers = [(np.empty((ROWS, COLUMNS), np.float32), np.empty((COLUMNS, ROWS), np.float32)) for _ in range(3)]
    for turn in range(9):
        x, y = buffers[turn % 3]
        x[:] = np.random.default_rng(turn).integers(-20, 20, x.shape)
        y[:] = np.nan
        executor.run([x.ctypes.data], [y.ctypes.data])
        wrong += int((y != np.maximum(x + given, 0).T).sum())
    executor.close()
    print(
        json.dumps(
            {"wrong": wrong, "constant": constants.tolist() == given.tolist(), "failed": fails(engine, plan, entries)}
        )
    )


def fails(engine: Engine, plan: ExecutionPlan, entries: list[bytes]) -> str:
    """Return the error of a plan whose second step asks for groups that do not divide its grid."""
    entry = parse_entry(entries[1])
    broken = tuple(
        Launch(run.kernel, run.args, run.work, (65, 1), (64, 1)) for run in entry.launches if isinstance(run, Launch)
    )
    program: Any = Program((), broken, entry.tables, entry.scratchpad)
    bad = pack_entry(entry.implementation, "opencl", program, list(entry.binaries), list(entry.kernel_names))
    room = np.zeros(4096, np.float32)
    primitives = realize_all(plan, [entries[0], bad, *entries[2:]], [engine])
    executor = PlanExecutor(plan, primitives, [Stream(engine)], [room.ctypes.data])
    try:
        executor.run([room.ctypes.data], [room.ctypes.data + 8192])
    except KernelFailed as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(sys.argv[1] == "shared")
