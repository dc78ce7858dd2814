"""Attributes: what each of them takes, and errors that name the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, Quantisation
from poolrt.workers.desc.attributes import (
    BINARY_ALGORITHMS,
    ELTWISE_ALGORITHMS,
    FPMATH_MODES,
    MAX_POST_OPS,
    SCRATCHPAD_MODES,
)
from poolrt.workers.desc.codec import decode, encode

SRC1 = MemoryDesc((1, 3), "f32")
RELU = PostOp("eltwise", "relu")
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: PostOp("conv", "relu"), "kind: unknown post-op kind 'conv'; known: eltwise, binary, sum"),
    (lambda: PostOp("eltwise", "add"), "algorithm: unknown eltwise algorithm 'add'; known: relu, "),
    (lambda: PostOp("binary", "relu", src1=SRC1), "algorithm: unknown binary algorithm 'relu'; known: add, "),
    (lambda: PostOp("sum", "add"), "algorithm: unknown sum algorithm 'add'"),
    (lambda: PostOp("binary", "add"), "src1: expect one for a binary post-op"),
    (lambda: PostOp("eltwise", "relu", src1=SRC1), "src1: .* none for another"),
    (lambda: PostOp("eltwise", "relu", dtype="s8"), "dtype: only a sum"),
    (lambda: PostOp.accumulate(dtype="s7"), "unknown data type 's7'"),
    (lambda: PrimitiveAttr((RELU,) * (MAX_POST_OPS + 1)), f"post_ops: at most {MAX_POST_OPS}, got {MAX_POST_OPS + 1}"),
    (lambda: Quantisation(Arg.SCRATCHPAD), "arg: argument 80 takes no scales or zero points"),
    (lambda: Quantisation(Arg.SRC, -1), "mask: must not be negative, got -1"),
    (lambda: Quantisation(Arg.SRC, 8).desc(SRC1, "f32"), "mask: 0x8 names a dimension"),
    (lambda: PrimitiveAttr(scales=(Quantisation(Arg.SRC),) * 2), "scales: an argument is named twice"),
    (lambda: PrimitiveAttr(zero_points=(Quantisation(Arg.DST),) * 2), "zero_points: an argument is named twice"),
    (
        lambda: PrimitiveAttr(scales=(Quantisation(Arg.WEIGHTS),)).memories({Arg.SRC: SRC1}),
        "scales: the operation has no argument 33",
    ),
    (lambda: PrimitiveAttr(fpmath_mode="fast"), f"fpmath_mode: unknown 'fast'; known: {', '.join(FPMATH_MODES)}"),
    (
        lambda: PrimitiveAttr(scratchpad_mode="mine"),
        f"scratchpad_mode: unknown 'mine'; known: {', '.join(SCRATCHPAD_MODES)}",
    ),
    (lambda: PrimitiveAttr(deterministic=1), "deterministic: expect a bool, got 1"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_errors_name_the_argument(number: int) -> None:
    make, message = WRONG[number]
    with pytest.raises(ValueError, match=message):
        make()


def test_everything_that_is_known_is_taken_and_survives_a_message() -> None:
    steps = [PostOp("eltwise", algorithm, 0.5, 0.25) for algorithm in ELTWISE_ALGORITHMS]
    steps += [PostOp("binary", algorithm, src1=SRC1) for algorithm in BINARY_ALGORITHMS]
    steps += [PostOp.accumulate(0.5, 3, "u8")]
    quantised = tuple(Quantisation(arg, mask) for arg, mask in ((Arg.SRC, 0), (Arg.WEIGHTS, 1), (Arg.DST, 3)))
    chains = [tuple(steps[i : i + MAX_POST_OPS]) for i in range(0, len(steps), MAX_POST_OPS)]
    for chain in chains:
        for fpmath in FPMATH_MODES:
            for scratchpad in SCRATCHPAD_MODES:
                attr = PrimitiveAttr(chain, quantised, quantised[:1], fpmath, scratchpad, True)
                assert decode(PrimitiveAttr, encode(attr)) == attr
    # Arguments may be named in any order
    assert PrimitiveAttr(scales=quantised[::-1]) == PrimitiveAttr(scales=quantised)
