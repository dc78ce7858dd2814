"""Local response normalization across channels, row-major or in blocks of 16 channels."""

from __future__ import annotations

import math

from ...desc import Arg, Lrn, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import LANES, channel_blocks, channel_tail, is_blocked, refuse_different, refuse_permuted
from .implementation import NativeImplementation

#: Positions that one work item covers in blocks of 16 channels.
_CHUNK = 256
#: Positions of a channel that an item of the kernel of rows has, its own number.
_POSITIONS = 64


class NativeLrn(NativeImplementation[Lrn]):
    """Vectors along positions (row-major), or along channels with the neighbouring blocks (blocked)."""

    name = "native:lrn"

    def reject(self, op: Lrn, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "lrn takes no post-ops"
        op = self.complete(op, attr, target)
        refused = refuse_permuted(op.src, op.dst) or refuse_different(op.src, op.dst)
        if refused is None and is_blocked(op.dst) and op.local_size > 2 * LANES:
            return f"local_size {op.local_size} reaches beyond the neighbouring block of {LANES} channels"
        return refused

    def program(self, op: Lrn, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        batch, channels = op.dst.dims[:2]
        positions = math.prod(op.dst.dims[2:])
        power = {0.5: "0.5", 0.75: "0.75", 1.0: "1"}.get(op.beta, "any")
        numbers: tuple[int, ...]
        if is_blocked(op.dst):
            blocks = channel_blocks(op.dst)
            kernel = KernelSpec.of("lrn", part="lanes", power=power, size=op.local_size)
            numbers = (blocks, channel_tail(op.dst), positions, _CHUNK)
            work = batch * blocks * -(-positions // _CHUNK)
        else:
            kernel = KernelSpec.of("lrn", part="rows", power=power)
            numbers = (channels, positions, (op.local_size - 1) // 2, op.local_size // 2)
            work = batch * -(-positions // _POSITIONS)
        args: tuple[LaunchArgument, ...] = (
            ("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)), *(("i", n) for n in numbers),
            ("f", op.alpha / op.local_size), ("f", float(op.beta)), ("f", float(op.k)),
        )  # fmt: skip
        return Program((kernel,), (Launch(0, args, work),))


IMPLEMENTATIONS = (NativeLrn(),)
