"""Descriptors of nodes are kept by operands and attributes; values that are alike and not the same are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from poolrt.graph.inference.operations import infer, op_desc
from poolrt.workers.desc import MemoryDesc

SOURCE = MemoryDesc((3, 5), "f32")


def test_equal_nodes_have_one_descriptor() -> None:
    attrs = {"algorithm": "clip", "alpha": 0.0, "beta": 6.0}
    assert op_desc("eltwise", [SOURCE], attrs) is op_desc("eltwise", (SOURCE,), dict(attrs))
    assert op_desc("eltwise", [SOURCE], attrs) != op_desc("eltwise", [SOURCE], {**attrs, "beta": 7.0})
    assert op_desc("eltwise", [SOURCE], attrs) != op_desc("eltwise", [MemoryDesc((5, 3), "f32")], attrs)


def test_a_truth_value_is_refused_after_an_equal_number_was_accepted() -> None:
    assert infer("softmax", [SOURCE], {"axis": 1})[0].dims == (3, 5)
    with pytest.raises(ValueError, match="axis: expect an integer"):
        infer("softmax", [SOURCE], {"axis": True})


def test_a_zero_keeps_its_sign_after_the_other_one() -> None:
    one, other = (
        op_desc("eltwise", [SOURCE], {"algorithm": "linear", "alpha": 2.0, "beta": zero}) for zero in (0.0, -0.0)
    )
    assert one != other


def test_arrays_whose_texts_are_shortened_are_not_confused() -> None:
    pads = np.array([0, 1, 0]), np.array([0, 2, 0])
    with np.printoptions(threshold=1, edgeitems=1):
        assert repr(pads[0]) == repr(pads[1])
        found = [
            infer("pad", [MemoryDesc((2, 3, 4), "f32")], {"padding_l": each, "padding_r": each, "mode": "constant"})
            for each in pads
        ]
    assert [desc.dims for (desc,) in found] == [(2, 5, 4), (2, 7, 4)]
