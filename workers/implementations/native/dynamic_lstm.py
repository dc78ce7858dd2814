"""LSTM whose states are quantised before they are multiplied: all steps in one launch, or two launches for each."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, DynamicLstm, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import STATE_NUMBERS
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .integer_amx import EXTENSIONS_OF

#: Groups of four inputs of 16 channels side by side, gate by gate.
_PACKED: Final = "bCA16c4a"
#: Products of a state with fewer sequences than these over all steps are in 16 bits: a pass over all weights takes longer.
_FEW_ROWS: Final = 6
#: Multiplications of a step from which several threads share it, and launches of a program at most.
_SHARED: Final = 1 << 20
_LAUNCHES: Final = 8192
#: Programs are the same for so many threads and more.
_THREADS: Final = 2
#: Sequences of an item of work, which reads all weights of its channels.
_STRIP: Final = 16
#: Levels with instructions for bytes that hold sums of two products in 16 bits.
_WITH_BYTES: Final = ("x86-64-v3", "x86-64-v4")
_NONE: Final[LaunchArgument] = ("i", 0)


class NativeDynamicLstm(NativeImplementation[DynamicLstm]):
    """f32, row-major but for weights, which are packed."""

    def __init__(self, how: str) -> None:
        self.name = f"native:dynamic_lstm_{how}"
        self._how = how
        self.extensions = EXTENSIONS_OF.get(how, ())

    def reject(self, op: DynamicLstm, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := target.lack_of(self.extensions):
            return why
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        for arg, md in op.memories().items():
            if arg == Arg.WEIGHTS:
                if md.tag != _PACKED or md.strides:
                    return f"weights {md}; only {_PACKED} is supported"
            elif not md.is_plain:
                return f"layout {md}; only row-major is supported"
            elif arg != Arg.SHIFT and md.dtype != "f32":
                return f"data type {md.dtype}; only f32 is supported"
        if 0 in op.src.dims:
            return "a tensor without elements"
        return None

    def complete(self, op: DynamicLstm, attr: PrimitiveAttr, target: Target) -> DynamicLstm:
        if op.weights.is_any:
            op = replace(op, weights=op.weights.with_tag(_PACKED))
        return super().complete(op, attr, target)

    def threads(self, op: DynamicLstm, target: Target) -> int:
        """Return how many threads share a step, as far as it matters, 0 if all steps are one launch."""
        steps, batch, gates, hidden = op.src.dims
        shares = batch * gates * hidden**2 >= _SHARED and 2 * steps <= _LAUNCHES
        return _THREADS if target.threads >= _THREADS and shares else 0

    def program(self, op: DynamicLstm, attr: PrimitiveAttr, target: Target) -> Program:
        steps, batch, gates, hidden = op.src.dims
        how = self._how
        if steps * batch < _FEW_ROWS or (how == "bytes" and target.isa not in _WITH_BYTES):
            how = "pairs"
        blocks, groups = -(-hidden // 16), -(-hidden // 4)
        sizes = (
            gates * blocks * 64, gates * blocks * 4, STATE_NUMBERS, batch * hidden, batch * blocks * 32, batch * 4,
            batch * gates * hidden * 4,
        )  # fmt: skip
        scratchpad, places = 0, list[LaunchArgument]()
        for size in sizes:
            places.append(("s", scratchpad))
            # Kernels read whole vectors.
            scratchpad += -(-size // 64) * 64 + 64
        sums, fits, *scratch = places
        kernels, launches = list[KernelSpec](), list[Launch]()

        def launch(kernel: KernelSpec, args: tuple[LaunchArgument, ...], items: int) -> None:
            if kernel not in kernels:
                kernels.append(kernel)
            launches.append(Launch(kernels.index(kernel), args, items))

        if how != "pairs":
            study = KernelSpec.of("dynamic_lstm_weights", how=how)
            launch(study, (_place(Arg.WEIGHTS, op.weights), sums, fits, ("i", groups)), gates * blocks)
        strips = -(-batch // _STRIP)
        strip = -(-batch // strips)
        memories = (
            _place(Arg.SRC, op.src), _place(Arg.SRC_1, op.src_iter), _place(Arg.SRC_2, op.src_iter_c),
            _place(Arg.WEIGHTS, op.weights), sums, fits, _place(Arg.SCALE, op.scales), _place(Arg.SHIFT, op.points),
            _place(Arg.DST, op.dst), _place(Arg.DST_1, op.dst_iter_c), *scratch,
        )  # fmt: skip

        def run(part: str, first: int, end: int, items: int) -> None:
            numbers = (first, end, steps, batch, hidden, strip, int(op.backwards), int(op.src_iter is not None))
            kernel = KernelSpec.of("dynamic_lstm", part=part, how=how)
            launch(kernel, (*memories, *(("i", number) for number in numbers)), items)

        if target.threads < _THREADS:
            run("steps", 0, steps, 1)
        else:
            for step in range(steps):
                if step or op.src_iter is not None:
                    run("state", step, step + 1, 1)
                run("cells", step, step + 1, blocks * strips)
        return Program(tuple(kernels), tuple(launches), b"", scratchpad)


def _place(arg: Arg, md: MemoryDesc | None) -> LaunchArgument:
    """Return the place of an argument, 0 for one that there is not."""
    return _NONE if md is None else ("m", (int(arg), 0))


IMPLEMENTATIONS = (NativeDynamicLstm("vnni"), NativeDynamicLstm("bytes"))
