"""On which streams reorders between engines are executed, and that `execute` never waits: parts of `crossing`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from poolrt.workers import Arg, Engine, Memory, MemoryDesc, PostOp, PrimitiveAttr, Reorder, Stream, StreamAttr
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.threadpools.interface import KernelFailed, ThreadpoolInterface
from poolrt.workers.threadpools.nesting import can_wait
from tests.references.layout import pack, unpack
from tests.workers.refusals import refusals
from tests.workers.threadpools.checking import CheckingPool, CheckingStream
from tests.workers.threadpools.kinds import KINDS, made, region_loop
from tests.workers.threadpools.poison import FreedMemory, poisoned

#: In the host's memory, and what becomes of it on a device: another layout and data type.
PLAIN: Final = MemoryDesc((5, 33), "f32")
BLOCKED: Final = MemoryDesc((5, 33), "f64", "bA4a")
DEVICE: Final = "opencl:cross_engine"
HOST: Final = "native:cross_engine"


class Crossings:
    """Reorders there and back, and from device to device as a sum, that one of the engines computes."""

    def __init__(self, engines: tuple[Engine, Engine, Engine], cache: PrimitiveProvider, name: str) -> None:
        self.cpu, self.gpu, self.other = engines
        self.name = name

        def created(*args: Any, attr: PrimitiveAttr | None = None) -> Primitive:
            iface = Reorder.PrimitiveDesc(*args, attr=attr)
            while iface.impl_name() != name:
                assert iface.next_impl()
            return iface.create(cache)

        self.there = created(self.cpu, PLAIN, self.gpu, BLOCKED)
        self.back = created(self.gpu, BLOCKED, self.cpu, PLAIN)
        total = PrimitiveAttr((PostOp.accumulate(1.0, 0),))
        self.across = created(self.gpu, BLOCKED, self.other, BLOCKED, attr=total)

    def source(self, number: float, block: Any = None) -> Memory:
        """Return what is reordered there."""
        memory = Memory(PLAIN, self.cpu, block)
        memory.numpy()[...] = number
        return memory

    def go(self, stream: Stream, number: float, src_block: Any = None, dst_block: Any = None) -> Memory:
        """Send numbers there and back; only the stream refers to the memories on the way."""
        middle, dst = Memory(BLOCKED, self.gpu), Memory(PLAIN, self.cpu, dst_block)
        self.there.execute(stream, {Arg.SRC: self.source(number, src_block), Arg.DST: middle})
        self.back.execute(stream, {Arg.SRC: middle, Arg.DST: dst})
        return dst


def holds(memory: Memory, number: float) -> bool:
    """Return whether every element is a number."""
    return bool((memory.numpy() == number).all())


def filled(engine: Engine, number: float) -> Memory:
    """Return a device's memory that holds a number everywhere."""
    memory = Memory(BLOCKED, engine)
    memory.map()[:] = pack(np.full(BLOCKED.dims, number), BLOCKED).tobytes()
    memory.unmap()
    return memory


def closed(engine: Engine) -> Memory:
    """Return a device's memory that the host must not read."""
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.HOST_WRITE_ONLY
    return Memory(BLOCKED, engine, cl.Buffer(engine.opencl.context, flags, BLOCKED.nbytes))


def content(memory: Memory) -> float:
    """Return the number that a device's memory holds everywhere."""
    values = unpack(bytes(memory.map()), BLOCKED)
    memory.unmap()
    assert (values == values.flat[0]).all()
    return float(values.flat[0])


def on_cpu(engine: Engine, pool: ThreadpoolInterface) -> Stream:
    """Return a stream on a threadpool, whose scratch memory holds no numbers before it is used."""
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    return CheckingStream(engine, attr)


@contextmanager
def held_up(stream: Stream) -> Iterator[None]:
    """Let a device's stream do nothing within the block."""
    import pyopencl as cl

    gate = cl.UserEvent(stream.queue.context)
    cl.enqueue_barrier(stream.queue, wait_for=[gate])
    try:
        yield
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)


def pools(crossings: Crossings) -> list[str]:
    """Go there and back on every kind of threadpool, from its tasks too; return the kinds that were right."""
    loop, right = region_loop(), []
    for kind in KINDS:
        for threads in (1, 2):
            with poisoned() as freed, made(kind, threads, loop) as pool:
                pool.least_job_ns = 0  # however short the work is, it is cut
                if _rounds(crossings, pool, freed) and _nested(crossings, pool):
                    right.append(f"{kind} {threads}")
                freed.assert_untouched()
    return right


def _rounds(crossings: Crossings, pool: ThreadpoolInterface, freed: FreedMemory) -> bool:
    found = []
    for number in range(6):
        # Only the pool refers to stream, source and the memories between
        stream = on_cpu(crossings.cpu, pool)
        found.append(crossings.go(stream, number, freed.take(PLAIN.nbytes), freed.take(PLAIN.nbytes)))
        if not pool.get_flags() & pool.ASYNCHRONOUS and not holds(found[-1], number):
            return False
    pool.wait()
    return all(holds(dst, number) for number, dst in enumerate(found))


def _nested(crossings: Crossings, pool: ThreadpoolInterface) -> bool:
    """Return whether two tasks see what they have executed as soon as that returns, or later if they cannot wait for it."""
    stream = on_cpu(crossings.cpu, pool)
    right: list[bool] = []
    found: list[tuple[Memory, int]] = []

    def task(i: int, _: int) -> None:
        dst = crossings.go(stream, i + 1)
        found.append((dst, i + 1))
        right.append(not can_wait(pool) or holds(dst, i + 1))

    pool.parallel_for(2, task)
    pool.wait()
    return right == [True, True] and all(holds(*each) for each in found)


def held_back(crossings: Crossings) -> list[bool]:
    """Return whether the destination is untouched before a wait, and right after that."""
    with CheckingPool(2) as pool:
        pool.hold_back()
        stream = on_cpu(crossings.cpu, pool)
        dst = crossings.go(stream, 3)
        before = holds(dst, 0)
        stream.wait()
        return [before, holds(dst, 3)]


def on_device(crossings: Crossings) -> list[bool]:
    """Return the same for streams of the device that are held up, there and back, and to another context."""
    stream, free = Stream(crossings.gpu), Stream(crossings.gpu)
    src, total = filled(crossings.gpu, 4), filled(crossings.other, 10)
    with held_up(stream):
        dst = crossings.go(stream, 5)
        crossings.across.execute(stream, {Arg.SRC: src, Arg.DST: total})
        # Another stream is not held up, and has done all that in the meantime
        freely = crossings.go(free, 6)
        crossings.across.execute(free, {Arg.SRC: src, Arg.DST: filled(crossings.other, 0)})
        free.wait()
        before = [holds(freely, 6), holds(dst, 0), content(total) == 10]
    stream.wait()
    return [*before, holds(dst, 5), content(total) == 14]


def mixed(one: Crossings, other: Crossings) -> list[bool]:
    """Take turns on one stream, which is let go of while it is held up; return whether each comes to its end."""
    import pyopencl as cl

    right = []
    for number, (there, back) in enumerate(((one, other), (other, one), (one, one), (other, other))):
        stream = Stream(one.gpu)
        gate = cl.UserEvent(stream.queue.context)
        cl.enqueue_barrier(stream.queue, wait_for=[gate])
        middle, dst = Memory(BLOCKED, one.gpu), Memory(PLAIN, one.cpu)
        there.there.execute(stream, {Arg.SRC: one.source(number + 1), Arg.DST: middle})
        back.back.execute(stream, {Arg.SRC: middle, Arg.DST: dst})
        if there is other:
            # What the device computes alone is kept by the stream only
            other.there.execute(stream, {Arg.SRC: one.source(0), Arg.DST: Memory(BLOCKED, one.gpu)})
        del stream, middle
        gate.set_status(cl.command_execution_status.COMPLETE)
        until = time.monotonic() + 30
        while not holds(dst, number + 1) and time.monotonic() < until:
            time.sleep(0.001)
        right.append(holds(dst, number + 1))
    return right


def failures(host: Crossings, device: Crossings) -> list[str]:
    """Return when what is raised where the host may not read a device's memory; after that a stream must be right again."""
    found = []

    def fail(stream: Stream, primitive: Primitive, args: dict[Arg, Memory]) -> None:
        step = "execute"
        try:
            primitive.execute(stream, args)
            step = "wait"
            stream.wait()
        except KernelFailed as error:
            found.append(f"{step}: {str(error).partition(' failed: ')[0]}")
        dst = host.go(stream, 2)
        stream.wait()
        assert holds(dst, 2), "nothing is right after a failure"

    back = {Arg.SRC: closed(host.gpu), Arg.DST: Memory(PLAIN, host.cpu)}
    with CheckingPool(1) as pool:
        pool.hold_back()
        fail(on_cpu(host.cpu, pool), host.back, back)
    fail(Stream(host.cpu), host.back, back)
    fail(Stream(host.gpu), host.back, back)
    fail(Stream(host.gpu), device.across, {Arg.SRC: filled(host.gpu, 1), Arg.DST: closed(host.other)})
    return found


def refused(host: Crossings, device: Crossings) -> list[str]:
    """Return what wrong streams are answered, by primitives and by their descriptors."""
    cpu, gpu, other = host.cpu, host.gpu, host.other
    args = {Arg.SRC: host.source(0), Arg.DST: Memory(BLOCKED, gpu)}
    calls: list[Callable[[], object]] = [
        lambda: host.there.execute(Stream(other), args),
        lambda: device.there.execute(Stream(other), args),
        lambda: device.there.execute(Stream(cpu), args),
        lambda: Reorder.PrimitiveDesc(cpu, PLAIN, gpu, BLOCKED, stream=Stream(other)),
        lambda: Reorder.PrimitiveDesc(cpu, PLAIN, dst_engine=gpu, dst=BLOCKED, stream=Stream(other)),
        lambda: Reorder.PrimitiveDesc(cpu, PLAIN, cpu, PLAIN, stream=Stream(gpu)),
        lambda: Reorder.PrimitiveDesc(cpu, PLAIN, gpu, BLOCKED, stream=gpu),  # type: ignore[call-overload]
    ]
    return refusals(calls)


def offered(engines: tuple[Engine, Engine, Engine]) -> dict[str, list[str]]:
    """Return the implementations that are offered for a stream of each engine, and the engine that they are said to be for."""
    cpu, gpu, other = engines
    found = {}
    for name, ends in {"there": (cpu, PLAIN, gpu, BLOCKED), "across": (gpu, BLOCKED, other, PLAIN)}.items():
        for engine in (cpu, gpu):
            iface = Reorder.PrimitiveDesc(*ends, stream=Stream(engine))
            assert iface.query("engine") is engine
            found[f"{name} {engine.kind}"] = names = [iface.impl_name()]
            while iface.next_impl():
                names.append(iface.impl_name())
    return found


def tried(engines: tuple[Engine, Engine, Engine], cache: PrimitiveProvider) -> dict[str, object]:
    """Return what came of everything."""
    host, device = Crossings(engines, cache, HOST), Crossings(engines, cache, DEVICE)
    return {
        "pools": pools(host),
        "held back": held_back(host),
        "held up": [on_device(host), on_device(device)],
        "mixed": mixed(host, device),
        "failures": failures(host, device),
        "refused": refused(host, device),
        "offered": offered(engines),
    }
