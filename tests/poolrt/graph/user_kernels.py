"""Kernels of a user for tests, and graphs that call them; as a program: load such a graph from its kernel's code alone."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np

import poolrt
from poolrt import NativeKernel, OpenClKernel
from poolrt.cachestore import CacheStore
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.primitives.compiler_pool import compiler_pool
from poolrt.workers.primitives.provider import PrimitiveProvider

#: Scales and shifts rows of the first dimension.
SIGNATURE = "void(i8, i8, f4[:, :, :, ::1], f4[::1], f4[:, :, :, ::1], f4)"
SOURCE = """
__kernel void scale(__global const float *x, __global const float *shift, __global float *y, int each, float factor)
{
    __local float row[64];
    const size_t item = get_global_id(0), place = get_local_id(0);
    row[place] = x[item] * factor;
    barrier(CLK_LOCAL_MEM_FENCE);
    y[item] = row[place] + shift[item / each % CHANNELS];
}
"""
OPENCL = OpenClKernel(SOURCE, "scale", "-D CHANNELS=8")


def scale(begin: int, end: int, x: Any, shift: Any, y: Any, factor: float) -> None:
    for image in range(begin, end):
        for channel in range(x.shape[1]):
            for row in range(x.shape[2]):
                for column in range(x.shape[3]):
                    y[image, channel, row, column] = x[image, channel, row, column] * factor + shift[channel]


def weights() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    return (random.standard_normal((8, 8, 1, 1)) / 4).astype(np.float32), np.arange(8, dtype=np.float32)


def between_convolutions(kernel: NativeKernel | OpenClKernel, engine: str = "cpu") -> poolrt.Graph:
    """Return a graph for images of 8 channels: a convolution, y = 2 x + shift by the kernel, the same convolution."""
    w, shift = weights()
    g = poolrt.Graph("called", engine)
    x = g.convolution(g.input("x", (32, 8, 6, 6)), w)
    scalars = [36, 2.0] if isinstance(kernel, OpenClKernel) else [2.0]
    outputs = [((x.size(0), 8, 6, 6), "float32")]
    g.output("y", g.convolution(g.call(kernel, [x, shift], outputs, scalars=scalars, name="scaled"), w))
    return g


def expected(x: Any) -> Any:
    w, shift = weights()
    inner = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) * 2 + shift[:, None, None]
    return np.einsum("nchw,oc->nohw", inner, w[:, :, 0, 0])


def images(count: int = 32) -> Any:
    return np.random.default_rng(count).standard_normal((count, 8, 6, 6)).astype(np.float32)


def main(given: str, home: str, within: str = "pool") -> None:
    """Run a graph on a pool, or ``within`` this process; ``given``: a kernel's fields as JSON, or empty for OpenCL."""
    kernel: NativeKernel | OpenClKernel = OPENCL
    if given:
        fields = json.loads(Path(given).read_text())
        kernel = NativeKernel(
            **{**fields, "parameters": tuple(fields["parameters"]), "code": b64decode(fields["code"])}
        )
    graph = between_convolutions(kernel, "cpu" if given else "opencl")
    x, none, created = images(), f"unix://{home}/none.sock", []

    def create(pd: PrimitiveDesc) -> bytes:
        created.append(pd)
        return compiler_pool().create(pd)

    if within == "pool":
        with poolrt.Pool(workers=1, threads=1, home=home, redis_url=none) as pool:
            model = pool.load(graph)
            y, count = model.run(x=x)["y"], model.report["primitives"]["created"]
    else:
        with CacheStore.connect(none, home=home) as store:
            y = poolrt.Executor(graph, cache=PrimitiveProvider(256, store, create)).run(x=x)["y"]
            count = len(created)
    right = bool(np.allclose(y, expected(x), rtol=1e-4, atol=1e-5))
    print(json.dumps({"created": count, "right": right, "numba": "numba" in sys.modules}))


if __name__ == "__main__":
    main(*sys.argv[1:])
