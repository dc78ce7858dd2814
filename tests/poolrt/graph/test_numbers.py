"""Numbers of graphs: one of any type stands for the same attribute, or a GraphError names the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from poolrt import Graph, GraphError, Value


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


Build = Callable[..., object]
#: Operation -> a call of it, and its arguments that have numbers.
CALLS: Final[dict[str, tuple[Build, tuple[str, ...]]]] = {
    "convolution": (
        lambda g, x, **k: g.convolution(x, ones(4, 4, 2, 2), **k), ("strides", "padding", "dilations", "groups")
    ),
    "deconvolution": (
        lambda g, x, **k: g.deconvolution(x, ones(4, 4, 2, 2), **k),
        ("strides", "padding", "dilations", "groups", "output_padding"),
    ),
    "pooling": (
        lambda g, x, **k: g.pooling(x, "max", **{"kernel": 2, **k}), ("kernel", "strides", "padding", "dilations")
    ),
    "resampling": (lambda g, x, **k: g.resampling(x, "nearest", **k), ("sizes", "factors")),
    "batch_normalization": (lambda g, x, **k: g.batch_normalization(x, **k), ("epsilon",)),
    "layer_normalization": (lambda g, x, **k: g.layer_normalization(x, **k), ("epsilon",)),
    "group_normalization": (lambda g, x, **k: g.group_normalization(x, **{"groups": 2, **k}), ("groups", "epsilon")),
    "lrn": (lambda g, x, **k: g.lrn(x, **k), ("local_size", "alpha", "beta", "k")),
    "attention": (lambda g, x, **k: g.attention(x, x, x, **k), ("scale", "causal")),
    "softmax": (lambda g, x, **k: g.softmax(x, **k), ("axis",)),
    "eltwise": (lambda g, x, **k: g.eltwise(x, "linear", **k), ("alpha", "beta")),
    "sum": (lambda g, x, **k: g.sum([x, x], **k), ("scales_of_srcs",)),
    "reduction": (lambda g, x, **k: g.reduction(x, "norm_lp_sum", **k), ("axes", "p", "eps", "keep_dims")),
    "concat": (lambda g, x, **k: g.concat([x, x], **k), ("axis",)),
    "gather": (lambda g, x, **k: g.gather(x, [0, -1], **k), ("axis",)),
    "shuffle": (lambda g, x, **k: g.shuffle(x, **{"axis": 1, "group_size": 2, **k}), ("axis", "group_size")),
    "reshape": (lambda g, x, **k: g.reshape(x, **k), ("shape",)),
    "squeeze": (lambda g, x, **k: g.squeeze(g.unsqueeze(x, 0), **k), ("axes",)),
    "unsqueeze": (lambda g, x, **k: g.unsqueeze(x, **k), ("axes",)),
    "transpose": (lambda g, x, **k: g.transpose(x, **k), ("perm",)),
    "slice": (
        lambda g, x, **k: g.slice(x, **{"starts": 0, "ends": 2, **k}), ("starts", "ends", "axes", "steps")
    ),
    "expand": (lambda g, x, **k: g.expand(x, **k), ("shape",)),
    "rnn": (
        lambda g, x, **k: g.rnn(
            ones(2, 2, 3), ones(1, 1, 3, 1, 4), ones(1, 1, 4, 1, 4), activation="relu", **k
        ),
        ("alpha",),
    ),
    "gru": (
        lambda g, x, **k: g.gru(ones(2, 2, 3), ones(1, 1, 3, 3, 4), ones(1, 1, 4, 3, 4), **k), ("linear_before_reset",)
    ),
    "input": (lambda g, x, **k: g.input("y", **k), ("shape",)),
}  # fmt: skip
ARGUMENTS: Final = [(name, argument) for name, (_, arguments) in CALLS.items() for argument in arguments]
#: What is no number, or none that every argument takes.
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 1.5, -0.0, math.nan, math.inf, 1e300, 2**63, 10**5000, "", "x", b"\1\1", {}, set(), (1.5, 1.5),
    ("1", "1"), (True, True), (None,), ((1,), (1,)), np.uint64(2**64 - 1), np.float16(math.nan), np.bool_(True),
    np.array([True, True]), np.array([1.5, 1.5]), np.array(1.5), np.array(True), np.array([[1]]), np.array(None),
    np.array([1, None], object), np.str_("relu"), np.datetime64(0, "s"), 1j, object(), int, slice(None),
)  # fmt: skip
#: Statements of one number, and of two.
ONES: Final = (
    1,
    1.0,
    np.float32(1),
    np.float16(1),
    np.int64(1),
    np.uint8(1),
    np.array(1),
    np.array(1.0),
    np.longdouble(1),
)
PAIRS: Final = (
    (1, 1), [1, 1.0], (np.int8(1), np.float64(1)), np.array([1, 1]), np.array([1.0, 1.0]), (np.array(1), np.array(1.0)),
)  # fmt: skip


def attributes(name: str, argument: str, value: Any) -> Any:
    """Return the attributes of the last node and the shape of the input that a call adds, or the error's text."""
    graph = Graph()
    given: Value = graph.input("x", (2, 4, 6, 6))
    try:
        CALLS[name][0](graph, given, **{argument: value})
    except GraphError as error:
        assert str(error).isprintable()
        return str(error)
    graph.output("z", given)
    nodes = graph.to_ir().nodes
    return dict(nodes[-1].attrs) if nodes else graph.inputs


def numbers(value: Any) -> list[Any]:
    """Return the numbers and texts in attributes."""
    if isinstance(value, dict):
        return [part for item in value.values() for part in numbers(item)]
    return [part for item in value for part in numbers(item)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_a_number_of_a_graph_has_its_declared_type_or_is_refused_by_name(name: str, argument: str) -> None:
    for value in (*VALUES, *ONES, *PAIRS):
        found = attributes(name, argument, value)
        if isinstance(found, str):
            assert name in found
        else:
            assert {type(part) for part in numbers(found)} <= {int, float, str, bool}


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
@pytest.mark.parametrize("values", [ONES, PAIRS], ids=["one", "two"])
def test_equal_numbers_of_a_graph_make_equal_attributes(name: str, argument: str, values: tuple[Any, ...]) -> None:
    found = [attributes(name, argument, value) for value in values]
    if isinstance(found[0], str):
        # An argument for another number of integers refuses every statement of them, and names them or itself.
        assert all(isinstance(each, str) and argument.removesuffix("_of_srcs") in each for each in found)
    else:
        assert all(each == found[0] for each in found)
        assert all(list(map(type, numbers(each))) == list(map(type, numbers(found[0]))) for each in found)


@pytest.mark.parametrize(
    ("name", "argument", "value", "message"),
    [
        ("convolution", "strides", np.array(1.5), "strides: expect one integer or 2, got array(1.5)"),
        ("convolution", "groups", True, "groups: expect an integer of 64 bits, got True"),
        ("resampling", "factors", True, "factors: expect a tuple of numbers that a float32 holds, got True"),
        ("unsqueeze", "axes", np.True_, "axes: expect a tuple of integers of 64 bits, got np.True_"),
        ("slice", "starts", 1.5, "starts: expect a tuple of integers of 64 bits, got 1.5"),
        ("transpose", "perm", 5, "perm: expect a tuple of integers of 64 bits, got 5"),
        ("gru", "linear_before_reset", "x", "linear_before_reset: expect a bool, got 'x'"),
        ("reduction", "keep_dims", 1, "keep_dims: expect a bool, got 1"),
        ("input", "shape", (True, 2), "shape: dims: expect integers, got (True, 2)"),
    ],
)
def test_the_error_names_the_argument_and_the_value(name: str, argument: str, value: Any, message: str) -> None:
    assert message in attributes(name, argument, value)
