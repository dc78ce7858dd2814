"""The constants of an executor: reordered once into the layout of a plan, however often the graph is compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.graph.constant import Constant
from poolrt.workers.desc import Arg, MemoryDesc
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.nesting import can_wait


class ConstantKeys:
    """Keys that distinguish constants, of a graph and of what passes make of it.

    Passes make the same constants again when the graph is compiled for other shapes. The key of an array of the graph is
    its place in memory, that of any other its content, so that large ones need not be read.
    """

    def __init__(self, given: Iterable[Constant]) -> None:
        """``given`` are the constants of the graph as it was built, which outlive this."""
        self._roots = frozenset(id(_root(constant.array)) for constant in given)

    def key(self, constant: Constant) -> tuple[Hashable, ...]:
        """Return the key of a constant."""
        array = constant.array
        known = id(_root(array)) in self._roots
        where = _place(array) if known else hashlib.sha256(array.tobytes()).digest()
        scale = None if constant.scale is None else constant.scale.tobytes()
        return where, array.shape, array.dtype.str, scale, constant.dtype


def store_constant(constant: Constant) -> Memory:
    """Return a constant in the host's memory, row-major."""
    found = _bytes(constant.nbytes)
    constant.write_into(np.frombuffer(found.map(), np.uint8))
    return found


def reorder_constant(constant: Constant, reorder: Primitive, stream: Stream) -> Memory:
    """Return a constant in the host's memory, in the layout that a reorder on the stream's engine writes."""
    forms = reorder.pd.memories()
    source, destination = (Memory(forms[arg], stream.engine) for arg in (Arg.SRC, Arg.DST))
    constant.write_into(np.frombuffer(source.map(), np.uint8))
    source.unmap()
    if stream.engine.kind == "cpu" and not can_wait(stream.pool):
        stream = Stream(stream.engine)  # in a task of the stream's pool: on its thread
    reorder.execute(stream, {Arg.SRC: source, Arg.DST: destination})
    stream.wait()
    return _copy(destination, None)


def copy_to_engine(constant: Memory, engine: Engine) -> Memory:
    """Return a copy of bytes in the host's memory on a device that does not work on it."""
    return _copy(constant, engine)


def _copy(source: Memory, engine: Engine | None) -> Memory:
    found = _bytes(source.desc.nbytes, engine)
    given, taken = source.map(), found.map()
    try:
        taken[: len(given)] = given
    finally:
        source.unmap()
        found.unmap()
    return found


def _bytes(nbytes: int, engine: Engine | None = None) -> Memory:
    """Return memory of ``nbytes`` bytes, in the host's memory unless an engine is given."""
    return Memory(MemoryDesc((nbytes,), "u8"), engine)


def _root(array: NDArray[Any]) -> NDArray[Any]:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _place(array: NDArray[Any]) -> tuple[int, tuple[int, ...]]:
    return array.__array_interface__["data"][0], array.strides
