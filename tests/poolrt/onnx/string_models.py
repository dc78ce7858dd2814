"""Models that compute with strings, each with inputs of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .models import Array
from .staged_models import BOOL, FLOAT, INT64, graph, node

STRING = TensorProto.STRING
Random = np.random.Generator
Feeds = Iterator[dict[str, Array]]
WORDS = ["", "a", "b", "ab", "ba", "Zoë", "zoë", "ÄÖ", "naïve", "日本", "x y", "a,b", "😀", "a\0b"]


def words(random: Random, *shape: int, of: Sequence[str] = WORDS) -> Array:
    """Return random strings."""
    found = np.empty(shape, object)
    found.reshape(-1)[:] = random.choice(np.array(of, object), int(np.prod(shape))).tolist()
    return found


def text_model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: Mapping[str, int],
    opset: int = 20,
    **constants: Array,
) -> onnx.ModelProto:
    """Return a model of nodes; inputs are types and shapes by name, outputs types, constants strings or numbers."""
    taken = [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()]
    given = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    made = helper.make_graph(list(nodes), "texts", taken, given, [stored(*each) for each in constants.items()])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def stored(name: str, array: Array) -> Any:
    """Return an array of strings or numbers as a TensorProto."""
    if array.dtype != object:
        return numpy_helper.from_array(array, name)
    texts = [each.encode() for each in array.reshape(-1).tolist()]
    return helper.make_tensor(name, STRING, array.shape, texts)


def joined(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Strings with others behind them, of several shapes, and which are equal to given ones."""
    nodes = [
        node("StringConcat", ["x", "ends"], ["long"]),
        node("Equal", ["long", "wanted"], ["same"]),
        node("Cast", ["same"], ["ones"], to=FLOAT),
        node("ReduceSum", ["ones"], ["count"], keepdims=0),
    ]
    ends = np.array(["", "b"], object)
    ports = {"x": (STRING, ["n", 1]), "wanted": (STRING, ["n", 2])}
    source = text_model(nodes, ports, {"long": STRING, "same": BOOL, "count": FLOAT}, ends=ends)
    return source, ({"x": words(random, n, 1), "wanted": words(random, n, 2)} for n in (3, 1, 9, 3))


def embedded(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Numbers that are looked up for words, between numbers before and numbers behind."""
    nodes = [
        node("MatMul", ["f", "weights"], ["scores"]),
        node("Unsqueeze", ["x", "last"], ["column"]),
        node("Equal", ["column", "known"], ["hits"]),
        node("Cast", ["hits"], ["hot"], to=FLOAT),
        node("MatMul", ["hot", "table"], ["rows"]),
        node("Add", ["rows", "scores"], ["y"]),
        node("ArgMax", ["y"], ["place"], axis=1, keepdims=0),
        node("Cast", ["place"], ["label"], to=STRING),
        node("StringConcat", ["x", "label"], ["named"]),
    ]
    table, weights = random.standard_normal((len(WORDS), 5), np.float32), random.standard_normal((3, 5), np.float32)
    constants: dict[str, Any] = {
        "known": np.array(WORDS, object),
        "table": table,
        "weights": weights,
        "last": np.array([-1]),
    }
    source = text_model(
        nodes, {"x": (STRING, ["n"]), "f": (FLOAT, ["n", 3])}, {"y": FLOAT, "named": STRING}, **constants
    )
    return source, ({"x": words(random, n), "f": random.standard_normal((n, 3), np.float32)} for n in (4, 1, 7))


def moved(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """Strings in other places, by operators that sizes, places and conditions of a run decide."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Transpose", ["x"], ["turned"], perm=[1, 0]),
        node("Reshape", ["turned", "flat"], ["line"]),
        node("Concat", ["line", "line", "more"], ["long"], axis=0),
        node("Slice", ["long", "one", "end", "zero", "step"], ["part"]),
        node("Tile", ["part", "step"], ["twice"]),
        node("Where", ["c", "x", "more"], ["chosen"]),
        node("GatherElements", ["chosen", "places"], ["found"], axis=1),
        node("ScatterND", ["line", "start", "more"], ["written"]),
        node("Split", ["x"], ["left", "right"], axis=1, num_outputs=2),
        node("Unique", ["long"], ["u", "i", "v", "n"], sorted=1),
    ]
    outputs = {"shape": INT64, "turned": STRING, "long": STRING, "part": STRING, "twice": STRING, "chosen": STRING}
    outputs |= {"found": STRING, "written": STRING, "left": STRING, "right": STRING}
    outputs |= {"u": STRING, "i": INT64, "v": INT64, "n": INT64}
    constants: dict[str, Any] = {
        "flat": np.array([-1]),
        "more": np.array(["né"], object),
        "one": np.array([1]),
        "zero": np.array([0]),
    }
    constants |= {"end": np.array([1 << 40]), "step": np.array([2]), "start": np.array([[0]])}
    ports = {"x": (STRING, ["n", 4]), "c": (BOOL, ["n", 1]), "places": (INT64, ["n", 3])}
    source = text_model(nodes, ports, outputs, **constants)

    def feeds() -> Feeds:
        for n in (3, 1, 5):
            places = random.integers(-4, 4, (n, 3))
            yield {"x": words(random, n, 4), "c": random.random((n, 1)) < 0.5, "places": places}

    return source, feeds()


def counted(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """N-grams of words, and words in which a text is split."""
    nodes = [
        node("StringSplit", ["x"], ["parts", "counts"], delimiter=","),
        node(
            "TfIdfVectorizer", ["x"], ["y"], mode="TFIDF", min_gram_length=1, max_gram_length=2, max_skip_count=1,
            ngram_counts=[0, 3], ngram_indexes=[2, 0, 1, 3, 4], pool_strings=["ab", "", "日本", "a", "b", "b", "a"],
            weights=[1.0, 2.0, 0.5, 3.0, 1.5],
        ),
    ]  # fmt: skip
    source = text_model(nodes, {"x": (STRING, ["n"])}, {"parts": STRING, "counts": INT64, "y": FLOAT})
    return source, ({"x": words(random, n, of=[each for each in WORDS if each])} for n in (8, 3, 12))


def branched(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """A branch that a comparison of strings chooses; each gives strings of its own."""
    then = graph([node("Constant", [], ["yes"], value_strings=["yes", "y"])], {}, {"yes": (STRING, None)})
    other = graph([node("StringConcat", ["x", "b"], ["no"])], {}, {"no": (STRING, None)})
    nodes = [
        node("Constant", [], ["b"], value_string="!"),
        node("Equal", ["x", "y"], ["same"]),
        node("Cast", ["same"], ["ones"], to=INT64),
        node("ReduceMin", ["ones"], ["least"], keepdims=0),
        node("Cast", ["least"], ["all"], to=BOOL),
        node("If", ["all"], ["z"], then_branch=then, else_branch=other),
    ]
    source = text_model(nodes, {"x": (STRING, ["n"]), "y": (STRING, ["n"])}, {"z": STRING, "all": BOOL})

    def feeds() -> Feeds:
        for n in (1, 3, 2):
            x = words(random, n)
            yield {"x": x, "y": x.copy()}
            yield {"x": x, "y": np.array([f"{each}." for each in x], object)}

    return source, feeds()


def repeated(random: Random) -> tuple[onnx.ModelProto, Feeds]:
    """A loop whose state is strings, with what each pass gives."""
    nodes = [
        node("StringConcat", ["state", "x"], ["longer"]),
        node("Identity", ["goes_on"], ["goes"]),
        node("Gather", ["longer", "last"], ["each"]),
    ]
    inputs = {"pass": (INT64, []), "goes_on": (BOOL, []), "state": (STRING, ["n"])}
    body = graph(nodes, inputs, {"goes": (BOOL, []), "longer": (STRING, ["n"]), "each": (STRING, [])})
    outer = [node("Loop", ["passes", "", "x"], ["y", "every"], body=body)]
    ports = {"x": (STRING, ["n"]), "passes": (INT64, [])}
    source = text_model(outer, ports, {"y": STRING, "every": STRING}, last=np.array(-1))
    return source, ({"x": words(random, n), "passes": np.array(passes)} for n, passes in ((2, 3), (1, 1), (3, 0)))


KINDS: dict[str, Callable[[Random], tuple[onnx.ModelProto, Feeds]]] = {
    each.__name__: each for each in (joined, embedded, moved, counted, branched, repeated)
}
