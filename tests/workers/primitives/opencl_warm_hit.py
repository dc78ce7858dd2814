"""A worker's way from bytes to a running OpenCL kernel: `python -m tests.workers.primitives.opencl_warm_hit HOME [block]`.

Gets one kernel from the store of a home folder, or creates it, runs it, checks the result, and prints where it came from.
With `block` no code can import or use a pickle, from before the store is opened. The drivers' wrapper, and NumPy, which
it needs, import pickle themselves; they do so before, and what they have imported fails when it is called.
"""

from __future__ import annotations

import array
import sys
from typing import Any, NoReturn

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.opencl import OpenClEngine
from poolrt.workers.execution.opencl_binding import RealizedOpenClPrimitive, bind_launches
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.memory.opencl import device_buffer
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.primitives.key import primitive_key
from tests.workers import compiled
from tests.workers.primitives.warm_hit import BLOCKED


def main(home: str, engine: OpenClEngine) -> None:
    """Get, realize, execute and check one kernel."""
    import pyopencl  # when the engine has been made: it is the one that decides how

    md = MemoryDesc((64,), "f32")
    values = array.array("f", range(-32, 32))
    result = array.array("f", bytes(md.nbytes))
    pd = primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), engine.target)
    with CacheStore.connect(home=home) as store:
        outcome = store.fetch_or_create(primitive_key(pd), lambda: compiled.creator().create(pd))
    primitive = RealizedOpenClPrimitive(parse_entry(outcome.value), engine)
    src, dst = device_buffer(engine, md.nbytes, values.tobytes()), device_buffer(engine, md.nbytes)
    scratchpad = device_buffer(engine, primitive.entry.scratchpad)
    for launch in bind_launches(primitive, {Arg.SRC: (src, 0), Arg.DST: (dst, 0)}, scratchpad):
        launch.enqueue(engine.queue)
    pyopencl.enqueue_copy(engine.queue, result, dst)
    if list(result) != [max(value, 0.0) for value in values]:
        raise SystemExit(f"wrong result: {list(result)}")
    print(outcome.source)


def block() -> None:
    """Make every import of a pickle an error, and every call of a function or class that is imported from one."""
    pickles = [sys.modules[name] for name in BLOCKED if name in sys.modules]
    theirs = {id(value) for pickle in pickles for value in vars(pickle).values() if _works(value)}
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if id(value) in theirs:
                setattr(module, name, _refuse)
    for name in BLOCKED:
        # How the import system says that there is no such module.
        sys.modules[name] = None  # type: ignore[assignment]


def _works(value: Any) -> bool:
    is_error = isinstance(value, type) and issubclass(value, Exception)
    return callable(value) and not is_error and getattr(value, "__module__", None) in BLOCKED


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("something was pickled, or unpickled")


if __name__ == "__main__":
    started = OpenClEngine()
    if sys.argv[2:] == ["block"]:
        block()
    main(sys.argv[1], started)
