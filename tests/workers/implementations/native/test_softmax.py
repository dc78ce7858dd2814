"""Softmax on native kernels."""

from __future__ import annotations

import pytest

from poolrt.workers.desc import Softmax
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.workers.cases import Case, cases
from tests.workers.native_runner import NativeRunner


def runs_over_images(case: Case) -> bool:
    return isinstance(case.op, Softmax) and case.op.axis == 0


BLOCKED = cases("softmax", "blocked")


@pytest.mark.parametrize("case", [*cases("softmax"), *BLOCKED], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("case", [c for c in BLOCKED if runs_over_images(c)], ids=str)
def test_the_axis_of_images_is_left_to_the_reference_in_blocks_of_channels(case: Case) -> None:
    assert primitive_desc(case.op, case.attr, cpu_target()).impl_name() == "ref:softmax"
    with pytest.raises(UnsupportedPrimitive, match="axis 0"):
        primitive_desc(case.op, case.attr, cpu_target(), references=False)
