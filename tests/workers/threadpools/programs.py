"""Random programs of primitives on a threadpool, executed on a pool and on NumPy arrays.

A program works on a few slots, each a tensor. Values stay whole numbers of at most 8, so every result is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers import Binary, Convolution, Eltwise
from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.primitives.provider import PrimitiveProvider
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.nesting import can_wait

from .checking import CheckingStream

Array = NDArray[np.float32]
SLOTS: Final = 3
DEPTH: Final = 4
_CHANNELS, _SIZE, _BLOCK = 32, 6, 16
_TENSOR: Final = MemoryDesc((1, _CHANNELS, _SIZE, _SIZE), "f32", "aBcd16b")
_LARGEST: Final = 8.0


class Execute(NamedTuple):
    """Compute slot ``dst`` from two sources: slots, or from ``SLOTS`` on those of the program that this one is nested in."""

    name: str
    dst: int
    sources: tuple[int, int]


class Do(NamedTuple):
    """``check`` a slot, ``drop`` it, copy it by way of an ``other``; ``wait``; drop the ``stream`` or all ``primitives``."""

    what: str
    slot: int


class Nest(NamedTuple):
    """Run programs as the tasks of a region; slot 0 of each becomes the slot of its number."""

    programs: tuple[tuple[Any, ...], ...]


Program: TypeAlias = tuple[Execute | Do | Nest, ...]


def programs(depth: int = DEPTH) -> st.SearchStrategy[Program]:
    """Draw a program that nests up to ``depth`` times."""
    slot = st.integers(0, SLOTS - 1)
    source = st.integers(0, 2 * SLOTS - 1)
    execute = st.builds(Execute, st.sampled_from(list(OPERATIONS)), slot, st.tuples(source, source))
    do = st.builds(Do, st.sampled_from(("check", "drop", "other", "wait", "stream", "primitives")), slot)
    statements: list[st.SearchStrategy[Any]] = [execute, execute, do]
    if depth:
        inner = st.lists(programs(depth - 1), min_size=1, max_size=3 if depth == DEPTH else 2).map(tuple)
        statements.append(st.builds(Nest, inner))
    return st.lists(st.one_of(statements), min_size=1, max_size=6 if depth == DEPTH else 3).map(tuple)


def outcome(program: Program, outer: list[Array]) -> list[Array]:
    """Return the slots at the end of a program that is nested in one with such slots."""
    slots = [np.zeros_like(one) for one in outer]
    for step in program:
        match step:
            case Execute(name, dst, sources):
                slots[dst] = OPERATIONS[name].model(*[[*slots, *outer][source] for source in sources])
            case Nest(inner):
                slots[: len(inner)] = [outcome(one, slots)[0] for one in inner]
            case Do("drop", slot):
                slots[slot] = np.zeros_like(slots[slot])
            case _:
                pass
    return slots


def first() -> list[Array]:
    """Return the slots that a program which is not nested may read as those of an outer one."""
    rng = np.random.default_rng(1)
    return [rng.integers(-8, 9, (_CHANNELS, _SIZE, _SIZE)).astype(np.float32) for _ in range(SLOTS)]


class Operation(NamedTuple):
    """A primitive, and the same computation in NumPy."""

    describe: Callable[[Engine], PrimitiveDescIface]
    model: Callable[[Array, Array], Array]
    args: tuple[Arg, ...]


def _sums(one: Array, _: Array) -> Array:
    padded = np.pad(one.sum(0), 1)
    rows = sum(padded[i : i + _SIZE, j : j + _SIZE] for i in range(3) for j in range(3))
    return np.broadcast_to(_clipped(rows), one.shape)


def _clipped(values: Any) -> Array:
    clipped: Array = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
    return clipped


_CLIP: Final = PrimitiveAttr((PostOp("eltwise", "clip", -_LARGEST, _LARGEST),))
_WEIGHTS: Final = MemoryDesc((_CHANNELS, _CHANNELS, 3, 3), "f32", "any")
_PAIR: Final = (Arg.SRC, Arg.SRC_1)
OPERATIONS: Final[Mapping[str, Operation]] = {
    "add": Operation(
        lambda e: Binary.PrimitiveDesc(e, _TENSOR, _TENSOR, _TENSOR, "add", attr=_CLIP),
        lambda one, other: _clipped(one + other),
        _PAIR,
    ),
    "sub": Operation(
        lambda e: Binary.PrimitiveDesc(e, _TENSOR, _TENSOR, _TENSOR, "sub", attr=_CLIP),
        lambda one, other: _clipped(one - other),
        _PAIR,
    ),
    "copy": Operation(
        lambda e: Eltwise.PrimitiveDesc(e, _TENSOR, _TENSOR, "linear", 1.0), lambda one, _: one, (Arg.SRC,)
    ),
    "flip": Operation(
        lambda e: Eltwise.PrimitiveDesc(e, _TENSOR, _TENSOR, "linear", -1.0, 1.0, attr=_CLIP),
        lambda one, _: _clipped(1 - one),
        (Arg.SRC,),
    ),
    "clip": Operation(
        lambda e: Eltwise.PrimitiveDesc(e, _TENSOR, _TENSOR, "clip", -_LARGEST, _LARGEST),
        lambda one, _: _clipped(one),
        (Arg.SRC,),
    ),
    # Weights are all 1; works in scratch memory, and is followed by a clip of its own
    "sums": Operation(
        lambda e: Convolution.PrimitiveDesc(e, _TENSOR, _WEIGHTS, None, _TENSOR, (1, 1), (0, 0), (1, 1), (1, 1)),
        _sums,
        (Arg.SRC,),
    ),
}


@dataclass
class Setting:
    """State that the programs of one run share."""

    engine: Engine
    pool: ThreadpoolInterface
    cache: PrimitiveProvider

    def stream(self) -> Stream:
        attr = StreamAttr("cpu")
        attr.set_threadpool(self.pool)
        return CheckingStream(self.engine, attr)

    def tensor(self, values: Array | None = None) -> Memory:
        """Return memory of the tensor's descriptor with values, 0 by default."""
        memory = Memory(_TENSOR, self.engine)
        if values is not None:
            blocks = values.reshape(_CHANNELS // _BLOCK, _BLOCK, _SIZE, _SIZE).transpose(0, 2, 3, 1)
            np.frombuffer(memory.map(), np.float32)[:] = blocks.ravel()
        return memory


def values_of(memory: Memory) -> Array:
    """Return the elements of a tensor in logical dimensions."""
    flat = np.frombuffer(memory.map(), np.float32)
    blocks = flat.reshape(_CHANNELS // _BLOCK, _SIZE, _SIZE, _BLOCK)
    return blocks.transpose(0, 3, 1, 2).reshape(_CHANNELS, _SIZE, _SIZE)


@dataclass
class Scope:
    """Runs one program: its slots, its stream, and the primitives that it has created."""

    setting: Setting
    outer: list[Memory]
    known: list[Array]
    stream: Stream
    slots: list[Memory] = field(init=False)
    primitives: dict[str, Primitive] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slots = [self.setting.tensor() for _ in range(SLOTS)]

    def run(self, program: Program) -> None:
        """Run a program; where the pool is asynchronous, it may not have ended afterwards."""
        slots = [np.zeros_like(one) for one in self.known]
        for number, step in enumerate(program):
            match step:
                case Execute(name, dst, sources):
                    self.execute(name, dst, [[*self.slots, *self.outer][source] for source in sources])
                case Nest(inner):
                    self.nest(inner, slots)
                case Do(what, slot):
                    self.do(what, slot, slots)
            slots = outcome(program[: number + 1], self.known)

    def execute(self, name: str, dst: int, sources: list[Memory]) -> None:
        if self.slots[dst] in sources:
            self.slots[dst] = self.setting.tensor()
        self.compute(name, sources, self.slots[dst])

    def compute(self, name: str, sources: list[Memory], dst: Memory) -> None:
        if name != "sums":
            self.submit(name, sources, dst)
            return
        unbounded = self.setting.tensor()
        self.submit(name, sources, unbounded)
        self.submit("clip", [unbounded], dst)

    def submit(self, name: str, sources: list[Memory], dst: Memory) -> None:
        operation = OPERATIONS[name]
        if name not in self.primitives:
            self.primitives[name] = operation.describe(self.setting.engine).create(self.setting.cache)
        args = dict(zip(operation.args, sources, strict=False)) | {Arg.DST: dst}
        if name == "sums":
            args[Arg.WEIGHTS] = self.weights()
        self.primitives[name].execute(self.stream, args)

    def weights(self) -> Memory:
        memory = Memory(self.primitives["sums"].pd.memories()[Arg.WEIGHTS], self.setting.engine)
        np.frombuffer(memory.map(), np.float32)[:] = 1
        return memory

    def nest(self, inner: tuple[Program, ...], known: list[Array]) -> None:
        setting, outer = self.setting, list(self.slots)
        results = [setting.tensor() for _ in inner]
        stream = self.stream

        def task(number: int, _: int) -> None:
            # Tasks share the stream of the program around them, or have one of their own.
            shares = len(inner[number]) % 2 == 1
            scope = Scope(setting, outer, known, stream if shares else setting.stream())
            scope.run(inner[number])
            scope.compute("copy", [scope.slots[0]], results[number])

        self.setting.pool.parallel_for(len(inner), task)
        self.slots[: len(inner)] = results

    def do(self, what: str, slot: int, known: list[Array]) -> None:
        if what in ("check", "wait") and not can_wait(self.setting.pool):
            with pytest.raises(RuntimeError, match="cannot wait"):
                self.stream.wait()
            if what == "check":
                self.check_later(self.slots[slot], known[slot])
        elif what in ("check", "wait"):
            self.stream.wait()
            if what == "check":
                np.testing.assert_array_equal(values_of(self.slots[slot]), known[slot])
        elif what == "drop":
            self.slots[slot] = self.setting.tensor()
        elif what == "other":
            self.move(slot)
        elif what == "stream":
            self.stream = self.setting.stream()
        elif what == "primitives":
            self.primitives.clear()

    def check_later(self, memory: Memory, known: Array) -> None:
        """Check a slot in a region behind what this task has submitted so far."""

        def check(_i: int, _n: int) -> None:
            np.testing.assert_array_equal(values_of(memory), known)

        self.setting.pool.parallel_for(1, check)

    def move(self, slot: int) -> None:
        """Copy a slot through a memory whose buffer changes at once: submitted work uses the earlier buffer."""
        passing, memory = self.setting.tensor(), self.setting.tensor()
        self.compute("copy", [self.slots[slot]], passing)
        self.compute("copy", [passing], memory)
        passing.set_data_handle(0)
        self.slots[slot] = memory
