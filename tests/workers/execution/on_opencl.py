"""Resources on OpenCL engines, in a process of its own: prints what came of them as JSON. Arguments: HOME."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrt.cachestore import CacheStore
from poolrt.workers import Arg, Engine, Memory, MemoryDesc, PrimitiveAttr, Quantisation, Reorder, Stream
from poolrt.workers.engines import opencl_program as realize
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.execution.resource_mapper import ResourceMapper
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers import compiled
from tests.workers.execution import constants
from tests.workers.execution.data import DATA, kinds_reached

if TYPE_CHECKING:
    import pyopencl as cl  # when an engine has been made: it is the one that decides how

SRC, DST = MemoryDesc((3, 5), "f32"), MemoryDesc((3, 5), "s8", "ba")
SCALES, POINT = (0.5, 2.0, 0.25), 3
ATTR = PrimitiveAttr(scales=(Quantisation(Arg.SRC, 1, SCALES),), zero_points=(Quantisation(Arg.DST, 0, (POINT,)),))


def count_realized() -> Counter[int]:
    """Count from now on how many programs are made of binaries, by context."""
    counted: Counter[int] = Counter()
    original = realize.realize_program

    def counting(context: cl.Context, *args: Any, **named: Any) -> cl.Program:
        counted[context.int_ptr] += 1
        return original(context, *args, **named)

    realize.realize_program = counting
    return counted


def computes(iface: PrimitiveDescIface, cache: PrimitiveProvider) -> bool:
    """Execute on fresh values, without arguments for the constants; return whether the result is right."""
    values = np.random.default_rng().integers(-20, 20, SRC.dims).astype(np.float32)
    engines = iface.query("reorder_src_engine"), iface.query("reorder_dst_engine")
    src, dst = (Memory(md, engine) for md, engine in zip((SRC, DST), engines, strict=True))
    src.map()
    src.numpy()[...] = values
    src.unmap()
    stream = Stream(iface.engine)
    iface.create(cache).execute(stream, {Arg.SRC: src, Arg.DST: dst})
    stream.wait()
    dst.map()
    wanted = np.rint(values * np.array(SCALES, np.float32)[:, None] + POINT)
    return bool((dst.numpy() == wanted).all())


def tables(mapper: ResourceMapper, cached: Any) -> set[int]:
    """Return the buffers of the device that the constants of a primitive lie in."""
    args = [argument for launch in mapper.get(cached).launches for argument in launch.args]
    return {value[0].int_ptr for where, value in args if where == "t"}


def main(home: str) -> None:
    """Execute one primitive on two engines of a device, alone and nested in a reorder from the host."""
    counted = count_realized()
    with CacheStore.connect(home=home) as store:
        cache = compiled.cache(16, store)
        cpu, engines = Engine("cpu"), [Engine("opencl"), Engine("opencl")]
        right, realized = list[bool](), list[int]()
        for engine in engines:
            for _ in range(2):
                within, between = Reorder.PrimitiveDesc(engine, SRC, DST, attr=ATTR), (cpu, SRC, engine, DST)
                right += [computes(within, cache), computes(Reorder.PrimitiveDesc(*between, attr=ATTR), cache)]
                # One kernel, used by both
                realized.append(counted[engine.opencl.context.int_ptr])
        pd = Reorder.PrimitiveDesc(cpu, SRC, engines[0], DST, attr=ATTR).pd
        outer, inner = cache.fetch(pd)[0], cache.fetch(pd.nested()[0])[0]
        found: dict[str, object] = {"right": right, "realized": realized}
        found["nested"] = [outer.nested[0] is inner, pd.nested()[0].impl_name()]
        mappers = [ResourceMapper(engine) for engine in engines]
        here, there = (tables(mapper, outer) for mapper in mappers)
        found["shared"] = [here == tables(mappers[0], inner), len(here), here.isdisjoint(there)]
        found["data"] = kinds_reached(outer) <= DATA
        resource = weakref.ref(mappers[0].get(inner))
        del mappers
        gc.collect()
        found["gone"] = resource() is None
        made = constants.convolutions(engines[0], cache)
        stream = Stream(engines[0])
        computed = [constants.compute(primitive, stream) for primitive in (made[0], made[-1])]
        found["convolutions"] = [*computed, *constants.constant_bytes(made)]
        del made
        gc.collect()
        found["released"] = [len(each.resources.values()) for each in engines]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
