"""How near the cost model comes that work is cut into jobs by: estimated to measured time of primitives on one thread.

Being right to a factor of three is enough for that. The least of several times is taken: the model knows no neighbours.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from measure import SHORT, arguments, record, sized

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import (
    BatchNormalization,
    Binary,
    Convolution,
    Eltwise,
    InnerProduct,
    Lrn,
    Matmul,
    MemoryDesc,
    OpDesc,
    Pooling,
    PrimitiveAttr,
    Reduction,
    Reorder,
    Softmax,
    Sum,
)
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.implementations.contract import REFERENCE
from poolrt.workers.implementations.cost_model import nanoseconds
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.stream import Stream

#: How often a primitive is executed, and nanoseconds after which it is no more.
ROUNDS: Final = sized(30, 1)
MOST_NS: Final = 5e8
#: How far an estimate may be off.
FACTOR: Final = 3.0


def f32(*dims: int, tag: str = "") -> MemoryDesc:
    """Return a tensor of float32."""
    return MemoryDesc(dims, "f32", tag)


def convolution(channels: int, size: int, kernel: int) -> OpDesc:
    """Return a convolution that keeps size and number of channels, in layouts of its own choice."""
    image, sides = f32(1, channels, size, size, tag="any"), (kernel // 2, kernel // 2)
    weights = f32(channels, channels, kernel, kernel, tag="any")
    return Convolution(image, weights, None, image, (1, 1), (0, 0), sides, sides)


def problems() -> list[OpDesc]:
    """Return operations as networks have them: each on what fits into a core's own cache and on what does not."""
    products: list[OpDesc] = [
        convolution(64, 56, 3),
        convolution(256, 14, 1),
        Matmul(f32(512, 512), f32(512, 512), None, f32(512, 512)),
        Matmul(f32(64, 64), f32(64, 64), None, f32(64, 64)),
        InnerProduct(f32(16, 2048), f32(1000, 2048), None, f32(16, 1000)),
    ]
    return [*products[:1], *moving(1, 28)[:4]] if SHORT else [*products, *moving(1, 28), *moving(16, 56)]


def moving(batch: int, size: int) -> list[OpDesc]:
    """Return operations that read and write images rather than compute."""
    image, rows = f32(batch, 64, size, size), f32(batch * size, 1000)
    return [
        Eltwise(image, image, "relu"),
        Eltwise(image, image, "tanh"),
        Binary(image, image, image, "add"),
        Sum((image, image), image),
        Softmax(rows, rows, 1),
        Lrn(image, image, 5, 1e-4, 0.75, 1.0),
        BatchNormalization(image, image, 1e-5),
        Pooling(image, f32(batch, 64, size // 2, size // 2), "max", (2, 2), (2, 2), (0, 0), (0, 0), (0, 0)),
        Reduction(image, f32(batch, 64, 1, 1), "mean"),
        Reduction(image, f32(1, 64, size, size), "sum"),
        Reorder(image, image.with_tag("acdb")),
    ]


def measured(pd: PrimitiveDesc, engine: Engine, cache: PrimitiveProvider) -> float:
    """Return the least time of an execution on one thread, in nanoseconds."""
    stream, primitive = Stream(engine), Primitive(pd, engine, cache)
    memories = {arg: Memory(md, engine) for arg, md in pd.memories().items()}
    for memory in memories.values():
        with memory.map() as content:
            np.frombuffer(content, np.float32)[:] = 0.5
        memory.unmap()
    times: list[float] = []
    while len(times) < ROUNDS and sum(times) < MOST_NS:
        begin = time.perf_counter_ns()
        primitive.execute(stream, memories)
        times.append(time.perf_counter_ns() - begin)
    return min(times)


def main() -> None:
    """Print estimated and measured times of what is made for speed, and how far references are off."""
    engine, lines = Engine("cpu"), []
    ratios: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home) as store:
        cache = PrimitiveProvider(256, store)
        for op in problems():
            offered = primitive_descs(op, PrimitiveAttr(), engine.target)
            for pd in (offered[0], offered[-1]):
                estimate, time_ns = nanoseconds(pd), measured(pd, engine, cache)
                is_reference = pd.impl_name().startswith(REFERENCE)
                ratios[is_reference].append(estimate / time_ns)
                if not is_reference:
                    lines.append(_line(pd, estimate, time_ns))
        store.down()
    for name, found in (("made for speed", ratios[False]), ("references", ratios[True])):
        near = sum(1 / FACTOR <= ratio <= FACTOR for ratio in found)
        lines.append(
            f"{name}: {min(found):.2f} to {max(found):.2f}, right to a factor of {FACTOR:g}: {near} of {len(found)}"
        )
    record("Estimated to measured time on one thread", lines)


def _line(pd: PrimitiveDesc, estimate: float, time_ns: float) -> str:
    algorithm = getattr(pd.op, "algorithm", "")
    dims = " ".join("x".join(map(str, md.dims)) for md in list(pd.op.memories().values())[:2])
    what = f"{pd.impl_name()} {algorithm}".rstrip()
    return f"{what} of {dims}: {estimate / 1e3:.0f} us, {time_ns / 1e3:.0f} us, ratio {estimate / time_ns:.2f}"


if __name__ == "__main__":
    arguments(__doc__)
    main()
