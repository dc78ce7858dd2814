"""Constant scales and zero points: part of the key, no argument, and in the memory of each engine once a resource."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Reorder
from poolrt.workers.desc import Arg, Eltwise, Matmul, MemoryDesc, PrimitiveAttr, Quantisation, scales_of
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.resource_mapper import ResourceMapper
from poolrt.workers.implementations.primitive_desc import (
    UnsupportedPrimitive,
    implementations,
    primitive_desc,
    primitive_descs,
)
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.streams.stream import Stream
from tests.workers import compiled

from . import constants

SRC, DST = MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "s8", "ba")
SCALES, POINT = (0.5, 2.0, 0.25), 7
ATTR = PrimitiveAttr(scales=(Quantisation(Arg.SRC, 2, SCALES),), zero_points=(Quantisation(Arg.DST, 0, (POINT,)),))


def test_a_primitive_with_constants_needs_no_arguments_for_them(store: CacheStore) -> None:
    cache = compiled.cache(4, store)
    values = np.random.default_rng().integers(-20, 20, (2, 3)).astype(np.float32)
    # Given two engines that execute one primitive
    for source in ("created", "memory"):
        engine = Engine("cpu")
        iface = Reorder.PrimitiveDesc(engine, SRC, DST, attr=ATTR)
        assert set(iface.pd.memories()) == {Arg.SRC, Arg.DST}
        assert iface.query("exec_arg_md", scales_of(Arg.SRC)).nbytes == 0
        src, dst = Memory(SRC, engine), Memory(DST, engine)
        src.numpy()[...] = values
        primitive = iface.create(cache)
        primitive.execute(Stream(engine), {Arg.SRC: src, Arg.DST: dst})
        assert primitive.source == source
        assert dst.numpy().tolist() == np.rint(values * np.array(SCALES, np.float32) + POINT).tolist()


def test_constants_lie_once_in_the_memory_of_each_engine_for_all_equal_primitives(store: CacheStore) -> None:
    pd = primitive_desc(Reorder(SRC, DST), ATTR, cpu_target())
    first, second = (compiled.cache(4, store).fetch(pd)[0] for _ in range(2))
    assert struct.pack("<3f", *SCALES) in first.entry.tables
    assert struct.pack("<i", POINT) in first.entry.tables

    def tables(mapper: ResourceMapper, cached: Any) -> set[int]:
        places = [v for launch in mapper.get(cached).launches for where, v in launch.args if where == "t"]
        return {table.address for table, _ in places}

    mappers = [ResourceMapper(Engine("cpu")) for _ in range(2)]
    here, there = (tables(mapper, first) | tables(mapper, second) for mapper in mappers)
    assert len(here) == len(there) == 1
    assert here != there


def test_100_equal_convolutions_have_one_set_of_constants(store: CacheStore) -> None:
    engine, cache = Engine("cpu"), compiled.cache(4, store)
    made = constants.convolutions(engine, cache)
    stream = Stream(engine)
    assert all(constants.compute(primitive, stream) for primitive in (made[0], made[-1]))
    places, nbytes = constants.constant_bytes(made)
    assert places == 1
    assert 4 * constants.CHANNELS < nbytes < 8 * constants.CHANNELS
    # They are there for as long as one of the primitives is
    del made[1:]
    assert len(engine.resources.values()) == 1
    assert constants.compute(made[0], stream)
    made.clear()
    assert engine.resources.values() == []


def test_constants_are_in_the_key() -> None:
    def key(*scales: Any) -> object:
        attr = PrimitiveAttr(scales=(Quantisation(Arg.SRC, 2, scales),))
        assert decode(PrimitiveAttr, encode(attr)) == attr
        return primitive_key(primitive_desc(Reorder(SRC, DST), attr, cpu_target()))

    wanted = key(0.1, 1.0, 0.0)
    assert key(np.float32(0.1), 1, -0.0) == wanted
    assert len({wanted, key(0.1, 1.0, 1e-30), key(0.1, 0.0, 1.0), key()}) == 4


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("scales", (1.0, float("nan")), "scales: expect values that a float32 holds, got nan"),
        ("scales", (1e39,), "scales: expect values that a float32 holds"),
        ("zero_points", (0.5,), "zero_points: expect values that an int32 holds, got 0.5"),
        ("zero_points", (1 << 31,), "zero_points: expect values that an int32 holds"),
        ("zero_points", (float("nan"),), "zero_points: expect values that an int32 holds"),
    ],
)
def test_values_that_the_type_does_not_have_are_refused(name: str, values: tuple[float, ...], why: str) -> None:
    fields: dict[str, Any] = {name: (Quantisation(Arg.SRC, 2, values),)}
    with pytest.raises(ValueError, match=why):
        PrimitiveAttr(**fields)


def test_too_few_values_are_refused_by_every_implementation() -> None:
    left, right, dst = MemoryDesc((4, 8), "u8"), MemoryDesc((8, 5), "s8"), MemoryDesc((4, 5), "s32")
    attr = PrimitiveAttr(zero_points=(Quantisation(Arg.DST, 2, (1, 2, 3)),))
    with pytest.raises(UnsupportedPrimitive) as error:
        primitive_desc(Matmul(left, right, None, dst), attr, cpu_target())
    why = "zero_points: expect 5 values for argument 17 with mask 0x2, got 3"
    # All but the one for half precision, which is not asked
    assert str(error.value).count(why) == len(implementations("matmul", "cpu")) - 1
    with pytest.raises(ValueError, match=r"Quantisation\.values: expected float, got '1'"):
        decode(Quantisation, [1, 0, ["1"]])


def test_implementations_without_scales_leave_constants_to_those_with() -> None:
    md = MemoryDesc((4, 16), "f32")
    attr = PrimitiveAttr(scales=(Quantisation(Arg.DST, 0, (2.0,)),))
    assert [pd.impl_name() for pd in primitive_descs(Eltwise(md, md, "relu"), attr, cpu_target())] == ["ref:eltwise"]
