"""Equal convolutions with constant scales, as a user makes them, and what their constants take."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from poolrt.workers import Arg, Convolution, Engine, Memory, MemoryDesc, PrimitiveAttr, Quantisation, Stream
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.primitives.provider import PrimitiveProvider

COUNT: Final = 100
CHANNELS: Final = 4096
SCALES: Final = tuple(float(number % 7) for number in range(CHANNELS))
SRC: Final = MemoryDesc((1, 1, 1, 1), "f32")
WEIGHTS: Final = MemoryDesc((CHANNELS, 1, 1, 1), "f32")
DST: Final = MemoryDesc((1, CHANNELS, 1, 1), "f32")


def convolutions(engine: Engine, cache: PrimitiveProvider) -> list[Primitive]:
    """Return equal primitives, each described and created by itself."""
    made = []
    for _ in range(COUNT):
        attr = PrimitiveAttr(scales=(Quantisation(Arg.WEIGHTS, 1, SCALES),))
        window = ((1, 1), (0, 0), (0, 0), (0, 0))
        made.append(Convolution.PrimitiveDesc(engine, SRC, WEIGHTS, None, DST, *window, attr=attr).create(cache))
    return made


def compute(primitive: Primitive, stream: Stream) -> bool:
    """Execute one; return whether the result is right."""
    args = {arg: Memory(desc, primitive.engine) for arg, desc in ((1, SRC), (33, WEIGHTS), (17, DST))}
    for arg, value in ((1, 2.0), (33, 3.0)):
        args[arg].map()
        args[arg].numpy()[...] = value
        args[arg].unmap()
    primitive.execute(stream, args)
    stream.wait()
    args[17].map()
    return bool((args[17].numpy().ravel() == 6.0 * np.array(SCALES, np.float32)).all())


def constant_bytes(primitives: list[Primitive]) -> tuple[int, int]:
    """Return in how many places the constants of primitives are, and the bytes of these."""
    places: dict[int, Any] = {}
    for primitive in primitives:
        launches = primitive.resource.launches
        found = [value[0] for launch in launches for where, value in launch.args if where == "t"]
        places |= {getattr(table, "int_ptr", None) or id(table): table for table in found}
    return len(places), sum(_nbytes(table) for table in places.values())


def _nbytes(table: Any) -> int:
    return int(table.size) if hasattr(table, "size") else ctypes.sizeof(table._hold)
