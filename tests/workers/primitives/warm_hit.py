"""A worker's way from bytes to a running kernel: `python -m tests.workers.primitives.warm_hit HOME [block|list]`.

Prints the source. With `block`, the import of a pickle of any kind is an error; with `list`, the modules that were
imported go to standard error, a line each.
"""

from __future__ import annotations

import array
import sys

BLOCKED = ("pickle", "_pickle", "_compat_pickle", "pickletools", "shelve", "dill", "cloudpickle")


def main(home: str) -> None:
    """Get, realize, execute and check one kernel."""
    from poolrt.cachestore import CacheStore
    from poolrt.workers import Arg, Eltwise, Engine, Memory, MemoryDesc, Stream
    from poolrt.workers.primitives.provider import PrimitiveProvider

    engine = Engine("cpu")
    md = MemoryDesc((64,), "f32")
    values = array.array("f", range(-32, 32))
    result = array.array("f", bytes(md.nbytes))
    with CacheStore.connect(home=home) as store:
        primitive = Eltwise.PrimitiveDesc(engine, md, md, "relu").create(PrimitiveProvider(store=store))
        args = {Arg.SRC: Memory(md, engine, values), Arg.DST: Memory(md, engine, result)}
        primitive.execute(Stream(engine), args)
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
    if sys.argv[2:] == ["list"]:
        # Not `-X importtime`, which leaves out what `importlib.import_module` imports.
        print(*sys.modules, sep="\n", file=sys.stderr)
