"""Hits in the primitive cache of a process, and a tiny execution: poolrt beside oneDNN, which is called through ctypes.

A hit *anew* begins with numbers: memories, attributes and operation are described, the primitive is got, and all of it
is destroyed again. With *kept* memories and attributes it begins with the operation.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import onednn
from measure import alternate, arguments, record, seconds

from poolrt import Arg, Convolution, Eltwise, Engine, Memory, MemoryDesc, PostOp, PrimitiveAttr, Stream
from poolrt.cachestore import CacheStore
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import primitive_provider

#: Many short turns: each is over before another process takes the core, as a rule.
ROUNDS: Final = 200
REPEAT: Final = 50
VALUES: Final = [float(value) for value in range(-8, 8)]

Call = Callable[[], object]


class Shape(NamedTuple):
    """A convolution of stride 1, with a bias."""

    src: tuple[int, ...]
    weights: tuple[int, ...]
    dst: tuple[int, ...]
    padding: int


#: Two of ResNet-50.
SHAPES: Final = {
    "3x3": Shape((1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56), 1),
    "1x1": Shape((1, 64, 56, 56), (256, 64, 1, 1), (1, 256, 56, 56), 0),
}


def ours(engine: Engine, shape: Shape, relu: bool) -> dict[str, Call]:
    """Return what asks poolrt for a convolution, whole and in parts, with all of it known already."""
    ones, zeros, sides = (1, 1), (0, 0), (shape.padding, shape.padding)

    def memories() -> tuple[MemoryDesc, ...]:
        return (
            MemoryDesc(shape.src, "f32", "any"),
            MemoryDesc(shape.weights, "f32", "any"),
            MemoryDesc(shape.weights[:1], "f32", "a"),
            MemoryDesc(shape.dst, "f32", "any"),
        )

    def attributes() -> PrimitiveAttr | None:
        return PrimitiveAttr((PostOp("eltwise", "relu"),)) if relu else None

    def describe(mds: tuple[MemoryDesc, ...], attr: PrimitiveAttr | None) -> PrimitiveDescIface:
        return Convolution.PrimitiveDesc(engine, *mds, ones, zeros, sides, sides, attr=attr)

    mds, attr, cache = memories(), attributes(), primitive_provider()
    pd = describe(mds, attr)
    pd.create()
    source = pd.create().source
    if source != "memory":
        raise SystemExit(f"expected a hit in memory, got {source}")
    return {
        "anew": lambda: describe(memories(), attributes()).create(),
        "kept": lambda: describe(mds, attr).create(),
        "memories and attributes": lambda: (memories(), attributes()),
        "descriptor": lambda: describe(mds, attr),
        "primitive": pd.create,
        "its fetch from the cache": lambda: cache.fetch(pd.pd),
        "its key": lambda: primitive_key(pd.pd),
        "a key computed": lambda: primitive_key(replace(pd.pd)),
    }


def rival(dnnl: onednn.OneDnn, shape: Shape, relu: bool) -> dict[str, Call]:
    """Return the same of oneDNN, as far as it has such parts."""
    convolution = onednn.Convolution(dnnl, shape.src, shape.weights, shape.dst, shape.padding, relu)
    return {
        "anew": convolution.anew,
        "kept": convolution.with_memories_kept,
        "memories and attributes": convolution.memories,
        "descriptor": convolution.descriptor,
        "primitive": convolution.primitive,
    }


def hits(dnnl: onednn.OneDnn, engine: Engine, name: str, relu: bool) -> list[str]:
    """Measure one convolution; return the lines of it."""
    sides = {"poolrt": ours(engine, SHAPES[name], relu), "oneDNN": rival(dnnl, SHAPES[name], relu)}
    found = compare({f"{side} {part}": call for side, parts in sides.items() for part, call in parts.items()})
    what = f"{name} with relu" if relu else name
    lines = [
        versus(f"{what}, anew", found["poolrt anew"], found["oneDNN anew"]) + " (goal: at most 0.8)",
        versus(f"{what}, kept", found["poolrt kept"], found["oneDNN kept"]) + " (goal: at most 0.8)",
    ]
    for side, parts in sides.items():
        shares = (f"{part} {found[f'{side} {part}']:.2f}" for part in parts if part not in ("anew", "kept"))
        lines.append(f"{what}, parts in us, {side}: {', '.join(shares)}")
    return lines


def execution(dnnl: onednn.OneDnn, engine: Engine) -> str:
    """Measure the execution of a relu of a few values; return the line of it."""
    md, stream = MemoryDesc((len(VALUES),), "f32"), Stream(engine)
    args = {Arg.SRC: Memory(md, engine), Arg.DST: Memory(md, engine)}
    args[Arg.SRC].numpy()[:] = VALUES
    primitive = Eltwise.PrimitiveDesc(engine, md, md, "relu").create()
    theirs, result = onednn.relu(dnnl, VALUES)

    def execute() -> None:
        primitive.execute(stream, args)
        stream.wait()

    found = compare({"poolrt": execute, "oneDNN": theirs})
    if not list(args[Arg.DST].numpy()) == list(result) == [max(value, 0.0) for value in VALUES]:
        raise SystemExit("wrong result")
    return versus(f"relu of {len(VALUES)} values, executed", found["poolrt"], found["oneDNN"]) + " (goal: at most 1.5)"


def compare(contestants: dict[str, Call]) -> dict[str, float]:
    """Return the median time of each call in microseconds."""

    def timed(call: Call) -> Callable[[], float]:
        return lambda: seconds(call, REPEAT) * 1e6

    return alternate({name: timed(call) for name, call in contestants.items()}, ROUNDS)


def versus(what: str, mine: float, theirs: float) -> str:
    """Return one line of results, of times in microseconds."""
    return f"{what}: poolrt {mine:.2f} us, oneDNN {theirs:.2f} us, ratio {mine / theirs:.2f}"


def main() -> None:
    """Print all hits, their parts, and the execution."""
    dnnl = onednn.OneDnn()
    with tempfile.TemporaryDirectory() as home:
        os.environ["POOLRT_HOME"] = home
        try:
            engine = Engine("cpu")
            lines = [line for name in SHAPES for relu in (False, True) for line in hits(dnnl, engine, name, relu)]
            lines.append(execution(dnnl, engine))
        finally:
            with CacheStore.connect() as store:
                store.down()
    record(f"Hit in the primitive cache of a process (oneDNN {dnnl.version} through ctypes)", lines)


if __name__ == "__main__":
    arguments(__doc__)
    main()
