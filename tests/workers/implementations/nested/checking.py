"""Check implementations made of other primitives against NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import OpDesc, PrimitiveAttr
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from tests.references import assert_close, results
from tests.workers.implementations.reference.drawing import Runner, arguments

Array = NDArray[Any]
#: Small integers, whose products and sums are exact in float32 in any order.
EXACT: Final = 4.0


def nested_of(op: OpDesc, attr: PrimitiveAttr, target: Target) -> PrimitiveDesc | None:
    """Return the primitive descriptor of the implementation made of others, None where it declines."""
    found = {pd.impl_name(): pd for pd in primitive_descs(op, attr, target)}
    return found.get("nested:matmul")


def check(
    runner: Runner, op: OpDesc, attr: PrimitiveAttr | None = None, args: Mapping[int, Array] | None = None,
    threshold: float = 0.0,
) -> PrimitiveDesc:  # fmt: skip
    """Raise AssertionError unless the nested implementation accepts, and gives what NumPy does."""
    attr = attr or PrimitiveAttr()
    pd = nested_of(op, attr, runner.target)
    assert pd is not None, f"{op} {attr} is declined"
    given = dict(arguments(pd.op, attr, 1, -EXACT, EXACT)) if args is None else dict(args)
    if args is None:
        given = {arg: np.rint(values).astype(values.dtype) for arg, values in given.items()}
    memories = pd.memories()
    wanted, got = results(pd.op, attr, given), runner.results(pd, given)
    assert set(got) == {int(arg) for arg in wanted}
    for arg, want in wanted.items():
        assert_close(got[arg], want, memories[arg].dtype, threshold, f"{op} {attr} argument {int(arg)}")
    return pd
