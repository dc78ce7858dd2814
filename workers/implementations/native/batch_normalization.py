"""Batch normalization for inference, and its gradients.

Forward, one launch prepares a factor a channel in the scratchpad, one applies it.
"""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, BatchNormalization, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .backward import NativeBackward, refuse_gradient
from .blocks import CHUNK, EVERY_TYPE, LANES, channel_tail, is_blocked, lane_size, refuse_different, refuse_permuted
from .chain import chain, chain_source, refuse_chain
from .implementation import NativeImplementation

#: Rows of channels, without positions, of one item.
_ROWS: Final = 64


class NativeBatchNormalization(NativeImplementation[BatchNormalization]):
    """Vectors along the positions of a channel (row-major), or along 16 channels (blocked, or without positions)."""

    name = "native:batch_normalization"

    def reject(self, op: BatchNormalization, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        refused = refuse_permuted(op.src, op.dst, dtypes=EVERY_TYPE)
        return refused or refuse_different(op.src, op.dst) or refuse_chain(attr, op.dst)

    def program(self, op: BatchNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        batch, channels = op.dst.dims[:2]
        positions = math.prod(op.dst.dims[2:])
        blocks = -(-channels // LANES)
        padded = blocks * LANES
        prepare: tuple[LaunchArgument, ...] = (
            *(("m", (arg, 0)) for arg in (Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT)),
            ("s", 0), ("i", channels), ("i", padded), ("f", float(op.epsilon)),
        )  # fmt: skip
        shared = (("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)), chain_source(attr), ("s", 0), ("i", padded))
        args: tuple[LaunchArgument, ...]
        if is_blocked(op.dst) or positions == 1:
            part = "lanes"
            full, image, position, chunk = 1, padded * positions, LANES, CHUNK // LANES
            if not is_blocked(op.dst):
                # Rows of channels are the positions of one image: numbers of 16 channels are loaded once for many rows.
                full, image, position, chunk = 0, 0, channels, _ROWS
                batch, positions = 1, batch
            block = positions * LANES if is_blocked(op.dst) else LANES
            strides = (blocks, channel_tail(op.dst), full, image, block, positions, position, chunk)
            args = (*shared, *(("i", n) for n in strides))
            work = batch * blocks * -(-positions // chunk)
        else:
            part = "rows"
            args = (*shared, ("i", channels), ("i", positions), ("i", CHUNK))
            work = batch * channels * -(-positions // CHUNK)
        kernels = (
            KernelSpec.of("batch_normalization", part="prepare", dtype=op.dst.dtype),
            KernelSpec.of("batch_normalization", part=part, dtype=op.dst.dtype, chain=chain(attr)),
        )
        return Program(
            kernels,
            (Launch(0, prepare, blocks), Launch(1, args, work)),
            scratchpad=3 * lane_size(op.dst.dtype) * padded,
        )


class NativeBatchNormalizationBackward(NativeBackward[BatchNormalization]):
    """One launch; a channel's runs (row-major), or 16 channels in vectors (blocked, or without positions)."""

    name = "native:batch_normalization_backward"

    def reject(self, op: BatchNormalization, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        refused = refuse_gradient(op, attr, op.src, op.diff_dst, op.diff_src) or refuse_permuted(op.src)
        return refused or ("a tensor without elements" if op.src.elements == 0 else None)

    def program(self, op: BatchNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        memories = op.memories()
        batch, channels = op.src.dims[:2]
        positions, blocks = math.prod(op.src.dims[2:]), -(-channels // LANES)
        order = (
            Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.DIFF_DST, Arg.WORKSPACE, Arg.DIFF_SRC, Arg.DIFF_SCALE,
            Arg.DIFF_SHIFT,
        )  # fmt: skip
        places: list[LaunchArgument] = [("m", (int(arg), 0)) if arg in memories else ("i", 0) for arg in order]
        part, work, numbers = "rows", channels, [batch, channels, positions]
        if is_blocked(op.src) or positions == 1:
            image = blocks * LANES * positions if is_blocked(op.src) else channels
            part, work = "lanes", blocks
            tail = channel_tail(op.src)
            numbers = [batch, tail, image, positions * LANES, positions, int(is_blocked(op.src)), blocks]
        numbers.append(int("use_global_stats" in op.flags))
        marked = "fuse_norm_relu" in op.flags
        kernel = KernelSpec.of("batch_normalization_backward", part=part, marked=marked)
        args = (*places, *(("i", number) for number in numbers), ("f", float(op.epsilon)))
        return Program((kernel,), (Launch(0, args, work),))


IMPLEMENTATIONS = (NativeBatchNormalization(), NativeBatchNormalizationBackward())
