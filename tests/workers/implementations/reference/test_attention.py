"""The reference implementation of attention, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, Attention

from .drawing import Runner, arguments, attributes, check, described, examples


@examples(8)
@given(data=st.data())
def test_attention_takes_any_mask_type_and_layout(runner: Runner, data: st.DataObject) -> None:
    batch, groups, shared, rows, keys, depth, width = (
        data.draw(st.integers(1, most)) for most in (2, 2, 3, 5, 6, 2, 4)
    )
    scores = (batch, groups * shared, rows, keys)
    mask = None
    if data.draw(st.booleans()):
        dims = tuple(data.draw(st.sampled_from((size, 1))) for size in scores)
        mask = data.draw(described(dims, data.draw(st.sampled_from((None, "bool", "f32")))))
    query, key, value, dst = (
        data.draw(described(dims))
        for dims in (
            (*scores[:3], depth), (batch, groups, keys, depth), (batch, groups, keys, width), (*scores[:3], width)
        )
    )  # fmt: skip
    op = Attention(
        query, key, value, mask, dst, data.draw(st.sampled_from((None, 0.25, -0.5))), data.draw(st.booleans())
    )
    attr = data.draw(attributes(op, (Arg.SRC, Arg.SRC_1)))
    # A comparison may turn the last bit of a mean into another result.
    attr = replace(attr, post_ops=tuple(p for p in attr.post_ops if p.algorithm not in ("ge", "lt", "ne")))
    args = arguments(op, attr, data.draw(st.integers(0, 99)), -1.5, 1.5)
    # Nothing cancels, so that errors are relative to the result.
    check(runner, op, attr, args=args | {Arg.SRC_2: np.abs(args[Arg.SRC_2])})
