"""Primitives made of others on an engine, in a process of its own: prints what came of them as JSON. Arguments: KIND HOME.

For each of an inner product, a convolution and an LSTM: what was created, who shares it, whether scratch memory of the
user's is enough and nothing else is written, and whether many threads get right results at once.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from poolrt.cachestore import CacheStore, CreationFailed
from poolrt.workers import (
    Arg,
    Convolution,
    Engine,
    InnerProduct,
    Lstm,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    Stream,
    StreamAttr,
)
from poolrt.workers.desc import Eltwise, OpDesc
from poolrt.workers.engines.target import Target
from poolrt.workers.execution.arguments import describe_scratchpad, scratchpad_nbytes
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.execution.resource_mapper import ResourceMapper
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc, primitive_descs
from poolrt.workers.implementations.program import NestedLaunch, Program
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.references import pack, results, unpack
from tests.workers import compiled
from tests.workers.implementations.reference.drawing import arguments
from tests.workers.primitives.crowd import BROKEN, Described

#: Error of a result of about 1.
ABSOLUTE: Final = 1e-5
#: What lies behind scratch memory, and how much of it.
POISON: Final = 0xA7
GUARD: Final = 4096
THREADS: Final = 8
TIMES: Final = 4


def md(*dims: int, tag: str = "") -> MemoryDesc:
    """Return a descriptor of f32."""
    return MemoryDesc(dims, "f32", tag)


OPERATIONS: Final[dict[str, OpDesc]] = {
    "inner_product": InnerProduct(md(6, 8, 3, 2, tag="aBcd4b"), md(20, 8, 3, 2, tag="any"), md(20), md(6, 20)),
    "convolution": Convolution(
        md(2, 8, 5, 6, tag="acdb"), md(12, 8, 3, 3), md(12), md(2, 12, 5, 6), (1, 1), (0, 0), (1, 1), (1, 1)
    ),
    "lstm": Lstm(md(4, 5, 16), None, None, md(1, 1, 16, 4, 16, tag="any"), md(1, 1, 16, 4, 16, tag="any"),
                 md(1, 1, 4, 16), md(4, 5, 16), md(1, 1, 5, 16), md(1, 1, 5, 16)),
}  # fmt: skip


class Problem:
    """Arguments of a primitive and what must come of them, another for each seed."""

    def __init__(self, pd: PrimitiveDesc, engine: Engine, seed: int) -> None:
        self._written = pd.op.outputs()
        given = arguments(pd.op, pd.attr, seed, -0.5, 0.5)
        self._wanted = results(pd.op, pd.attr, given)
        self.args = {arg: Memory(desc, engine) for arg, desc in pd.memories().items()}
        for arg, values in given.items():
            _fill(self.args[arg], pack(values, self.args[arg].desc))

    def computes(self, primitive: Primitive, stream: Stream, more: Mapping[int, Memory] | None = None) -> bool:
        """Execute, and return whether all results are right."""
        for arg in self._written:
            _fill(self.args[arg], np.full(self.args[arg].desc.nbytes // 4, np.nan, np.float32))
        primitive.execute(stream, {**self.args, **(more or {})})
        stream.wait()
        return all(
            np.allclose(unpack(_content(self.args[arg]).view(np.float32), self.args[arg].desc), want, 0.0, ABSOLUTE)
            for arg, want in self._wanted.items()
        )


def _fill(memory: Memory, values: Any) -> None:
    np.frombuffer(memory.map(), np.uint8)[: values.nbytes] = values.view(np.uint8).reshape(-1)
    memory.unmap()


def _content(memory: Memory) -> Any:
    found = np.frombuffer(memory.map(), np.uint8).copy()
    memory.unmap()
    return found


def nested_of(op: OpDesc, attr: PrimitiveAttr, target: Target) -> PrimitiveDesc:
    """Return the primitive descriptor of the implementation that is made of others."""
    return next(pd for pd in primitive_descs(op, attr, target) if pd.impl_name() == "nested:matmul")


def report_of(op: OpDesc, engine: Engine, store: CacheStore) -> dict[str, object]:
    """Create a primitive after those nested in it, compute with it, and return facts of all that."""

    def creations() -> int:
        return int(store.stats()["creations"])

    cache = PrimitiveProvider(64, store, compiled.creator().create)
    pd = nested_of(op, PrimitiveAttr(), engine.target)
    begin = creations()
    inner = [cache.fetch(one)[0] for one in pd.nested()]
    parts = creations()
    primitive = Primitive(pd, engine, cache)
    whole = creations()
    cached = cache.fetch(pd)[0]
    bring = replace(pd, attr=PrimitiveAttr(scratchpad_mode="user"))
    user = Primitive(bring, engine, cache)
    return {
        "kinds": [one.op.kind for one in pd.nested()],
        "created": [parts - begin, whole - parts, creations() - whole],
        "source": primitive.source,
        "shared": [a is b for a, b in zip(cached.nested, inner, strict=True)],
        "right": Problem(pd, engine, 1).computes(primitive, Stream(engine)),
        "covers": describe_scratchpad(bring).nbytes >= max(scratchpad_nbytes(one) for one in pd.nested()),
        "user": brought(bring, user, engine),
        "resources": resources(pd, bring, engine, store),
        "wrong": side_by_side(pd, primitive, engine),
    }


def brought(pd: PrimitiveDesc, primitive: Primitive, engine: Engine) -> list[bool]:
    """Execute on scratch memory of the user's; return whether results are right and what lies behind it is as it was."""
    desc = describe_scratchpad(pd)
    whole, scratchpad = Memory(MemoryDesc((desc.nbytes + GUARD,), "u8"), engine), Memory(desc, engine)
    _fill(whole, np.full(desc.nbytes + GUARD, POISON, np.uint8))
    scratchpad.set_data_handle(whole.get_data_handle())
    right = Problem(pd, engine, 2).computes(primitive, Stream(engine), {int(Arg.SCRATCHPAD): scratchpad})
    found = _content(whole)
    return [right, bool((found[: desc.nbytes] != POISON).any()), bool((found[desc.nbytes :] == POISON).all())]


def resources(pd: PrimitiveDesc, other: PrimitiveDesc, engine: Engine, store: CacheStore) -> bool:
    """Return whether nested primitives that two outer ones have in common, parsed twice, are realized once by a mapper."""
    mapper = ResourceMapper(engine)
    first, second = (PrimitiveProvider(64, store, compiled.creator().create).fetch(one)[0] for one in (pd, other))
    for outer in (first, second):
        mapper.get(outer)
    pairs = list(zip(first.nested, second.nested, strict=True))
    return all(a is not b and mapper.get(a) is mapper.get(b) for a, b in pairs)


def side_by_side(pd: PrimitiveDesc, primitive: Primitive, engine: Engine) -> list[str]:
    """Execute one primitive from many threads, each on several streams, one of which they share; return what was wrong.

    On the CPU another one computes on an asynchronous threadpool, which they share too.
    """
    shared, wrong, meeting = Stream(engine), list[str](), threading.Barrier(THREADS, timeout=60)
    attr = StreamAttr(engine.kind)
    pool = ThreadsPool(2, asynchronous=True)
    if engine.kind == "cpu":
        attr.set_threadpool(pool)

    def compute(number: int) -> None:
        try:
            streams = [shared, Stream(engine), Stream(engine, attr)]
            problem = Problem(pd, engine, 10 + number)
            meeting.wait()
            for _ in range(TIMES):
                wrong.extend(f"thread {number}" for stream in streams if not problem.computes(primitive, stream))
        except Exception as error:  # noqa: BLE001 - reported by the test
            wrong.append(repr(error))

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(THREADS)]
    with pool:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    return [*wrong, *(f"{thread.name} has not ended" for thread in threads if thread.is_alive())]


class Nesting(Described):
    """An implementation whose program, which a test says, has nested primitives."""

    nests = True


def failing(engine: Engine, store: CacheStore, name: str) -> dict[str, object]:
    """Ask for a primitive whose nested one fails at first; return the error, and what comes of asking again."""
    cache, op = PrimitiveProvider(8, store, compiled.creator().create), Eltwise(md(25), md(25), "relu")
    sound = primitive_desc(op, PrimitiveAttr(), engine.target)
    flawed = Described(f"inner:{name}", lambda time: BROKEN if time == 1 else sound.program(), engine.kind)
    inner = replace(sound, implementation=flawed)
    places = ((int(Arg.SRC), ("m", (int(Arg.SRC), 0))), (int(Arg.DST), ("m", (int(Arg.DST), 0))))
    program = Program((), (NestedLaunch(0, places),), nested=(inner,))
    outer = replace(sound, implementation=Nesting(f"outer:{name}", lambda _: program, engine.kind))
    try:
        cache.fetch(outer)
    except CreationFailed as error:
        said = str(error)
    else:
        said = "nothing"
    left = [cache.cache.get(primitive_key(one)) is None for one in (outer, inner)]
    primitive = Primitive(outer, engine, cache)
    right = Problem(outer, engine, 3).computes(primitive, Stream(engine))
    return {"said": said, "left": left, "again": [primitive.source, cache.fetch(outer)[1]], "right": right}


def main(kind: str, home: str, name: str) -> None:
    """Tell of every operation, and of a failure; ``name`` is new to the store."""
    engine, found = Engine(kind), dict[str, object]()
    # A namespace for each: which products of different sizes have equal kernels, and are derived, depends on the ISA level
    for each, op in OPERATIONS.items():
        with CacheStore.connect(home=home, namespace=each) as store:
            found[each] = report_of(op, engine, store)
    with CacheStore.connect(home=home, namespace=name) as store:
        found["failing"] = failing(engine, store, name)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
