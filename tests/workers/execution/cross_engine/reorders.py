"""Reorders between engines, in a process of its own: prints what came of them as JSON.

Arguments: HOME SEED PARTS. Each route is tried with one part of the data types, another one from route to route.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
import weakref
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.cachestore import CacheStore
from poolrt.workers import Arg, Engine, Memory, MemoryDesc, PostOp, PrimitiveAttr, Quantisation, Reorder, Stream
from poolrt.workers.execution.arguments import describe_arguments
from poolrt.workers.execution.cross_engine.primitive import CrossEnginePrimitive
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.references import assert_close, results
from tests.references.layout import between, pack, unpack
from tests.workers import compiled
from tests.workers.desc.layouts import placed
from tests.workers.implementations.reference.drawing import LAST_PLACE, TYPES
from tests.workers.implementations.reference.drawing import arguments as drawn
from tests.workers.refusals import refusals

from . import streams as crossing_streams

#: What lies in memory before it is written.
_BEFORE: Final = 0x4D
SIZES: Final = (1, 2, 3, 5, 16, 17)


def attributes(rng: random.Random, src: MemoryDesc, dst: MemoryDesc) -> PrimitiveAttr:
    """Return random attributes of every kind, each of them not always."""
    src1 = placed(MemoryDesc(dst.dims, "f32"), "mixed", rng)
    chain = [PostOp("binary", rng.choice(("add", "mul")), src1=src1), PostOp.accumulate(0.5, 1)]
    chain = [step for step in (PostOp("eltwise", "linear", 2.0, -1.5), *chain) if rng.random() < 0.4]

    def some(values: tuple[float, ...]) -> tuple[Quantisation, ...]:
        chosen = [Quantisation(arg, rng.randrange(1 << src.ndims)) for arg in (Arg.SRC, Arg.DST) if rng.random() < 0.4]
        counts = [item.desc(src, "f32").elements if rng.random() < 0.5 else 0 for item in chosen]
        return tuple(replace(q, values=tuple(rng.choices(values, k=n))) for q, n in zip(chosen, counts, strict=True))

    mode = rng.choice(("library", "user"))
    return PrimitiveAttr(tuple(chain), some((0.5, 1.0, 4.0)), some((-3, 0, 7)), scratchpad_mode=mode)


def fill(memory: Memory, content: NDArray[Any] | None) -> None:
    """Write bytes, or what stands for no value."""
    if memory.desc.nbytes:
        memory.map()[:] = bytes([_BEFORE]) * memory.desc.nbytes if content is None else content.tobytes()
        memory.unmap()


def compute(iface: PrimitiveDescIface, cache: PrimitiveProvider, seed: int) -> str:
    """Execute on fresh values and compare with NumPy; return where the primitive came from."""
    pd = iface.pd
    given = drawn(pd.op, pd.attr, seed)
    engines = {Arg.SRC: iface.query("reorder_src_engine"), Arg.DST: iface.query("reorder_dst_engine")}
    engines[Arg.SCRATCHPAD] = iface.query("scratchpad_engine")
    memories: dict[int, Memory] = {}
    before = b""
    for arg, md in describe_arguments(pd).items():
        memories[arg] = Memory(md, engines.get(Arg(arg) if arg in engines else Arg.SRC_1, iface.engine))
        content = pack(given[arg], md) if arg in given else None
        if arg == Arg.DST and content is not None and between(content, md).size:
            # Other bytes between the elements than those that the source of a copy has
            filler = np.frombuffer(bytes([_BEFORE]) * md.nbytes, content.dtype)
            content = np.where(pack(np.ones(md.dims, content.dtype), md) == 0, filler, content)
        fill(memories[arg], content)
    before = bytes(memories[Arg.DST].map())
    memories[Arg.DST].unmap()
    primitive, stream = iface.create(cache), Stream(iface.engine)
    primitive.execute(stream, memories)
    stream.wait()
    md = pd.op.memories()[Arg.DST]
    after = bytes(memories[Arg.DST].map())
    memories[Arg.DST].unmap()
    assert_close(unpack(after, md), results(pd.op, pd.attr, given)[Arg.DST], md.dtype, LAST_PLACE.get(md.dtype, 0.0))
    if md.strides:
        assert between(after, md).tobytes() == between(before, md).tobytes(), "what lies between elements has changed"
    else:
        assert not between(after, md).any(), "the padding holds something"
    return primitive.source


def right(
    engines: tuple[Engine, Engine, Engine],
    types: tuple[str, ...],
    parts: int,
    cache: PrimitiveProvider,
    rng: random.Random,
) -> dict[str, list[str]]:
    """Return the implementations that were right for each route and source type; all of them are tried."""
    cpu, gpu, other = engines
    found: dict[str, list[str]] = {}
    routes = {"there": (cpu, gpu), "back": (gpu, cpu), "across": (gpu, other)}
    for part, (name, (source, target)) in enumerate(routes.items()):
        for number, dtype in list(enumerate(types))[part % parts :: parts]:
            dims = tuple(rng.choice(SIZES) for _ in range(rng.choice((1, 2, 3, 4))))
            src = placed(MemoryDesc(dims, dtype), rng.choice(("plain", "mixed")), rng)
            # Every other one in another type, and some just copied
            dst = MemoryDesc(dims, dtype if number % 2 else rng.choice(TYPES))
            dst = placed(dst, rng.choice(("plain", "mixed")), rng)
            attr = attributes(rng, src, dst)
            if number % 4 == 3:
                dst, attr = src, PrimitiveAttr()
            iface = Reorder.PrimitiveDesc(source, src, target, dst, attr=attr)
            while True:
                try:
                    compute(iface, cache, rng.randrange(1 << 20))
                except Exception as error:
                    raise AssertionError(f"{name} {iface.impl_name()} {src} to {dst} with {attr}") from error
                found.setdefault(name, []).append(f"{dtype} {iface.impl_name()}")
                if not iface.next_impl():
                    break
    return found


def side_by_side(cpu: Engine, gpu: Engine, cache: PrimitiveProvider) -> list[str]:
    """Send tensors there and back from many threads, half of them on one stream; return what went wrong.

    The threads let the device's memory go before it has been used.
    """
    plain, blocked = MemoryDesc((5, 33), "f32"), MemoryDesc((5, 33), "f64", "bA4a")
    there = Reorder.PrimitiveDesc(cpu, plain, gpu, blocked).create(cache)
    back = Reorder.PrimitiveDesc(gpu, blocked, cpu, plain).create(cache)
    shared, wrong = Stream(gpu), list[str]()

    def send(number: int) -> None:
        try:
            stream = Stream(gpu) if number % 2 else shared
            for turn in range(5):
                src, dst = Memory(plain, cpu), Memory(plain, cpu)
                src.numpy()[...] = 10 * number + turn
                middle = Memory(blocked, gpu)
                there.execute(stream, {Arg.SRC: src, Arg.DST: middle})
                back.execute(stream, {Arg.SRC: middle, Arg.DST: dst})
                del src, middle
                stream.wait()
                if not (dst.numpy() == 10 * number + turn).all():
                    wrong.append(f"thread {number}")
        except Exception as error:  # noqa: BLE001 - reported by the test
            wrong.append(repr(error))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [*wrong, *(f"{thread.name} has not ended" for thread in threads if thread.is_alive())]


def refused(cpu: Engine, gpu: Engine, cache: PrimitiveProvider) -> list[str]:
    """Return what wrong uses say."""
    src, dst = MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "f32", "ba")
    primitive = Reorder.PrimitiveDesc(cpu, src, gpu, dst).create(cache)
    args = {Arg.SRC: Memory(src, cpu), Arg.DST: Memory(dst, gpu)}
    other = Engine("opencl")
    calls: list[Any] = [
        lambda: primitive.execute(Stream(cpu), args),
        lambda: primitive.execute(Stream(gpu), {**args, Arg.SRC: Memory(src, gpu)}),
        lambda: primitive.execute(Stream(gpu), {**args, Arg.DST: Memory(dst, cpu)}),
        lambda: primitive.execute(Stream(gpu), {**args, Arg.DST: Memory(dst, other)}),
        lambda: Reorder.PrimitiveDesc(gpu, src, dst, "cpu", "opencl"),
        lambda: Reorder.PrimitiveDesc(gpu, src, "cpu", dst),  # type: ignore[call-overload]
    ]
    return refusals(calls)


def queries(cpu: Engine, gpu: Engine) -> dict[str, object]:
    """Return what primitive descriptors tell of the engines and of the scratchpad, and whether these are right."""
    src, dst = MemoryDesc((2, 3), "f32"), MemoryDesc((2, 3), "u8", "ba")
    found: dict[str, object] = {}
    for source, target in ((cpu, gpu), (gpu, cpu)):
        iface = Reorder.PrimitiveDesc(
            source, src, dst_engine=target, dst=dst, attr=PrimitiveAttr(scratchpad_mode="user")
        )
        while True:
            asked = [iface.query(f"{what}engine") for what in ("reorder_src_", "reorder_dst_", "scratchpad_", "")]
            found[f"{source.kind} {iface.impl_name()}"] = [
                asked[:2] == [source, target], asked[2].kind, asked[3] is gpu, iface.scratchpad_desc().nbytes > 0,
            ]  # fmt: skip
            if not iface.next_impl():
                break
    within = Reorder.PrimitiveDesc(gpu, src, dst)
    assert within.query("reorder_src_engine") is within.query("reorder_dst_engine") is gpu
    return found


def again(cache: PrimitiveProvider) -> list[object]:
    """Create, destroy the engines, and ask for the same with others."""
    src, dst = MemoryDesc((7, 9), "s32"), MemoryDesc((7, 9), "f16", "ba")
    found: list[object] = []
    keys = set()
    for _ in range(2):
        cpu, gpu = Engine("cpu"), Engine("opencl")
        iface = Reorder.PrimitiveDesc(cpu, src, gpu, dst)
        keys.add(primitive_key(iface.pd).canonical)
        found.append(compute(iface, cache, 1))
        primitive = iface.create(cache)
        gone: list[weakref.ref[Any]] = [weakref.ref(gpu), weakref.ref(cpu), weakref.ref(primitive.resources)]
        assert isinstance(primitive, CrossEnginePrimitive)
        del cpu, gpu, iface, primitive
        gc.collect()
        found.append([reference() is None for reference in gone])
    return [*found, len(keys)]


def main(home: str, seed: int, parts: int) -> None:
    """Try everything."""
    rng = random.Random(seed)
    with CacheStore.connect(home=home) as store:
        cache = compiled.cache(512, store)
        found: dict[str, object] = {"again": again(cache)}
        engines = cpu, gpu, other = Engine("cpu"), Engine("opencl"), Engine("opencl")
        found["queries"] = queries(cpu, gpu)
        found["side by side"] = side_by_side(cpu, gpu, cache)
        found["refused"] = refused(cpu, gpu, cache)
        found["streams"] = crossing_streams.tried(engines, cache)
        found["right"] = right(engines, TYPES, parts, cache, rng)
        # Where device and host have memory of their own
        gpu.opencl.shares_memory = other.opencl.shares_memory = False
        found["side by side"] = [found["side by side"], side_by_side(cpu, gpu, cache)]
        found["apart"] = right(engines, TYPES[::4], parts, cache, rng)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
