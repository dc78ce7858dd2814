"""A program: calls of a user's kernels on many shapes and data types in one graph each, run by an executor or on a pool.

Arguments: the kind of kernels, ``native`` or ``opencl``; the threads of a pool's worker, or 0 for an executor; a home. Prints
as JSON whether all results are right, how many primitives were created, and whether Numba was imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import poolrt
from poolrt.cachestore import CacheStore
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.primitives.compiler_pool import compiler_pool
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Shapes: one element, odd sizes, several dimensions, and more work than one job has.
SHAPES: Final = ((1,), (7,), (1021,), (3, 5, 7), (2, 513, 33), (1 << 18,))
#: Data type -> as OpenCL C has it.
OPENCL: Final = {"float32": "float", "float64": "double", "int32": "int", "uint8": "uchar", "float16": "half"}
NATIVE: Final = {"float32": "f4", "float64": "f8", "int64": "i8", "int32": "i4", "int8": "i1", "uint8": "u1"}
_SOURCE: Final = """
#ifdef HALF
#define LOAD(i) vload_half(i, x)
#define STORE(value, i) vstore_half(value, i, y)
#else
#define LOAD(i) x[i]
#define STORE(value, i) y[i] = value
#endif
__kernel void mixed(__global const T *x, __global T *y, __global double *z, int add, double factor) {
    size_t i = get_global_id(0);
    STORE(LOAD(i) + add, i);
    z[i] = LOAD(i) * factor;
}
"""


def mixed(begin: int, end: int, x: Any, y: Any, z: Any, add: int, factor: float) -> None:
    """Two outputs of two types, and two scalars of two types."""
    for i in range(begin, end):
        y[i] = x[i] + add
        z[i] = x[i] * factor


def mixed_in_three(begin: int, end: int, x: Any, y: Any, z: Any, add: int, factor: float) -> None:
    for i in range(begin, end):
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                y[i, j, k] = x[i, j, k] + add
                z[i, j, k] = x[i, j, k] * factor


def graph_of(kind: str, shape: tuple[int, ...]) -> poolrt.Graph:
    """Return a graph with a call for each data type, whose sizes follow those of the inputs."""
    g = poolrt.Graph(f"{kind} {shape}", "opencl" if kind == "opencl" else "cpu")
    for dtype, name in (OPENCL if kind == "opencl" else NATIVE).items():
        kernel: Any
        if kind == "opencl":
            half = " -D HALF=1" if name == "half" else ""
            kernel = poolrt.OpenClKernel(_SOURCE, "mixed", f"-D T={name}{half}")
        else:
            axes = "::1" if len(shape) == 1 else ":,:,::1"
            function = mixed if len(shape) == 1 else mixed_in_three
            kernel = poolrt.kernel(f"void(i8, i8, {name}[{axes}], {name}[{axes}], f8[{axes}], i8, f8)")(function)
        x = g.input(f"{dtype}.x", shape, dtype)
        sizes = [x.size(axis) for axis in range(len(shape))]
        y, z = g.call(kernel, [x], [(sizes, dtype), (sizes, "float64")], scalars=[-1, 2.5], name=dtype)
        g.output(f"{dtype}.y", y)
        g.output(f"{dtype}.z", z)
    return g


def inputs_of(kind: str, shape: tuple[int, ...]) -> dict[str, Any]:
    count = int(np.prod(shape))
    types = OPENCL if kind == "opencl" else NATIVE
    return {f"{dtype}.x": (np.arange(count) % 97 + 1).reshape(shape).astype(dtype) for dtype in types}


def is_right(found: dict[str, Any], inputs: dict[str, Any]) -> bool:
    return all(
        np.array_equal(found[f"{dtype}.y"], x - x.dtype.type(1)) and np.array_equal(found[f"{dtype}.z"], x * 2.5)
        for dtype, x in ((name.removesuffix(".x"), x) for name, x in inputs.items())
    )


def on_a_pool(kind: str, threads: int, home: str) -> Iterator[tuple[bool, int]]:
    """Yield for each shape whether the results are right, and how many primitives were created."""
    with poolrt.Pool(workers=1, threads=threads, home=home, redis_url=f"unix://{home}/none.sock") as pool:
        for shape in SHAPES:
            model, inputs = pool.load(graph_of(kind, shape)), inputs_of(kind, shape)
            yield is_right(model.run(**inputs), inputs), model.report["primitives"]["created"]
            model.close()


def in_an_executor(kind: str, home: str) -> Iterator[tuple[bool, int]]:
    """Yield as `on_a_pool` does. The graph of a rank has the first shape of that rank, and runs on the others."""
    created: list[PrimitiveDesc] = []

    def create(pd: PrimitiveDesc) -> bytes:
        created.append(pd)
        return compiler_pool().create(pd)

    executors: dict[int, poolrt.Executor] = {}
    with CacheStore.connect(f"unix://{home}/none.sock", home=home) as store:
        for shape in SHAPES:
            executor = executors.get(len(shape))
            if executor is None or kind == "opencl":  # the groups of its work-items are those of the declared shape
                provider = PrimitiveProvider(256, store, create)
                executor = executors[len(shape)] = poolrt.Executor(graph_of(kind, shape), cache=provider)
            inputs = inputs_of(kind, shape)
            yield is_right(executor.run(**inputs), inputs), len(created)
            created.clear()


def main(kind: str, threads: str, home: str) -> None:
    """Run all shapes and print what was found."""
    runs = list(on_a_pool(kind, int(threads), home) if int(threads) else in_an_executor(kind, home))
    found = {"right": all(right for right, _ in runs), "created": sum(created for _, created in runs)}
    print(json.dumps(found | {"runs": len(runs), "numba": "numba" in sys.modules}))


if __name__ == "__main__":
    main(*sys.argv[1:])
