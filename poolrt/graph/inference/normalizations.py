"""Normalisations, whose flags say which operands follow src."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from poolrt.workers.desc import Arg, MemoryDesc, OpDesc, type_name

from .operands import operand_arguments
from .result import Attrs, Operation, describe_result

_NAMES: Final = {Arg.MEAN: "mean", Arg.VARIANCE: "variance", Arg.SCALE: "scale", Arg.SHIFT: "shift"}


def normalization(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a normalisation of src with the statistics, scale and shift that its flags name, all f32."""
    src, *extra = srcs
    found = op(src, describe_result(src, dtype), **attrs)
    wanted = found.memories()
    for arg, given in zip(operand_arguments(found)[1:], extra, strict=True):
        if given != wanted[arg]:
            name = _NAMES[Arg(arg)]
            if given.dims != wanted[arg].dims:
                raise ValueError(f"{name}: expect {wanted[arg].dims}, got {given.dims}")
            raise ValueError(f"{name}: expect float32, got {type_name(given.dtype)}")
    return found
