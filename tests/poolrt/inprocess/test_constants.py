"""Keys of constants: equal when a graph is compiled again, different for different constants."""

from __future__ import annotations

import numpy as np

from poolrt.graph.constant import Constant, make_constant
from poolrt.inprocess.constants import ConstantKeys

from .networks import array


def test_the_same_of_a_graphs_arrays_is_known_again_without_being_read() -> None:
    weights = make_constant(array(8, 6))
    keys = ConstantKeys([weights])
    again = Constant(weights.array, None, "f32")
    assert keys.key(again) == keys.key(weights)
    assert keys.key(again.transpose((1, 0))) == keys.key(weights.transpose((1, 0)))
    assert keys.key(weights.multiply(np.full(8, 2.0))) == keys.key(again.multiply(np.full(8, 2.0)))


def test_other_parts_views_scales_and_types_of_an_array_are_others() -> None:
    weights = make_constant(array(6, 6))
    keys = ConstantKeys([weights])
    made = [
        weights,
        weights.transpose((1, 0)),
        weights.reshape((4, 9)),
        weights.slice((0, 0), (1, 1), (3, 6)),
        weights.slice((3, 0), (1, 1), (3, 6)),
        weights.multiply(np.full(6, 2.0)),
        weights.multiply(np.full(6, 3.0)),
        Constant(weights.array, None, "bf16"),
    ]
    assert len({keys.key(constant) for constant in made}) == len(made)


def test_what_passes_made_is_known_by_its_content() -> None:
    keys = ConstantKeys([])
    assert keys.key(make_constant(array(5))) == keys.key(make_constant(array(5)))
    assert keys.key(make_constant(array(5))) != keys.key(make_constant(array(5, seed=1)))
    assert keys.key(make_constant(np.zeros((2, 3), np.int32), None)) != keys.key(
        make_constant(np.zeros((2, 3), np.float32))
    )
