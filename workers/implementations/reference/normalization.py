"""Batch, layer and group normalisation, forward and backward."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

from ...desc import Arg, BatchNormalization, GroupNormalization, LayerNormalization, PrimitiveAttr
from ...engines.target import Target
from ..program import LaunchArgument, Program
from .attributes import refuse_attributes
from .implementation import ReferenceImplementation
from .tables import Run, Tables

Op = TypeVar("Op", BatchNormalization, LayerNormalization, GroupNormalization)
Normalization = BatchNormalization | LayerNormalization | GroupNormalization
_NOTHING: LaunchArgument = ("i", 0)


class Rows(NamedTuple):
    """Which elements share a mean and which a scale, in the words and the order of the kernels' `rows`."""

    length: int
    run: int
    skip: int
    rows: int
    period: int
    channels: int
    reach: int


class ReferenceNormalization(ReferenceImplementation[Op]):
    """Any data types and layouts, every flag; one mean a work item.

    Layer and group normalisation multiply the result by src's scale, as oneDNN does; batch normalisation has no scales.
    """

    def __init__(self, kind: str) -> None:
        self.name = f"ref:{kind}"

    def reject(self, op: Op, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.zero_points or (attr.scales and isinstance(op, BatchNormalization)):
            return f"{op.kind} takes no {'zero points' if attr.zero_points else 'scales'}"
        if any(item.mask for item in attr.scales):
            return "scales must not vary"
        return refuse_attributes(op, attr, op.dst)

    def program(self, op: Op, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        rows = _rows(op)
        table = tables.numbers(rows)
        described = op.memories()

        def record(arg: int) -> LaunchArgument:
            return tables.tensor(arg, described[arg], scaled=arg != Arg.SRC) if arg in described else _NOTHING

        given: LaunchArgument = ("i", int("use_global_stats" in op.flags))
        relu: LaunchArgument = ("i", int("fuse_norm_relu" in op.flags))
        epsilon: LaunchArgument = ("f", op.epsilon)
        written = [(arg, described[arg]) for arg in op.outputs()]
        src, mean, variance = (record(arg) for arg in (Arg.SRC, Arg.MEAN, Arg.VARIANCE))
        if op.is_forward:
            chain = tables.chain(op.dst, [tables.scales(Arg.SRC, op.src, op.dst.dims, range(op.dst.ndims))])
            more: list[LaunchArgument] = [record(arg) for arg in (Arg.SCALE, Arg.SHIFT, Arg.DST, Arg.WORKSPACE)]
            centered: LaunchArgument = ("i", int("rms_norm" not in op.flags))
            args: tuple[LaunchArgument, ...] = (
                src,
                mean,
                variance,
                *more,
                chain,
                table,
                given,
                relu,
                centered,
                epsilon,
            )
            return tables.program("normalization", args, rows.rows, written)
        chain = tables.chain(described[Arg.DIFF_SRC])
        errors: list[LaunchArgument] = [record(Arg.DIFF_DST), record(Arg.WORKSPACE)]
        gradients: list[LaunchArgument] = [record(Arg.DIFF_SCALE), record(Arg.DIFF_SHIFT)]
        further = []
        if gradients != [_NOTHING, _NOTHING]:
            args = (src, mean, variance, *errors, *gradients, chain, table, epsilon)
            further.append(Run("normalization_weights", args, rows.channels))
        args = (src, mean, variance, record(Arg.SCALE), *errors, record(Arg.DIFF_SRC), chain, table, given, epsilon)
        return tables.program("normalization_backward", args, rows.rows, written, further)


def _rows(op: Normalization) -> Rows:
    dims = op.src.dims
    if isinstance(op, LayerNormalization):
        count, length = math.prod(dims[:-1]), dims[-1]
        return Rows(length, run=length, skip=0, rows=count, period=1, channels=length, reach=count)
    batch, channels, area = dims[0], dims[1], math.prod(dims[2:])
    if isinstance(op, GroupNormalization):
        length = channels // op.groups * area
        return Rows(length, length, 0, batch * op.groups, period=area, channels=channels, reach=batch * area)
    return Rows(batch * area, area, channels * area, channels, period=area, channels=channels, reach=batch * area)
