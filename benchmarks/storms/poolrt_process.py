"""One process of a storm: get each primitive from the store, or have it made by its creator; map it, run it, check it."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import expected  # and with it NumPy, before the clock starts

if TYPE_CHECKING:
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc


def main(job: dict[str, Any]) -> None:
    """Do it, and tell how long it took and how many primitives the creator has made."""
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    from poolrt.cachestore import CacheStore
    from poolrt.workers import Arg, Eltwise, Engine, Memory, MemoryDesc, Stream
    from poolrt.workers.primitives.key import primitive_key
    from poolrt.workers.primitives.provider import PrimitiveProvider

    md = MemoryDesc(expected.SHAPE, "f32")
    engine = Engine("cpu")
    stream = Stream(engine)
    pds = {
        name: Eltwise.PrimitiveDesc(engine, md, md, name, *expected.PARAMETERS.get(name, ())) for name in job["kernels"]
    }
    src = Memory(md, engine)
    src.numpy()[:] = expected.source()
    results = {name: Memory(md) for name in pds}
    with CacheStore.connect(**job["store"]) as store:
        created = 0
        if job["socket"] >= 0:
            found = store.get_many([primitive_key(iface.pd) for iface in pds.values()])
            missing = [iface.pd for iface, item in zip(pds.values(), found, strict=True) if item is None]
            created = create(missing, job["socket"])
        cache = PrimitiveProvider(store=store)
        for name, pd in pds.items():
            pd.create(cache).execute(stream, {Arg.SRC: src, Arg.DST: results[name]})
        seconds = time.perf_counter() - begin
    if "numba" in sys.modules:
        raise SystemExit("a process that only runs kernels has imported numba")
    for name, result in results.items():
        expected.check(name, result.numpy())
    print(json.dumps({"seconds": seconds, "compiled": created}))


def create(pds: list[PrimitiveDesc], descriptor: int) -> int:
    """Have primitives made; return how many of them this process's creator has made itself."""
    from poolrt.workers.ipc.channel import Channel
    from poolrt.workers.ipc.protocol import Kind

    channel = Channel(socket.socket(fileno=descriptor))
    created = 0
    answers: list[Any] = []
    for number, pd in enumerate(pds):
        channel.send([Kind.CREATE, number, pd.to_wire()])
    while len(answers) < len(pds):
        message = channel.receive(block=True)
        if message is None or message[0] == Kind.READY:
            continue
        if message[0] != Kind.CREATED:
            raise SystemExit(f"a creation failed: {message}")
        answers.append(message[1])
        created += message[3] == "created"
    channel.close()
    return created


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
