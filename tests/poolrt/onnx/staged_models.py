"""Models that no single plan computes, each with inputs that give it different sizes, and the parts that they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .models import Array, model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Random = np.random.Generator
Feeds = Iterator[dict[str, Array]]
node, port = helper.make_node, helper.make_tensor_value_info
#: Constants that the models below share.
NUMBERS: dict[str, Array] = {
    "zero": np.array(0, np.float32), "none": np.array(0), "at_0": np.array([0]), "at_1": np.array([1]), "at_2": np.array([2]),
    "at_3": np.array([3]), "flat": np.array([-1]), "rows_of_4": np.array([-1, 4]), "many": np.array(1000),
}  # fmt: skip


def made(nodes: list[Any], inputs: dict[str, Any], outputs: Mapping[str, int], **others: Array) -> onnx.ModelProto:
    """Return a model of nodes whose outputs have no declared shapes, with the constants above and others."""
    read = {name for each in nodes for name in inner_names(each)}
    constants = {name: array for name, array in {**NUMBERS, **others}.items() if name in read}
    return model(nodes, inputs, {name: (kind, None) for name, kind in outputs.items()}, constants)


def inner_names(each: Any) -> Iterator[str]:
    yield from each.input
    for attribute in each.attribute:
        for inner in attribute.g.node:
            yield from inner_names(inner)


def graph(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """Return a branch; inputs and outputs are types and shapes by name."""
    taken, given = ([port(name, *each) for name, each in ports.items()] for ports in (inputs, outputs))
    return helper.make_graph(nodes, "branch", taken, given)


def columns(random: Random, *counts: int, width: int | None = None) -> Feeds:
    for count in counts:
        shape = (count,) if width is None else (count, width)
        yield {"x": random.standard_normal(shape, np.float32)}


def chosen_rows(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Rows whose sum is positive, and their products with themselves and with weights."""
    nodes = [
        node("ReduceSum", ["x", "at_1"], ["sums"], keepdims=0),
        node("Greater", ["sums", "zero"], ["chosen"]),
        node("Compress", ["x", "chosen"], ["rows"], axis=0),
        node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        node("MatMul", ["turned", "rows"], ["squares"]),
        node("MatMul", ["rows", "weights"], ["y"]),
    ]
    weights = random.standard_normal((4, 3), np.float32)
    found = made(nodes, {"x": (FLOAT, ["n", 4])}, {"squares": FLOAT, "y": FLOAT}, weights=weights)
    none = {"x": -np.ones((5, 4), np.float32)}
    return found, iter([*columns(random, 30, 7, 30, 12, width=4), none])


def places(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Positive elements by their places, as pairs if their number is even."""
    nodes = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("NonZero", ["positive"], ["found"]),
        node("Transpose", ["found"], ["places"], perm=[1, 0]),
        node("GatherND", ["x", "places"], ["values"]),
        node("Concat", ["values", "values"], ["twice"], axis=0),
        node("Reshape", ["twice", "pairs"], ["paired"]),
        node("ReduceSum", ["paired", "at_0"], ["y"], keepdims=0),
    ]
    found = made(nodes, {"x": (FLOAT, ["n", 4])}, {"y": FLOAT}, pairs=np.array([-1, 2]))
    return found, iter([*columns(random, 9, 8, 3, width=4), {"x": -np.ones((5, 4), np.float32)}])


def boxes(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """The best boxes of each class, with their classes, sorted by one side."""
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        node("Slice", ["chosen", "at_2", "at_3", "at_1"], ["last"]),
        node("Reshape", ["last", "flat"], ["places"]),
        node("Gather", ["boxes", "places"], ["taken"], axis=1),
        node("Reshape", ["taken", "rows_of_4"], ["rows"]),
        node("Slice", ["chosen", "at_1", "at_2", "at_1"], ["middle"]),
        node("Cast", ["middle"], ["classes"], to=FLOAT),
        node("Concat", ["rows", "classes"], ["table"], axis=1),
        node("Slice", ["table", "at_0", "at_1", "at_1"], ["column"]),
        node("Reshape", ["column", "flat"], ["sides"]),
        node("Shape", ["sides"], ["count"]),
        node("Min", ["count", "at_3"], ["k"]),
        node("TopK", ["sides", "k"], ["best", "ranks"]),
        node("Gather", ["table", "ranks"], ["y"], axis=0),
    ]
    inputs = {"boxes": (FLOAT, [1, "n", 4]), "scores": (FLOAT, [1, 2, "n"])}
    limits = {"overlap": np.array([0.5], np.float32), "least": np.array([0.2], np.float32), "most": np.array([10])}
    found = made(nodes, inputs, {"y": FLOAT, "best": FLOAT}, **limits)

    def feeds() -> Feeds:
        for count in (20, 20, 9, 0):
            corner = random.random((1, count, 2), np.float32)
            ends = corner + random.random((1, count, 2), np.float32) / 2
            yield {"boxes": np.concatenate([corner, ends], 2), "scores": random.random((1, 2, count), np.float32)}
        yield {"boxes": np.ones((1, 3, 4), np.float32), "scores": np.zeros((1, 2, 3), np.float32)}

    return found, feeds()


def different(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Different elements, with products and sums of all of them."""
    nodes = [
        node("Unique", ["x"], ["values", "first", "inverse", "counts"], sorted=1),
        node("Cast", ["counts"], ["often"], to=FLOAT),
        node("MatMul", ["values", "often"], ["total"]),
        node("ReduceMean", ["values"], ["mean"], keepdims=0),
        node("CumSum", ["values", "none"], ["sums"]),
    ]
    found = made(nodes, {"x": (FLOAT, ["n"])}, {"total": FLOAT, "mean": FLOAT, "sums": FLOAT})
    return found, iter([{"x": random.integers(0, 6, count).astype(np.float32)} for count in (5, 9, 20, 9, 0)])


def branches(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """The sum of all positive elements if there are more of them, else twice what is there."""
    chosen = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("Compress", ["x", "positive"], ["kept"], axis=0),
        node("ReduceSum", ["kept", "at_0"], ["one"], keepdims=1),
    ]
    then = graph(chosen, {}, {"one": (FLOAT, None)})
    other = graph([node("Add", ["x", "x"], ["two"])], {}, {"two": (FLOAT, None)})
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["condition"]),
        node("If", ["condition"], ["result"], then_branch=then, else_branch=other),
        node("Neg", ["result"], ["y"]),
    ]
    found = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT})
    signs = [{"x": np.abs(each["x"]) * sign} for each in columns(random, 10, 7) for sign in (1, -1)]
    return found, iter([*signs, *columns(random, 10, 12)])


def passes(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """As many passes as there are positive elements, each of which makes what is carried longer."""
    inside = [
        node("Identity", ["goes"], ["goes_on"]),
        node("Concat", ["old", "x"], ["new"], axis=0),
        node("ReduceSum", ["new", "at_0"], ["sum"], keepdims=0),
    ]
    inputs: dict[str, Any] = {"step": (INT64, []), "goes": (BOOL, []), "old": (FLOAT, None)}
    body = graph(inside, inputs, {"goes_on": (BOOL, []), "new": (FLOAT, None), "sum": (FLOAT, [])})
    nodes = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("Cast", ["positive"], ["ones"], to=INT64),
        node("ReduceSum", ["ones"], ["count"], keepdims=0),
        node("Constant", [], ["true"], value=helper.make_tensor("true", BOOL, [], [1])),
        node("Loop", ["count", "true", "x"], ["y", "sums"], body=body),
    ]
    found = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT, "sums": FLOAT})
    return found, iter([*columns(random, 5, 8, 5), {"x": -np.ones(3, np.float32)}])


def until(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Passes that end when a growing sum is great enough: no limit of a loop within a plan."""
    inside = [
        node("Concat", ["old", "x"], ["new"], axis=0),
        node("Abs", ["new"], ["sizes"]),
        node("ReduceSum", ["sizes", "at_0"], ["sum"], keepdims=0),
        node("Less", ["sum", "enough"], ["goes_on"]),
    ]
    inputs: dict[str, Any] = {"step": (INT64, []), "goes": (BOOL, []), "old": (FLOAT, None)}
    body = graph(inside, inputs, {"goes_on": (BOOL, []), "new": (FLOAT, None), "sum": (FLOAT, [])})
    nodes = [node("Neg", ["x"], ["less"]), node("Loop", ["many", "", "less"], ["y", "sums"], body=body)]
    found = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT, "sums": FLOAT}, enough=np.array(40, np.float32))
    return found, columns(random, 5, 8, 5)


def nested(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """A loop with a computed number of passes, a branch in each, and elements that are counted in it."""
    counted = [
        node("Greater", ["x", "sum"], ["above"]),
        node("NonZero", ["above"], ["found"]),
        node("ReduceSum", ["found", "at_1"], ["added"], keepdims=1),
        node("Cast", ["added"], ["as_float"], to=FLOAT),
        node("Reshape", ["as_float", "flat"], ["one"]),
    ]
    then = graph(counted, {}, {"one": (FLOAT, None)})
    other = graph([node("Identity", ["x"], ["two"])], {}, {"two": (FLOAT, None)})
    inside = [
        node("Identity", ["goes"], ["goes_on"]),
        node("ReduceSum", ["old"], ["sum"], keepdims=0),
        node("Cast", ["step"], ["number"], to=FLOAT),
        node("Greater", ["number", "sum"], ["condition"]),
        node("If", ["condition"], ["part"], then_branch=then, else_branch=other),
        node("Concat", ["part", "old"], ["new"], axis=0),
    ]
    inputs: dict[str, Any] = {"step": (INT64, []), "goes": (BOOL, []), "old": (FLOAT, None)}
    body = graph(inside, inputs, {"goes_on": (BOOL, []), "new": (FLOAT, None)})
    nodes = [
        node("ReduceMax", ["x"], ["largest"], keepdims=0),
        node("Abs", ["largest"], ["size"]),
        node("Ceil", ["size"], ["whole"]),
        node("Cast", ["whole"], ["number_of_passes"], to=INT64),
        node("Add", ["number_of_passes", "at_2"], ["count"]),
        node("Loop", ["count", "", "x"], ["longer"], body=body),
        node("Neg", ["longer"], ["y"]),
    ]
    return made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT}), columns(random, 5, 8, 1, 5)


def scanned(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """A scan whose passes count elements of each row, from the last one to the first."""
    inside = [
        node("Greater", ["row", "zero"], ["positive"]),
        node("NonZero", ["positive"], ["found"]),
        node("ReduceSum", ["found", "at_1"], ["sum"], keepdims=1),
        node("Cast", ["sum"], ["as_float"], to=FLOAT),
        node("Reshape", ["as_float", "flat"], ["places"]),
        node("Add", ["old", "places"], ["new"]),
    ]
    body = graph(inside, {"old": (FLOAT, None), "row": (FLOAT, None)}, {"new": (FLOAT, None), "places": (FLOAT, [1])})
    options: dict[str, Any] = {"scan_input_directions": [1], "scan_output_axes": [1]}
    nodes = [
        node("Neg", ["x"], ["less"]),
        node("Scan", ["first", "less"], ["last", "all"], body=body, num_scan_inputs=1, **options),
    ]
    outputs = {"last": FLOAT, "all": FLOAT}
    found = made(nodes, {"x": (FLOAT, ["n", 4])}, outputs, first=np.ones(1, np.float32))
    return found, columns(random, 3, 5, 3, width=4)


def in_a_sequence(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Counted elements as a sequence of tensors, which no array carries from one stage to the next."""
    nodes = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("Compress", ["x", "positive"], ["kept"], axis=0),
        node("SplitToSequence", ["kept"], ["parts"], axis=0, keepdims=1),
        node("SequenceLength", ["parts"], ["count"]),
        node("SequenceAt", ["parts", "none"], ["head"]),
        node("ConcatFromSequence", ["parts"], ["all"], axis=0),
        node("ReduceSum", ["all"], ["sum"], keepdims=0),
    ]
    found = made(nodes, {"x": (FLOAT, ["n"])}, {"head": FLOAT, "count": INT64, "sum": FLOAT})
    return found, iter([{"x": np.abs(each["x"]) - (each["x"] < 0)} for each in columns(random, 12, 20)])


def in_a_function(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """A function of the model's own that counts."""
    zero = helper.make_tensor("none", INT64, [], [0])
    body = [
        node("Greater", ["a", "limit"], ["above"]),
        node("Compress", ["a", "above"], ["kept"], axis=0),
        node("Constant", [], ["none"], value=zero),
        node("CumSum", ["kept", "none"], ["sums"]),
        node("Mul", ["sums", "sums"], ["b"]),
    ]
    nodes = [node("Pick", ["x", "zero"], ["p"], domain="own"), node("MatMul", ["p", "p"], ["y"])]
    found = made(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT, "p": FLOAT})
    found.functions.append(
        helper.make_function("own", "Pick", ["a", "limit"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    found.opset_import.append(helper.make_opsetid("own", 1))
    return found, columns(random, 12, 20, 12)


def computed_sizes(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Operators that take a computed number as a size."""
    nodes = [
        node("Greater", ["x", "zero"], ["positive"]),
        node("Cast", ["positive"], ["ones"], to=INT64),
        node("ReduceSum", ["ones"], ["sum"], keepdims=1),
        node("Add", ["sum", "at_1"], ["size"]),
        node("Squeeze", ["size"], ["count"]),
        node("Range", ["none", "count", "one"], ["range"]),
        node("Tile", ["x", "size"], ["tiled"]),
        node("ConstantOfShape", ["size"], ["zeros"]),
        node("Slice", ["x", "at_0", "size"], ["cut"]),
        node("Expand", ["half", "size"], ["halves"]),
        node("OneHot", ["range", "count", "halves_of_1"], ["hot"]),
        node("Concat", ["at_0", "size"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
    ]
    outputs = {"range": INT64} | dict.fromkeys(("tiled", "zeros", "cut", "halves", "hot", "padded"), FLOAT)
    half = np.array([0.5], np.float32)
    others = {"half": half, "halves_of_1": np.array([0.5, 1], np.float32), "one": np.array(1)}
    found = made(nodes, {"x": (FLOAT, ["n"])}, outputs, **others)
    return found, columns(random, 6, 9, 6)


KINDS: dict[str, Callable[[Random], tuple[onnx.ModelProto, Feeds]]] = {
    each.__name__: each
    for each in (
        boxes, branches, chosen_rows, computed_sizes, different, in_a_function, in_a_sequence, nested, passes, places, scanned,
        until,
    )
}  # fmt: skip
