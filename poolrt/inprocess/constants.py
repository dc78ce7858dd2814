"""The constants of an executor: reordered once into the layout of a plan, however often the graph is compiled."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.graph.constant import Constant
from poolrt.graph.mapped_file import file_of
from poolrt.workers.desc import Arg, MemoryDesc, Reorder
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from poolrt.workers.memory.array_address import address_of
from poolrt.workers.memory.array_room import readable_in_place
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


def source_form(constant: Constant, planned: PrimitiveDesc) -> PrimitiveDesc:
    """Return the reorder that brings a constant into its layout: ``planned``, or one that reads the constant where it is.

    A plan that has the constant in another shape reads it row-major.
    """
    found, source = constant.in_order(), planned.memories()[Arg.SRC]
    if planned.target.engine_kind != "cpu" or found is None or found[1].dims != source.dims or found[1] == source:
        return planned
    return _reorder_from(found[1], planned)


def is_in_file(constant: Constant) -> bool:
    """Return whether a constant is row-major in a file, where kernels can read it."""
    return file_of(constant.array) is not None and _bytes_in_place(constant, constant.desc) is not None


def store_constant(constant: Constant, room: Memory | None = None) -> Memory:
    """Return a constant in the host's memory, row-major: where it is if it is in a file, else in ``room`` or new memory."""
    if is_in_file(constant):
        return Memory(MemoryDesc((constant.nbytes,), "u8"), None, _bytes_in_place(constant, constant.desc))
    memory = room or new_bytes(constant.nbytes)
    constant.write_into(np.frombuffer(memory.map(), np.uint8))
    file = file_of(constant.array)
    if file is not None:
        file.leave(constant.array)
    return memory


def reorder_constant(constant: Constant, reorder: Primitive, stream: Stream, room: Memory | None = None) -> Memory:
    """Return a constant in the host's memory, in the layout that a reorder of `source_form` on the stream's engine writes.

    It is in ``room`` if that is given and the engine works on the host's memory.
    """
    forms, engine = reorder.pd.memories(), stream.engine
    on_host = engine.kind == "cpu"
    final = room if on_host and room else new_bytes(forms[Arg.DST].nbytes)
    destination = Memory(forms[Arg.DST], engine, final.map() if on_host else None)
    if on_host and not can_wait(stream.pool):
        stream = Stream(engine)  # in a task of the stream's pool: on its thread
    reorder.execute(stream, {Arg.SRC: _source(constant, forms[Arg.SRC], engine), Arg.DST: destination})
    stream.wait()
    file = file_of(constant.array)
    if file is not None:
        file.leave(constant.array)
    return final if on_host else _copy(destination, None)


def copy_to_engine(constant: Memory, engine: Engine) -> Memory:
    """Return a copy of bytes in the host's memory on a device that does not work on it."""
    return _copy(constant, engine)


@lru_cache(maxsize=64)
def _reorder_from(form: MemoryDesc, planned: PrimitiveDesc) -> PrimitiveDesc:
    """Return a reorder from another form, else the planned one. Kept, with its key: weights of a model have few shapes."""
    try:
        return primitive_desc(Reorder(form, planned.memories()[Arg.DST]), planned.attr, planned.target, False)
    except UnsupportedPrimitive:
        return planned


def _copy(source: Memory, engine: Engine | None) -> Memory:
    found = new_bytes(source.desc.nbytes, engine)
    given, taken = source.map(), found.map()
    try:
        taken[: len(given)] = given
    finally:
        source.unmap()
        found.unmap()
    return found


def new_bytes(nbytes: int, engine: Engine | None = None) -> Memory:
    """Return memory of ``nbytes`` bytes, in the host's memory unless an engine is given."""
    return Memory(MemoryDesc((nbytes,), "u8"), engine)


def _source(constant: Constant, form: MemoryDesc, engine: Engine) -> Memory:
    """Return a constant in a form, row-major or as its array is, on an engine: where it is if kernels can read it there."""
    given = _bytes_in_place(constant, form) if engine.kind == "cpu" else None
    if given is not None:
        return Memory(form, engine, given)
    source, found = Memory(form, engine), constant.in_order()
    staged = np.frombuffer(source.map(), np.uint8)
    if found is not None and found[1] == form:
        np.copyto(staged[: constant.nbytes], found[0].reshape(-1).view(np.uint8))
    else:
        constant.write_into(staged)
    source.unmap()
    return source


def _bytes_in_place(constant: Constant, form: MemoryDesc) -> Any | None:
    """Return the bytes of a constant's array, which they keep, if these have a form and kernels can read them there.

    The buffer seems writable, and may be read-only memory.
    """
    found = constant.in_order()
    if found is None or found[1] != form:
        return None
    array, file = found[0], file_of(found[0])
    if not (readable_in_place(array) if file is None else file.holds(array)):
        return None
    buffer = (ctypes.c_char * array.nbytes).from_address(address_of(array))
    buffer.array = array  # type: ignore[attr-defined]
    return buffer


def _root(array: NDArray[Any]) -> NDArray[Any]:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _place(array: NDArray[Any]) -> tuple[int, tuple[int, ...]]:
    return array.__array_interface__["data"][0], array.strides
