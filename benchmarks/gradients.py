"""Gradients on one thread: the native implementations beside the references and beside the memory's bandwidth.

ONNX Runtime has no nodes for these gradients. Times are processor times. A rate counts the bytes of every tensor that is
read or written once; the bandwidth is that of NumPy's copy of an array of the same size as src, in the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from measure import alternate, arguments, record, sized

from poolrt import (
    Arg,
    BatchNormalization,
    Eltwise,
    Engine,
    LayerNormalization,
    Memory,
    MemoryDesc,
    Pooling,
    Primitive,
    Softmax,
    Stream,
)

ROUNDS: Final = 5
#: Times as fast as the reference that a native gradient must be.
GOAL: Final = 10.0


class Problem(NamedTuple):
    """A gradient: its operation's class, and the arguments of its descriptor after the engine."""

    name: str
    operation: Any
    args: tuple[Any, ...]
    named: dict[str, Any] = {}  # noqa: RUF012 -- never changed


def problems() -> Iterator[Problem]:
    """Yield gradients on shapes of ResNet-50, BERT-base and GPT-2."""
    backward = {"prop": "backward_data"}
    hidden, picture = MemoryDesc((128, 3072), "f32"), MemoryDesc((8, 64, 56, 56), "f32")
    blocked = picture.with_tag("aBcd16b")
    for algorithm in ("relu", "gelu_erf", "gelu_tanh", "swish", "mish", "tanh"):
        yield Problem(f"eltwise {algorithm}", Eltwise, (hidden, hidden, algorithm), backward)
    yield Problem("eltwise relu", Eltwise, (blocked, blocked, "relu"), backward)
    for dims, axis in (((12, 128, 128), 2), ((128, 30522), 1), ((16, 21, 64, 64), 1)):
        md = MemoryDesc(dims, "f32")
        yield Problem(f"softmax axis {axis}", Softmax, (md, md, axis), backward)
    for md, kernel, stride, padding, algorithm in (
        (MemoryDesc((8, 64, 112, 112), "f32"), 3, 2, 1, "max"),
        (MemoryDesc((8, 64, 112, 112), "f32", "aBcd16b"), 3, 2, 1, "max"),
        (MemoryDesc((8, 256, 28, 28), "f32"), 3, 1, 1, "avg_include_padding"),
        (MemoryDesc((8, 256, 28, 28), "f32", "aBcd16b"), 3, 1, 1, "avg_exclude_padding"),
        (MemoryDesc((8, 2048, 7, 7), "f32"), 7, 1, 0, "avg_include_padding"),
        (MemoryDesc((8, 128, 56, 56), "f32", "aBcd16b"), 2, 2, 0, "avg_include_padding"),
    ):
        size = (md.dims[2] + 2 * padding - kernel) // stride + 1
        dst = MemoryDesc((*md.dims[:2], size, size), "f32", md.tag)
        window = ((kernel,) * 2, (stride,) * 2, (0, 0), (padding,) * 2, (padding,) * 2)
        yield Problem(f"pooling {algorithm} {kernel}/{stride}", Pooling, (md, dst, algorithm, *window), backward)
    affine = ("use_scale", "use_shift")
    for dims in ((128, 768), (1024, 1024), (4096, 768)):
        md = MemoryDesc(dims, "f32")
        for prop in ("backward_data", "backward"):
            yield Problem(f"layer_normalization {prop}", LayerNormalization, (md, md, 1e-5, affine), {"prop": prop})
    for md in (picture, blocked, MemoryDesc((8, 512, 7, 7), "f32"), MemoryDesc((64, 1024), "f32")):
        yield Problem("batch_normalization backward", BatchNormalization, (md, md, 1e-5, affine), {"prop": "backward"})


class Contestant:
    """A primitive with its memory on a stream."""

    def __init__(self, primitive: Primitive, engine: Engine, stream: Stream) -> None:
        self._primitive, self._stream = primitive, stream
        described = primitive.pd.memories()
        self._memories = {arg: Memory(md, engine) for arg, md in described.items() if arg != Arg.SCRATCHPAD}
        rng = np.random.default_rng(0)
        for arg, memory in self._memories.items():
            drawn = rng.integers(0, 4, memory.desc.nbytes // 4, np.int32) if arg == Arg.WORKSPACE else None
            held = np.frombuffer(memory.map(), np.float32 if drawn is None else np.int32)
            held[:] = rng.random(held.size, np.float32) if drawn is None else drawn
            memory.unmap()
        self.nbytes = sum(md.nbytes for md in described.values())

    def run(self) -> None:
        """Execute once and wait."""
        self._primitive.execute(self._stream, self._memories)
        self._stream.wait()


def processor_seconds(action: Callable[[], object], repeat: int) -> float:
    """Return the mean processor time of ``repeat`` calls, in seconds."""
    start = time.process_time()
    for _ in range(repeat):
        action()
    return (time.process_time() - start) / repeat


def measured(problem: Problem, engine: Engine, stream: Stream) -> str:
    """Return a line about a problem."""
    described = problem.operation.PrimitiveDesc(engine, *problem.args, **problem.named)
    native = Contestant(described.create(), engine, stream)
    name = described.impl_name()
    while not described.impl_name().startswith("ref:"):
        if not described.next_impl():
            raise RuntimeError(f"{problem.name} has no reference")
    slow = Contestant(described.create(), engine, stream)
    source = np.zeros(problem.args[0].padded_dims, np.float32)
    target = np.zeros_like(source)
    for contestant in (native, slow):
        contestant.run()
    repeat = max(1, int(4e7 / max(1, native.nbytes)))
    found = alternate(
        {
            "native": lambda: processor_seconds(native.run, repeat),
            "reference": lambda: processor_seconds(slow.run, 1),
            "copy": lambda: processor_seconds(lambda: np.copyto(target, source), repeat),
        },
        ROUNDS,
    )
    dims = "x".join(map(str, problem.args[0].dims)) + (" blocked" if problem.args[0].tag.endswith("16b") else "")
    rate, bandwidth = native.nbytes / found["native"] / 1e9, 2 * source.nbytes / found["copy"] / 1e9
    ratio = found["reference"] / found["native"]
    return (
        f"{problem.name} {dims}: {name} {found['native'] * 1e6:.0f} us, reference {found['reference'] * 1e6:.0f} us, "
        f"ratio {ratio:.1f} (goal: at least {GOAL:.0f}); {rate:.1f} GB/s, a copy {bandwidth:.1f} GB/s"
    )


def main() -> None:
    arguments(__doc__)
    engine = Engine("cpu")
    stream = Stream(engine)
    chosen = list(problems())
    for problem in sized(chosen, chosen[:1]):
        record(f"Gradient of {problem.name}, one thread", [measured(problem, engine, stream)])


if __name__ == "__main__":
    main()
