"""A process of its own that runs a graph of two operations on many shapes, and prints how much memory it takes for them."""

from __future__ import annotations

import ctypes
import gc
import json
import sys

import numpy as np

from poolrt import DeviceContext, Executor, Graph
from poolrt.cachestore import CacheStore
from poolrt.workers.primitives.provider import PrimitiveProvider

COLUMNS = 256
_C_LIBRARY = ctypes.CDLL(None)


def resident() -> int:
    """Return the bytes of this process in memory, without free ones that the C library keeps for its next allocations.

    Those were 4 MB after 500 shapes with a bound of 16 MiB, and 11 MB with one of 64 MiB, on a processor with AVX-512.
    """
    _C_LIBRARY.malloc_trim(0)
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))


def measure(home: str, shapes: int, bound: int, rows: int) -> dict[str, int]:
    """Run on as many shapes, each a row more than ``rows`` at first; return bytes, and how many results were wrong."""
    wrong = largest = most = 0
    weights = np.random.default_rng(1).standard_normal((COLUMNS, COLUMNS)).astype(np.float32) / 16
    graph = Graph("two operations")
    graph.output("y", graph.eltwise(graph.matmul(graph.input("x", (rows, COLUMNS)), weights), "tanh"))
    with CacheStore.connect(home=home) as store:
        context = DeviceContext(capacity_bytes=bound)
        cache = PrimitiveProvider(store=store)
        executor = Executor(graph, context=context, cache=cache)
        executor.run(x=np.zeros((rows, COLUMNS), np.float32))
        gc.collect()
        before = resident()
        for number in range(shapes):
            x = np.random.default_rng(number).standard_normal((rows + number, COLUMNS)).astype(np.float32)
            found = executor.run(x=x)["y"]
            # A few rows: a product of all would be most of the time.
            wrong += not np.allclose(found[:: rows // 2], np.tanh(x[:: rows // 2] @ weights), atol=1e-4)
            # Input, result, and what is between them
            largest = max(largest, resident() - before - 3 * x.nbytes)
            most = max(most, context.nbytes)
            del x, found
        statistics = context.statistics()
        store.down()
    return {
        "wrong": wrong,
        "growth": largest,
        "counted": most,
        "evicted": statistics.evicted,
        "created": statistics.created,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
