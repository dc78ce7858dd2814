"""The constants of an executor: brought into the layout that a plan wants once, however often the graph is prepared."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.graph.constant import Constant
from poolrt.workers.desc import Arg
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.streams.stream import Stream

from .tensors import byte_memory, copy_bytes


class Identities:
    """What tells constants apart, of a graph and of what passes make of it.

    Passes make the same again when the graph is prepared for other shapes. An array of the graph's is known by its place
    in memory, any other by its content, so that large ones need not be read.
    """

    def __init__(self, given: Iterable[Constant]) -> None:
        """``given`` are the constants of the graph as it was built, which outlive this."""
        self._roots = frozenset(id(_root(constant.array)) for constant in given)

    def of(self, constant: Constant) -> tuple[Hashable, ...]:
        """Return the identity of a constant."""
        array = constant.array
        known = id(_root(array)) in self._roots
        where = _place(array) if known else hashlib.sha256(array.tobytes()).digest()
        scale = None if constant.scale is None else constant.scale.tobytes()
        return where, array.shape, array.dtype.str, scale, constant.dtype


def stored(constant: Constant) -> Memory:
    """Return a constant in the host's memory, row-major."""
    found = byte_memory(constant.nbytes)
    constant.write_into(np.frombuffer(found.map(), np.uint8))
    return found


def reordered(constant: Constant, reorder: Primitive, stream: Stream) -> Memory:
    """Return a constant in the host's memory, in the layout that a reorder on the stream's engine brings it into."""
    forms = reorder.pd.memories()
    source, destination = (Memory(forms[arg], stream.engine) for arg in (Arg.SRC, Arg.DST))
    constant.write_into(np.frombuffer(source.map(), np.uint8))
    source.unmap()
    reorder.execute(stream, {Arg.SRC: source, Arg.DST: destination})
    stream.wait()
    found = byte_memory(forms[Arg.DST].nbytes)
    copy_bytes(destination, 0, found, found.desc.nbytes)
    return found


def on_device(form: Memory, engine: Engine) -> Memory:
    """Return a copy of bytes of the host's on a device that does not work on them."""
    found = byte_memory(form.desc.nbytes, engine)
    copy_bytes(form, 0, found, form.desc.nbytes)
    return found


def _root(array: NDArray[Any]) -> NDArray[Any]:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _place(array: NDArray[Any]) -> tuple[int, tuple[int, ...]]:
    return array.__array_interface__["data"][0], array.strides
