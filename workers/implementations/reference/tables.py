"""The records, chains and operands by which reference kernels find their tensors.

`tensor` and `epilogue` in ``kernels/native/reference`` define records and chains. One `Tables` describes one
program: the launches of its kernels, all with the same operands, and those that zero the padding of what they write.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...desc import MemoryDesc, PrimitiveAttr, item_size, post_op_src
from ...desc.quantisation import KINDS
from ...kernels.codes import BINARY, DATA_TYPES, ELTWISE, STEPS
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program

#: Words of a record before its dimensions, and words a dimension.
_HEADER: Final = 5
#: Word of a record that holds the slot of its memory.
_SLOT: Final = 2
_DIM: Final = 5
#: The generator of the kernel that zeroes padding.


class Step(NamedTuple):
    """A step of a chain; ``record`` is the place of a binary step's second source in the tables."""

    kind: str
    algorithm: str = ""
    alpha: float = 0.0
    beta: float = 0.0
    record: int = 0


class Run(NamedTuple):
    """One launch of the kernel of ``generator``, called with ``args`` and the operands, over ``work`` items."""

    generator: str
    args: tuple[LaunchArgument, ...]
    work: int


class Tables:
    """Builds the tables, operands and launches of one program, whose attributes are ``attr``."""

    def __init__(self, attr: PrimitiveAttr) -> None:
        self._attr = attr
        self._words: list[int] = []
        self._slots: dict[int, int] = {}
        #: Constant scales and zero points, by the argument that they are else given as: places in the tables.
        self._constants: dict[int, LaunchArgument] = {}
        #: Words that are to hold the slot of a constant, behind those of all memories, and the number of it.
        self._constant_slots: list[tuple[int, int]] = []

    def tensor(
        self,
        arg: int,
        md: MemoryDesc,
        shape: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        quantised: bool = True,
        scaled: bool = True,
    ) -> LaunchArgument:
        """Add the record of an argument and return its address.

        ``shape`` is what the tensor is broadcast to, ``axes`` which dimension of it each of the tensor's is (its own
        number where not given). With ``quantised`` the record names the argument's scales and zero points, the scales
        only if ``scaled``; constant ones are in the tables.
        """
        return ("t", 8 * self._tensor(arg, md, shape, axes, quantised, scaled))

    def scales(self, arg: int, md: MemoryDesc, shape: Sequence[int], axes: Sequence[int]) -> Step | None:
        """Return the step that multiplies by the scales of a source broadcast to dst's ``shape``, None without any.

        Dimensions of the source that are not dst's have axis -1; scales must not vary along them.
        """
        record = self._quantisation("scales", arg, md, shape, axes)
        return Step(kind="binary", algorithm="mul", record=record) if record else None

    def add(self, arg: int, md: MemoryDesc, shape: Sequence[int], axes: Sequence[int]) -> Step:
        """Return the step that adds a tensor, a bias, broadcast to dst's ``shape``."""
        return Step(kind="binary", algorithm="add", record=self._tensor(arg, md, shape, axes, quantised=False))

    def chain(self, dst: MemoryDesc, before: Sequence[Step | None] = ()) -> LaunchArgument:
        """Add the chain of ``before`` and the attributes' post-ops on ``dst`` and return its address."""
        steps = [step for step in before if step is not None]
        for index, op in enumerate(self._attr.post_ops):
            record = self._tensor(post_op_src(index), op.src1, dst.dims, None, False) if op.src1 is not None else 0
            algorithm = (op.dtype or dst.dtype) if op.kind == "sum" else op.algorithm
            steps.append(Step(op.kind, algorithm, op.alpha, op.beta, record))
        start = len(self._words)
        codes = {"eltwise": ELTWISE, "binary": BINARY, "sum": DATA_TYPES}
        self._words.append(len(steps))
        for step in steps:
            alpha, beta = (_float_bits(value) for value in (step.alpha, step.beta))
            distance = 8 * (step.record - start)
            self._words += [STEPS[step.kind], codes[step.kind][step.algorithm], alpha, beta, distance]
        return ("t", 8 * start)

    def numbers(self, values: Sequence[int]) -> LaunchArgument:
        """Add int64 values and return the address of the first."""
        start = len(self._words)
        self._words += values
        return ("t", 8 * start)

    def weighted(self, tensors: Sequence[tuple[int, MemoryDesc]], weights: Sequence[float]) -> LaunchArgument:
        """Add a list of arguments with a weight each: how many, then each record's distance and the bits of its weight."""
        records = [self._tensor(arg, md, None, None, quantised=True) for arg, md in tensors]
        start = len(self._words)
        self._words.append(len(records))
        for record, weight in zip(records, weights, strict=True):
            self._words += [8 * (record - start), _float_bits(weight)]
        return ("t", 8 * start)

    def program(
        self,
        generator: str,
        args: Sequence[LaunchArgument],
        work: int,
        written: Sequence[tuple[int, MemoryDesc]],
        further: Sequence[Run] = (),
        scratchpad: int = 0,
    ) -> Program:
        """Return the program of a kernel, called with ``args`` and the operands, over ``work`` items, and of ``further``.

        Where arguments ``written`` have padding, it is zeroed afterwards. ``scratchpad`` is in bytes.
        """
        runs = [Run(generator, tuple(args), work), *further]
        for arg, md in written:
            if md.elements and math.prod(md.padded_dims) != md.elements:
                record = self.tensor(arg, md, quantised=False)
                runs.append(Run("padding", (record,), math.prod(md.padded_dims)))
        runs = [run for run in runs if run.work]
        generators = list(dict.fromkeys(run.generator for run in runs))
        for word, number in self._constant_slots:
            self._words[word] = len(self._slots) + number
        operands = self._operands()
        return Program(
            tuple(KernelSpec.of(f"reference.{name}") for name in generators),
            tuple(Launch(generators.index(run.generator), (*run.args, *operands), run.work) for run in runs),
            struct.pack(f"<{len(self._words)}q", *self._words),
            scratchpad,
        )

    def _operands(self) -> tuple[LaunchArgument, ...]:
        return (*(("m", (arg, 0)) for arg in self._slots), *self._constants.values())

    def _slot(self, arg: int) -> int:
        return self._slots.setdefault(int(arg), len(self._slots))

    def _tensor(
        self,
        arg: int,
        md: MemoryDesc,
        shape: Sequence[int] | None,
        axes: Sequence[int] | None,
        quantised: bool,
        scaled: bool = True,
    ) -> int:
        """Add a record and return its place, in words."""
        shape = md.dims if shape is None else shape
        axes = range(md.ndims) if axes is None else axes
        scales = zero_points = 0
        if quantised:
            scales = self._quantisation("scales", arg, md, shape, axes) if scaled else 0
            zero_points = self._quantisation("zero_points", arg, md, shape, axes)
        size = item_size(md.dtype)
        layout, outer, padded = md.layout, md.outer_strides(), md.padded_dims
        dims = [_Dim(extent, extent, 0, ()) for extent in shape]
        for dim, axis in enumerate(axes):
            if axis >= 0 and (md.dims[dim] != 1 or shape[axis] == 1):
                step, blocks = size, []
                for blocked, extent in reversed(layout.blocks):
                    if blocked == dim:
                        blocks.append((extent, step))
                    step *= extent
                dims[axis] = _Dim(md.dims[dim], padded[dim], outer[dim] * size, tuple(blocks))
        return self._record(arg, md.dtype, dims, scales, zero_points)

    def _quantisation(self, name: str, arg: int, md: MemoryDesc, shape: Sequence[int], axes: Sequence[int]) -> int:
        """Add the record of an argument's scales or zero points and return its place, 0 if there are none."""
        for item in getattr(self._attr, name):
            if item.arg == arg:
                dtype, number = KINDS[name].dtype, KINDS[name].argument(arg)
                if item.values:
                    self._constant(number, item.packed(name))
                dims = [_Dim(extent, extent, 0, ()) for extent in shape]
                step = item_size(dtype)
                for dim in reversed(range(md.ndims)):
                    axis = axes[dim]
                    if item.mask >> dim & 1 and (md.dims[dim] != 1 or shape[axis] == 1):
                        dims[axis] = _Dim(shape[axis], shape[axis], step, ())
                        step *= md.dims[dim]
                return self._record(number, dtype, dims, 0, 0)
        return 0

    def _constant(self, number: int, values: bytes) -> None:
        """Add values that are given here and not as an argument."""
        if number not in self._constants:
            self._constants[number] = ("t", 8 * len(self._words))
            self._words += struct.unpack(f"<{-(-len(values) // 8)}q", values + bytes(-len(values) % 8))

    def _record(self, arg: int, dtype: str, dims: list[_Dim], scales: int, zero_points: int) -> int:
        if not self._words:
            self._words.append(0)  # no record begins at 0, which means none
        start = len(self._words)
        distances = [8 * (place - start) if place else 0 for place in (scales, zero_points)]
        constant = arg in self._constants
        if constant:
            self._constant_slots.append((start + _SLOT, list(self._constants).index(arg)))
        self._words += [DATA_TYPES[dtype], len(dims), 0 if constant else self._slot(arg), *distances]
        blocks = start + _HEADER + _DIM * len(dims)
        for dim in dims:
            self._words += [dim.size, dim.padded, dim.stride, len(dim.blocks), 8 * (blocks - start)]
            blocks += 2 * len(dim.blocks)
        for dim in dims:
            for block in dim.blocks:
                self._words += block
        return start


class _Dim(NamedTuple):
    """A dimension of a record; strides in bytes."""

    size: int
    padded: int
    stride: int
    blocks: tuple[tuple[int, int], ...]


def as_float32(value: float) -> float:
    """Return a parameter as it is for every engine: a float32."""
    (narrow,) = struct.unpack("<f", struct.pack("<f", value))
    return float(narrow)


def _float_bits(value: float) -> int:
    (bits,) = struct.unpack("<q", struct.pack("<d", as_float32(value)))
    return int(bits)
