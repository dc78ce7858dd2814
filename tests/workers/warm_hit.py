"""A worker's way from bytes to a running kernel: `python -m tests.workers.warm_hit HOME [block]` prints the source.

With `block`, the import of a pickle of any kind is an error.
"""

from __future__ import annotations

import array
import sys

BLOCKED = ("pickle", "_pickle", "_compat_pickle", "pickletools", "shelve", "dill", "cloudpickle")


def main(home: str) -> None:
    """Get, realize, execute and check one kernel."""
    from poolrt.cachestore import CacheStore
    from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, PrimitiveAttr
    from poolrt.workers.engines.cpu import CpuEngine
    from poolrt.workers.engines.target import cpu_target
    from poolrt.workers.memory.storage import Memory
    from poolrt.workers.primitives.primitive import Primitive
    from poolrt.workers.primitives.primitive_desc import primitive_desc

    md = MemoryDesc((64,), "f32")
    values = array.array("f", range(-32, 32))
    result = array.array("f", bytes(md.nbytes))
    pd = primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), cpu_target())
    with CacheStore.connect(home=home) as store:
        primitive = Primitive(pd, CpuEngine(), store)
        primitive.execute({Arg.SRC: Memory(md, buffer=values), Arg.DST: Memory(md, buffer=result)})
    if list(result) != [max(value, 0.0) for value in values]:
        raise SystemExit("wrong result")
    print(primitive.source)


def block() -> None:
    """Make the import of every pickle an error."""
    if set(BLOCKED) & set(sys.modules):
        raise SystemExit("a pickle is there already")
    for name in BLOCKED:
        # How the import system says that there is no such module.
        sys.modules[name] = None  # type: ignore[assignment]


if __name__ == "__main__":
    if sys.argv[2:] == ["block"]:
        block()
    main(sys.argv[1])
