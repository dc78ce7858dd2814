"""Convolution of groups that are no whole blocks of 16 channels, or in row-major memory: gathered into blocks and back.

Each group's channels are copied into blocks of their own, computed as a blocked convolution and copied to where they
belong. The copies cost little beside the sums, unless the groups are tiny.
"""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ..program import LaunchArgument, Program
from .blocks import is_blocked, refuse
from .chain import chain_source
from .convolution_blocked import Operands, Reach, chosen, padded, reduce, refuse_operands
from .convolution_chain import refuse_bounded
from .convolution_grouped import group_weights_tag
from .convolution_window import Window
from .nest_builder import NestBuilder


class NativeGatheredConvolution:
    """1 to 3 spatial dimensions, any groups; activations row-major or in blocks of 16 channels.

    Kernels read 16 weights of a row that may have fewer: up to 60 bytes behind the last row of packed weights.
    """

    name = "native:gathered"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4, 5):
            return f"{op.src.ndims - 2} spatial dimensions; only 1 to 3 are supported"
        op = self.complete(op, attr, target)
        for md in (op.src, op.dst):
            if not (md.is_plain or is_blocked(md)):
                return f"layout {md.tag}; only row-major and blocks of 16 channels are supported"
        if op.weights.tag != group_weights_tag(op) and not op.weights.is_plain:
            return f"weights layout {op.weights.tag}; only row-major and {group_weights_tag(op)} are supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        return replace(
            op, src=chosen(op.src, ""), weights=chosen(op.weights, group_weights_tag(op)), dst=chosen(op.dst, ""),
            bias=op.bias and chosen(op.bias, ""),
        )  # fmt: skip

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        build = NestBuilder()
        window = Window.of(op)
        source = _gather(build, op.src, op.groups, ("m", (int(Arg.SRC), 0)))
        blocks = -(-op.weights.dims[1] // 16)
        row = op.dst.dims[1] // op.groups * 4
        reach = Reach.of(window, op.weights.dims[1], row)
        planes = op.groups * blocks
        source = padded(build, window, source, op.src.dims[0] * planes)
        weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        if op.weights.tag != group_weights_tag(op):
            packed = op.weights.with_tag(group_weights_tag(op))
            to = build.book(packed.nbytes)
            build.move(op.weights, packed, weights, to)
            weights = to
        residual = chain_source(attr)
        if residual[0] == "m":
            residual = _gather(build, op.dst, op.groups, residual)
        grouped = _grouped(op.dst, op.groups)
        sums = build.book(grouped.nbytes)
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
        group = len(reach.steps) * 16 * row
        operands = Operands(source, weights, bias, sums, residual, group, 64, row)
        reduce(build, op, attr, target, reach.shape, reach.steps, reach.walk(planes, blocks), operands, reach)
        _scatter(build, op.dst, op.groups, sums)
        return build.program()


def _gather(build: NestBuilder, md: MemoryDesc, groups: int, at: LaunchArgument) -> LaunchArgument:
    """Add the copy of an activation into blocks of each group's channels; return its place."""
    plain = md.with_tag("")
    if md.tag != plain.tag:
        to = build.book(plain.nbytes)
        build.move(md, plain, at, to)
        at = to
    grouped = _grouped(md, groups)
    to = build.book(grouped.nbytes)
    build.move(grouped.with_tag(""), grouped, at, to)
    return to


def _scatter(build: NestBuilder, md: MemoryDesc, groups: int, at: LaunchArgument) -> None:
    """Add the copy from blocks of each group's channels to dst."""
    grouped, plain = _grouped(md, groups), md.with_tag("")
    dst: LaunchArgument = ("m", (int(Arg.DST), 0))
    if md.tag == plain.tag:
        build.move(grouped, grouped.with_tag(""), at, dst)
        return
    to = build.book(plain.nbytes)
    build.move(grouped, grouped.with_tag(""), at, to)
    build.move(plain, md, to, dst)


def _grouped(md: MemoryDesc, groups: int) -> MemoryDesc:
    """Return an activation with the groups as a dimension of their own, each in blocks of 16 channels."""
    images, channels, *spatial = md.dims
    letters = "defghijkl"[: len(spatial)]
    return MemoryDesc((images, groups, channels // groups, *spatial), md.dtype, f"abC{letters}16c")
