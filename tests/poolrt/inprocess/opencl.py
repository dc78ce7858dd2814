"""Run graphs on the first OpenCL device of this machine, in a process of its own; tell what happened as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from poolrt import DeviceContext, Executor, Graph
from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers.compiled import creator

from .networks import array, close


def interleaved(cache: PrimitiveProvider) -> dict[str, Any]:
    """Let a graph for the device and one for host and device take turns in one context, and change the shape."""
    context, weights = DeviceContext(), (array(32), array(32, seed=1))
    executors = []
    for engine, factors in zip(("opencl", "cpu"), weights, strict=True):
        g = Graph("g", engine)
        h = g.eltwise(g.input("x", (8, 32)), "tanh", name="act", engine="opencl:0")
        g.output("y", g.binary(h, factors, "mul", name="scaled"))
        executors.append(Executor(g, context=context, cache=cache))
    inputs = [array(8, 32), array(8, 32, seed=1), array(3, 32)]
    expected = [[np.tanh(x) * factors for x in inputs] for factors in weights]
    for executor in executors:
        for x in inputs:
            executor.run(x=x)
    created = context.statistics().created
    right = [
        close(one.run(x=inputs[turn % 3]), {"y": outputs[turn % 3]})
        for turn in range(100)
        for one, outputs in zip(executors, expected, strict=True)
    ]
    return {"right": all(right), "created": context.statistics().created - created}


def views(cache: PrimitiveProvider, on_host: bool) -> dict[str, Any]:
    """Read parts of what a device computed on both engines of a reorder, in the host's memory or in the device's own."""
    g, weights = Graph("views"), array(32, 32)
    x = g.input("x", (8, 32))
    h = g.eltwise(x, "tanh")
    product = g.matmul(h, weights, engine="opencl")
    part = g.eltwise(g.slice(product, 3, 11, 1), "relu", engine="opencl")
    g.output("y", g.binary(g.slice(part, 1, 5, 1), 1.0, "add"))
    g.output("h", h)
    g.output("z", g.binary(h, x, "add", engine="opencl"))
    executor = Executor(g, cache=cache)
    executor._context.streams["opencl:0"].engine.opencl.shares_memory = on_host
    right, created = [], []
    for seed in range(3):
        values = array(8, 32, seed=seed)
        tanh = np.tanh(values)
        wanted = {"y": np.maximum((tanh @ weights)[:, 3:11], 0)[:, 1:5] + 1, "h": tanh, "z": tanh + values}
        right.append(close(executor.run(x=values), wanted))
        created.append(executor.context.statistics().created)
    return {"right": all(right), "created": created[-1] - created[0]}


def main(home: str) -> None:
    with CacheStore.connect(home=home) as store:
        cache = PrimitiveProvider(256, store, creator().create)
        found = {
            "interleaved": interleaved(cache),
            "on the host": views(cache, on_host=True),
            "on the device": views(cache, on_host=False),
        }
        store.down()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
