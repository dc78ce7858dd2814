"""Layer and group normalization on native kernels, with float64 results of the definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    GroupNormalization,
    LayerNormalization,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    post_op_src,
)
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import results
from tests.workers.cases import integers, normals
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.problems import FAST, summand

Array = NDArray[Any]
Normalization = LayerNormalization | GroupNormalization
BOTH = ("use_scale", "use_shift")


def layer(*dims: int, epsilon: float = 1e-5, flags: tuple[str, ...] = BOTH, prop: str = "forward_training") -> Any:
    md = MemoryDesc(dims, "f32")
    return LayerNormalization(md, md, epsilon, flags, prop)


def group(groups: int, *dims: int, flags: tuple[str, ...] = BOTH) -> GroupNormalization:
    md = MemoryDesc(dims, "f32")
    return GroupNormalization(md, md, groups, 1e-5, flags, "forward_training")


def arguments(op: Normalization, src: Array | None = None) -> dict[int, Array]:
    """Return drawn values of everything that is read."""
    made = {int(a): normals(md.dims, int(a)) for a, md in op.memories().items() if a not in op.outputs()}
    if Arg.VARIANCE in made:
        made[int(Arg.VARIANCE)] = np.abs(made[int(Arg.VARIANCE)]) + np.float32(0.1)
    return made if src is None else {**made, int(Arg.SRC): src}


def check(
    native: NativeRunner, isa: str, op: Normalization, args: dict[int, Array], attr: PrimitiveAttr | None = None,
    limit: float = FAST["layer_normalization"],
) -> None:  # fmt: skip
    attr = attr or PrimitiveAttr()
    pd = primitive_desc(op, attr, target_of(isa))
    assert pd.impl_name() == "native:rows"
    got, wanted = native.results(pd, args), results(op, attr, args)
    assert got.keys() == {int(arg) for arg in wanted}
    for arg, want in wanted.items():
        size = np.maximum(np.abs(want), summand(op, args, pd.impl_name(), arg))
        assert np.array_equal(np.isnan(got[arg]), np.isnan(want))
        assert np.nanmax(np.abs(got[arg] - want) / np.maximum(size, 1e-5), initial=0.0) <= limit, Arg(arg).name


FLAGS = (BOTH, (), ("use_scale",), ("use_shift", "use_global_stats"))
RMS = (("rms_norm", "use_scale"), ("rms_norm", "use_global_stats", "use_shift"))


def test_rows_of_any_length_are_normalised(native: NativeRunner, isa: str) -> None:
    rows = ((3, 1), (2, 15), (5, 16), (2, 3, 17), (1, 2, 2, 80), (3, 0, 7), (2, 1000), (1, 4099))
    for number, dims in enumerate(rows):
        for flags in (FLAGS[number % 4], FLAGS[(number + 1) % 4], RMS[number % 2]):
            op = layer(*dims, flags=flags)
            check(native, isa, op, arguments(op))
            op = layer(*dims, flags=flags, prop="forward_inference")
            check(native, isa, op, arguments(op))


@pytest.mark.slow
def test_groups_of_channels_are_normalised(native: NativeRunner, isa: str) -> None:
    problems = ((3, (2, 6, 5, 7)), (1, (1, 5, 4)), (4, (2, 8)), (19, (2, 19, 4, 4)), (2, (3, 4, 2, 3, 17)))
    for number, (groups, dims) in enumerate(problems):
        for flags in (FLAGS[number % 4], FLAGS[(number + 1) % 4]):
            op = group(groups, *dims, flags=flags)
            check(native, isa, op, arguments(op))


@pytest.mark.parametrize("shift", [0.0, 1e4, -3e6])
def test_a_mean_that_is_large_against_the_deviation_costs_no_precision(native: NativeRunner, shift: float) -> None:
    """The mean is no float32: rounded, it would leave errors of a half unit in its last place in every element."""
    for op in (layer(3, 777, flags=()), group(2, 1, 4, 50, flags=())):
        src = (np.float32(shift) + integers(op.src.dims, "shifted")).astype(np.float32)
        check(native, host_isa(), op, arguments(op, src))


def test_long_rows_are_as_precise_as_short_ones(native: NativeRunner) -> None:
    op = layer(1, 1 << 20)
    check(native, host_isa(), op, arguments(op, normals(op.src.dims, "long") + np.float32(100.0)))


def test_nan_stays_in_its_row_and_a_constant_row_becomes_the_shift(native: NativeRunner) -> None:
    op = layer(4, 40)
    src = normals(op.src.dims)
    src[1, 39], src[2] = np.nan, 7.25
    check(native, host_isa(), op, arguments(op, src))


@pytest.mark.slow
@pytest.mark.parametrize("op", [layer(3, 37, prop="forward_inference"), group(2, 2, 6, 3, 7)], ids=["layer", "group"])
def test_a_chain_follows(native: NativeRunner, isa: str, op: Normalization) -> None:
    """The factors of the chain are up to 3, and so are the errors."""
    chain = PrimitiveAttr((PostOp("binary", "mul", src1=op.dst), PostOp("eltwise", "relu")))
    args = {**arguments(op), post_op_src(0): integers(op.dst.dims, "factor", low=1, high=3)}
    check(
        native,
        isa,
        replace(op, flags=()),
        {a: v for a, v in args.items() if a not in (Arg.SCALE, Arg.SHIFT)},
        chain,
        1.5e-6,
    )


def test_what_the_rows_cannot_do_is_refused_with_the_reason() -> None:
    permuted = MemoryDesc((4, 6), "f32", "ba")
    blocked = MemoryDesc((1, 32, 4, 4), "f32", "aBcd16b")
    for op, why in (
        (LayerNormalization(permuted, permuted, 1e-5), "only row-major"),
        (GroupNormalization(blocked, blocked, 2, 1e-5), "only row-major"),
        (layer(4, 0), "without elements"),
    ):
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)
