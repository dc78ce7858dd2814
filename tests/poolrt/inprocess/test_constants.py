"""Keys of constants: equal when a graph is compiled again, different for different constants."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from poolrt.graph.constant import Constant, make_constant
from poolrt.graph.mapped_file import MappedFile
from poolrt.inprocess.constants import ConstantKeys, reorder_constant, source_form, store_constant
from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.stream import Stream

from .networks import array


def test_the_same_of_a_graphs_arrays_is_known_again_without_being_read() -> None:
    weights = make_constant(array(8, 6))
    keys = ConstantKeys([weights])
    again = Constant(weights.array, None, "f32")
    assert keys.key(again) == keys.key(weights)
    assert keys.key(again.transpose((1, 0))) == keys.key(weights.transpose((1, 0)))
    assert keys.key(weights.multiply(np.full(8, 2.0))) == keys.key(again.multiply(np.full(8, 2.0)))


def test_other_parts_views_scales_and_types_of_an_array_are_others() -> None:
    weights = make_constant(array(6, 6))
    keys = ConstantKeys([weights])
    made = [
        weights,
        weights.transpose((1, 0)),
        weights.reshape((4, 9)),
        weights.slice((0, 0), (1, 1), (3, 6)),
        weights.slice((3, 0), (1, 1), (3, 6)),
        weights.multiply(np.full(6, 2.0)),
        weights.multiply(np.full(6, 3.0)),
        Constant(weights.array, None, "bf16"),
    ]
    assert len({keys.key(constant) for constant in made}) == len(made)


def test_what_passes_made_is_known_by_its_content() -> None:
    keys = ConstantKeys([])
    assert keys.key(make_constant(array(5))) == keys.key(make_constant(array(5)))
    assert keys.key(make_constant(array(5))) != keys.key(make_constant(array(5, seed=1)))
    assert keys.key(make_constant(np.zeros((2, 3), np.int32), None)) != keys.key(
        make_constant(np.zeros((2, 3), np.float32))
    )


def test_a_constant_in_a_file_is_used_there(tmp_path: Path) -> None:
    values = np.random.default_rng().standard_normal((2, mmap.PAGESIZE // 4)).astype(np.float32)
    (tmp_path / "weights").write_bytes(values.tobytes())
    with (tmp_path / "weights").open("rb") as opened:
        file = MappedFile(opened, tmp_path / "weights")
    whole = file.part(0, file.nbytes).view(np.float32).reshape(values.shape)
    for rows, in_place in ((slice(0, 1), True), (slice(1, 2), False)):  # the second ends with the mapping
        stored = store_constant(Constant(whole[rows]))
        assert (stored.address == whole[rows].ctypes.data) == in_place
        assert bytes(stored.map()) == values[rows].tobytes()


@pytest.mark.parametrize("tag", ["Ab16a", "AB16b16a", "ba"])
def test_a_constant_is_brought_into_a_layout_from_its_own_order(
    tag: str, tmp_path: Path, cache: PrimitiveProvider
) -> None:
    random, engine = np.random.default_rng(), Engine("cpu", 0)
    stream = Stream(engine)
    for dims in ((1, 1), (17, 5), (48, 16), (592, 33), (800, 64), tuple(map(int, random.integers(1, 200, 2)))):
        values = random.standard_normal(dims).astype(np.float32)
        (tmp_path / "weights").write_bytes(bytes(4) + np.ascontiguousarray(values.T).tobytes() + bytes(mmap.PAGESIZE))
        with (tmp_path / "weights").open("rb") as opened:
            file = MappedFile(opened, tmp_path / "weights")
        in_file = file.part(4, values.nbytes).view(np.float32).reshape(dims[::-1]).T
        made, wanted = MemoryDesc(dims, "f32", tag), MemoryDesc(dims, "f32")
        planned = primitive_desc(Reorder(wanted, made), PrimitiveAttr(), engine.target)
        expected = reorder_constant(Constant(values), Primitive(planned, engine, cache), stream)
        for array_ in (in_file, np.asfortranarray(values), values[:, :]):
            constant = Constant(array_)
            form = source_form(constant, planned)
            read = constant.in_order()
            assert read is not None
            assert form.memories()[Arg.SRC] == read[1]
            found = reorder_constant(constant, Primitive(form, engine, cache), stream)
            assert bytes(found.map()) == bytes(expected.map()), (dims, tag)
            room = Memory(MemoryDesc((expected.desc.nbytes,), "u8"), None, bytearray(b"\xff" * expected.desc.nbytes))
            reorder_constant(constant, Primitive(form, engine, cache), stream, room)
            assert bytes(room.map()) == bytes(expected.map()), (dims, tag)
        # Back to row-major by NumPy: an independent reading of the simplest of the layouts.
        if tag == "ba":
            assert bytes(expected.map()) == values.T.tobytes()
