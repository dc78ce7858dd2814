"""Models that compute with strings: sessions run them, right as ONNX Runtime and ONNX's own tests; graphs refuse them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import poolrt
import poolrt.onnx as ort
from poolrt.onnx.courses import Course
from poolrt.onnx.strings import has_strings
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.drills import model_mutations
from tests.poolrt.graph.onnx.node_tests import node_tests_of

from .models import Array, rival, session
from .staged_models import BOOL, FLOAT, INT64, graph, node
from .string_models import KINDS, STRING, WORDS, stored, text_model, words

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def check(found: Any, expected: Any, feed: dict[str, Array]) -> None:
    for given, wanted in zip(found.run(None, feed), expected.run(None, feed), strict=True):
        assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)
        else:
            assert given.tolist() == wanted.tolist()


def one(kind: str, inputs: dict[str, Any], outputs: dict[str, int], opset: int = 20, **attributes: Any) -> Any:
    """Return a model of one node that reads inputs of any rank."""
    nodes = [node(kind, list(inputs), list(outputs), **attributes)]
    return text_model(nodes, {name: (each, None) for name, each in inputs.items()}, outputs, opset)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(2)
def test_a_session_computes_with_strings(kind: str, cache: PrimitiveProvider) -> None:
    source, feeds = KINDS[kind](np.random.default_rng())
    with pytest.raises(poolrt.ModelError):
        poolrt.load_onnx(source)
    found, expected = session(source, cache), rival(source)
    for feed in feeds:
        check(found, expected, feed)


def test_strings_come_and_go_on_a_pool(tmp_path: Any) -> None:
    settings: dict[str, Any] = {
        "home": str(tmp_path),
        "redis_url": f"unix://{tmp_path}/none.sock",
        "arena_bytes": 1 << 26,
    }
    source, feeds = KINDS["embedded"](np.random.default_rng())
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        found, expected = ort.InferenceSession(source, pool=pool), rival(source)
        for feed in feeds:
            check(found, expected, feed)


def test_threads_compute_with_strings_at_once(cache: PrimitiveProvider) -> None:
    source, feeds = KINDS["branched"](np.random.default_rng())
    found, expected = session(source, cache), rival(source)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda feed: check(found, expected, feed), [feed for feed in feeds for _ in range(4)]))


def test_other_strings_of_the_same_shape_need_no_new_plan(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng()
    source, _ = KINDS["embedded"](random)
    found, expected = session(source, cache), rival(source)
    imports = []
    part_graph = found._model.part_graph

    def counted(*arguments: Any) -> Any:
        imports.append(1)
        return part_graph(*arguments)

    monkeypatch.setattr(found._model, "part_graph", counted)
    f = random.standard_normal((6, 3), np.float32)
    check(found, expected, {"x": words(random, 6), "f": f})
    made = len(imports)
    for _ in range(5):
        check(found, expected, {"x": words(random, 6, of=[f"{each}{random.random()}" for each in WORDS]), "f": f})
    assert made > 0
    assert len(imports) == made


def test_onnx_s_own_tests_of_strings_are_right(cache: PrimitiveProvider) -> None:
    cases = node_tests_of("string_concat", "string_split", "stringnormalizer", "regex_full_match", "equal", "cast")
    cases = [case for case in cases if has_strings(case.model)]
    assert len(cases) > 15
    for case in cases:
        found = session(case.model, cache)
        for inputs, expected in case.data_sets:
            given = [numpy_helper.to_array(each) if isinstance(each, TensorProto) else each for each in inputs]
            results = found.run(None, dict(zip([each.name for each in found.get_inputs()], given, strict=True)))
            for result, wanted in zip(results, expected, strict=True):
                array = numpy_helper.to_array(wanted) if isinstance(wanted, TensorProto) else np.asarray(wanted)
                assert result.tolist() == array.tolist(), case.name


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TensorProto.FLOAT, np.array([1, -0.0, 0.1, 1e-7, 123456789, 1e20, np.nan, np.inf, -np.inf], np.float32)),
        (TensorProto.DOUBLE, np.array([[1, 0.1, 1e-300], [1 / 3, 1e22, np.nan]])),
        (TensorProto.FLOAT16, np.array([1, 0.1, 65504, np.nan], np.float16)),
        (TensorProto.BOOL, np.array([True, False])),
        (TensorProto.INT8, np.array([-5, 127], np.int8)),
        (TensorProto.UINT64, np.array([2**64 - 1, 0], np.uint64)),
        (TensorProto.INT64, np.array(-(2**63))),
    ],
    ids=lambda each: each.dtype.name if isinstance(each, np.ndarray) else "",
)
def test_numbers_become_strings_and_numbers_again(kind: int, values: Array, cache: PrimitiveProvider) -> None:
    there = one("Cast", {"x": kind}, {"y": STRING}, to=STRING)
    found, expected = session(there, cache), rival(there)
    check(found, expected, {"x": values})
    (texts,) = found.run(None, {"x": values})
    back = one("Cast", {"x": STRING}, {"y": kind}, to=kind)
    check(session(back, cache), rival(back), {"x": texts})


def test_texts_become_numbers(cache: PrimitiveProvider) -> None:
    for kind, texts in (
        (TensorProto.FLOAT, [" 2", "+3", "1e-3", ".5", "5.", "nan", "NaN", "INF", "-inf", "1e60", "Infinity"]),
        (TensorProto.INT64, ["5", " -7", "9 ", "100.5", "+4", "-0"]),
        (TensorProto.INT8, ["300", "-128", "5"]),
        (TensorProto.UINT8, ["-1", "256", "7"]),
        (TensorProto.UINT64, ["18446744073709551615", "-1"]),
        (TensorProto.BOOL, ["1", "0", "-3"]),
    ):
        source = one("Cast", {"x": STRING}, {"y": kind}, to=kind)
        check(session(source, cache), rival(source), {"x": np.array(texts, object)})
    like = one("CastLike", {"x": STRING, "y": TensorProto.BFLOAT16}, {"z": TensorProto.BFLOAT16})
    (found,) = session(like, cache).run(None, {"x": ["1.5", "-2"], "y": np.zeros(1, BFLOAT16)})
    np.testing.assert_array_equal(found, np.array([1.5, -2], BFLOAT16), strict=True)


@pytest.mark.parametrize("text", ["", "x", "1_0", "0x10", "1e", "9" * 5000, "nan", "1e30", "--1", "٣"])
def test_a_text_that_is_no_whole_number_is_named(text: str, cache: PrimitiveProvider) -> None:
    source = one("Cast", {"x": STRING}, {"y": INT64}, to=INT64)
    with pytest.raises(ort.Fail, match=r"node 'y' \(Cast\): '.{0,80} is no int64"):
        session(source, cache).run(None, {"x": np.array(["1", text], object)})


def test_strings_are_gathered_as_often_as_asked(cache: PrimitiveProvider) -> None:
    # ONNX Runtime 1.32 returns the first elements of rows only.
    source = one("Gather", {"x": STRING, "i": INT64}, {"y": STRING}, axis=1)
    x, places = words(np.random.default_rng(), 3, 4), np.array([1, 0, -1, 1])
    assert session(source, cache).run(None, {"x": x, "i": places})[0].tolist() == x[:, places].tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_strings_are_gathered_along_any_axis_and_where_there_are_none(axis: int, cache: PrimitiveProvider) -> None:
    found = session(one("Gather", {"x": STRING, "i": INT64}, {"y": STRING}, axis=axis), cache)
    x, places = words(np.random.default_rng(), 3, 4, 2), np.array([[1, -3, 2, 7], [0, 0, -9, 1]])
    wider = np.concatenate([x, np.full([1 if n == axis % 3 else size for n, size in enumerate(x.shape)], "")], axis)
    size = x.shape[axis]
    known = np.where((places >= -size) & (places < size), places % size, size)
    assert found.run(None, {"x": x, "i": places})[0].tolist() == wider.take(known, axis).tolist()
    assert found.run(None, {"x": x, "i": np.array(-1)})[0].tolist() == x.take(-1, axis).tolist()
    assert found.run(None, {"x": x, "i": places[:0]})[0].shape == x.take(places[:0], axis).shape
    assert (found.run(None, {"x": x[:0, :0, :0], "i": np.array([5])})[0] == "").all()
    with pytest.raises(ort.InvalidGraph, match="axis"):
        found.run(None, {"x": x[0, 0] if axis == 1 else x[0, 0, 0:1].reshape(()), "i": places})


def test_words_are_left_out_and_change_case(cache: PrimitiveProvider) -> None:
    x = np.array(["Straße", "MONDAY", "monday", "İx", "ÄÖ", ""], object)
    cases: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"case_change_action": "UPPER"}, ["STRAßE", "MONDAY", "MONDAY", "İX", "ÄÖ", ""]),
        ({"case_change_action": "LOWER", "stopwords": ["Monday"]}, ["straße", "İx", "äö", ""]),
        ({"is_case_sensitive": 1, "stopwords": ["monday", ""]}, ["Straße", "MONDAY", "İx", "ÄÖ"]),
        ({"is_case_sensitive": 1, "stopwords": x.tolist()}, [""]),
    )
    for attributes, wanted in cases:
        source = one("StringNormalizer", {"x": STRING}, {"y": STRING}, **attributes)
        found = session(source, cache)
        assert found.run(None, {"x": x})[0].tolist() == wanted
        assert found.run(None, {"x": x[None]})[0].tolist() == [wanted]
        with pytest.raises(ort.InvalidGraph, match=r"of shape \(C,\) or \(1, C\) with C above 0, got \(0,\)"):
            found.run(None, {"x": x[:0]})


def test_texts_of_several_kinds_are_given(cache: PrimitiveProvider) -> None:
    source = one("StringConcat", {"x": STRING, "y": STRING}, {"z": STRING})
    found = session(source, cache)
    assert [each.type for each in found.get_inputs()] == ["tensor(string)"] * 2
    for x, y, wanted in (
        (np.array(["a", "é"]), ["x"], ["ax", "éx"]),
        (np.array([b"a", "é".encode()]), np.array(["x", "y"], object), ["ax", "éy"]),
        (np.array([1, None], object), "!", ["1!", "None!"]),
        (np.zeros((0, 2), object), ["x"], []),
        ("a", np.array("b"), "ab"),
        (ort.OrtValue.ortvalue_from_numpy(np.array(["a"], object)), ["b"], ["ab"]),
    ):
        (result,) = found.run(None, {"x": x, "y": y})
        assert result.dtype.kind == "O"
        assert result.tolist() == wanted
    values = {name: ort.OrtValue.ortvalue_from_numpy(np.array([name], object)) for name in "xy"}
    (value,) = found.run_with_ort_values(None, values)
    assert (value.data_type(), value.numpy().tolist()) == ("tensor(string)", ["xy"])
    binding = found.io_binding()
    binding.bind_cpu_input("x", np.array(["a"]))
    binding.bind_cpu_input("y", np.array(["b"]))
    binding.bind_output("z")
    found.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == ["ab"]
    for bad, text in (
        (np.zeros(2, np.float32), "expect strings, got an array of dtype float32"),
        (np.array(["a\udc80"], object), "surrogates not allowed"),
        (np.array([b"\xff"]), "can't decode byte"),
        ([["a"], ["b", "c"]], "in a regular shape, got list as an element"),
    ):
        with pytest.raises(ort.InvalidArgument, match=f"input x: .*{text}.*tensor.string"):
            found.run(None, {"x": bad, "y": ["b"]})
    with pytest.raises(ort.InvalidArgument, match="no memory for tensors of strings"):
        binding.bind_input("x", "cpu", 0, STRING, (1,), value.data_ptr())


def test_what_is_no_model_of_strings_is_refused(cache: PrimitiveProvider) -> None:
    x = {"x": STRING}
    sequence = [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "zero"], ["y"])]
    for source, text in (
        (one("Add", {"x": STRING, "z": STRING}, {"y": STRING}), r"node 'y' \(Add, opset 20\): strings are not supp"),
        (text_model(sequence, {"x": (STRING, [1])}, {"y": STRING}, zero=np.array(0)), "strings are not supported"),
        (one("StringConcat", {"x": STRING, "z": FLOAT}, {"y": STRING}), r"input 1 \(z\) cannot be numbers"),
        (one("Concat", {"x": STRING, "z": INT64}, {"y": STRING}, axis=0), r"input 1 \(z\) cannot be numbers"),
        (one("Equal", {"x": STRING, "z": STRING}, {"y": BOOL}, opset=13), r"in opset 13, its input 0 \(x\) cannot be"),
        (one("StringConcat", {"x": STRING, "z": STRING}, {"y": STRING}, opset=17), "opset 17 has no such operator"),
        (one("StringConcat", x, {"y": STRING}), "it has 1 inputs, or a needed one is missing"),
        (one("StringNormalizer", x, {"y": STRING}, case_change_action="TITLE"), "'TITLE'; expect one of NONE, LOWER"),
        (one("RegexFullMatch", x, {"y": BOOL}, pattern="(a"), r"attribute pattern is '\(a': missing \)"),
        (one("RegexFullMatch", x, {"y": BOOL}, pattern="(?<=a)b"), "invalid perl operator"),
        (text_model([node("StringConcat", ["x", "no"], ["y"])], {"x": (STRING, [1])}, {"y": STRING}), "reads 'no'"),
        (text_model([node("Identity", ["x"], ["z"])], {"x": (STRING, [1])}, {"y": STRING}), "its output 'y'"),
        (text_model([node("Identity", ["x"], ["z"])], {"x": (STRING, [1])}, {}), "it has no outputs"),
    ):
        with pytest.raises(poolrt.ModelError, match=text):
            session(source, cache).run(None, _feed(source))
    added = one("ScatterElements", {"x": STRING, "i": INT64, "u": STRING}, {"y": STRING}, reduction="add")
    with pytest.raises(ort.NotImplemented, match="a reduction of strings"):
        session(added, cache)


def _feed(source: Any) -> dict[str, Any]:
    return {each.name: ["a"] if each.type.tensor_type.elem_type == STRING else [1] for each in source.graph.input}


def test_stored_strings_that_are_none_are_named(cache: PrimitiveProvider) -> None:
    source, _ = KINDS["joined"](np.random.default_rng())
    for data, dims, text in (([b"\xff", b"b"], [2], "is not UTF-8"), ([b"a"], [2], "does not fit its 1 strings")):
        broken = onnx.ModelProto()
        broken.CopyFrom(source)
        (ends,) = broken.graph.initializer
        ends.string_data[:], ends.dims[:] = data, dims
        with pytest.raises(ort.InvalidGraph, match=f"tensor 'ends': .*{text}"):
            session(broken, cache)


def test_regular_expressions_need_their_package(cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    source = one("RegexFullMatch", {"x": STRING}, {"y": BOOL}, pattern="(a|b)+")
    texts = np.array(["ab" * 20 + "c", "ab", ""], object)
    assert session(source, cache).run(None, {"x": texts})[0].tolist() == [False, True, False]
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ort.NotImplemented, match=r"google-re2 package: pip install 'poolrt\[strings\]'"):
        session(source, cache).run(None, {"x": texts})


def test_hundreds_of_nodes_of_strings_leave_stages_for_numbers(cache: PrimitiveProvider) -> None:
    nodes = [node("StringConcat", [f"t{each}", "end"], [f"t{each + 1}"]) for each in range(300)]
    nodes += [node("Cast", ["x"], ["f"], to=FLOAT), node("Sqrt", ["f"], ["r"]), node("Cast", ["r"], ["t0"], to=STRING)]
    nodes += [node("StringSplit", ["t300"], ["parts", "y"], delimiter="|")]
    source = text_model(nodes, {"x": (STRING, ["n"])}, {"y": INT64, "t300": STRING}, end=np.array("|", object))
    (count, texts) = session(source, cache).run(None, {"x": ["4", "9"]})
    assert count.tolist() == [301, 301]
    assert texts.tolist() == ["2" + "|" * 300, "3" + "|" * 300]


def test_strings_that_no_node_computes_are_passed_on(cache: PrimitiveProvider) -> None:
    chosen = graph([], {}, {"kept": (STRING, [1])})
    other = graph([node("Identity", ["x"], ["z"])], {}, {"z": (STRING, [1])})
    nodes = [node("If", ["b"], ["y"], then_branch=chosen, else_branch=other), node("Not", ["b"], ["c"])]
    outputs = {"y": STRING, "kept": STRING, "x": STRING, "c": BOOL}
    source = text_model(nodes, {"x": (STRING, [1]), "b": (BOOL, [])}, outputs, kept=np.array(["k"], object))
    assert stored("k", np.array(["k"], object)).string_data[:] == [b"k"]
    found = session(source, cache)
    for chosen_one, wanted in ((True, "k"), (False, "v")):
        results = found.run(None, {"x": ["v"], "b": np.array(chosen_one)})
        assert [each.tolist() for each in results] == [[wanted], ["k"], ["v"], not chosen_one]


def test_types_that_contradict_the_model_are_refused(cache: PrimitiveProvider) -> None:
    whole, _ = KINDS["repeated"](np.random.default_rng())
    (loop,) = whole.graph.node
    body = loop.attribute[0].g

    def broken(change: Any) -> Any:
        made = onnx.ModelProto()
        made.CopyFrom(whole)
        change(made.graph, made.graph.node[0].attribute[0].g)
        return made

    cases: list[tuple[Any, str]] = [
        (
            lambda outer, inner: outer.output[0].type.tensor_type.__setattr__("elem_type", FLOAT),
            "declares tensor.float",
        ),
        (lambda outer, inner: inner.node[2].attribute.append(loop.attribute[0]), r"\(Gather\): it has a branch"),
        (lambda outer, inner: inner.input.pop(), "body has 2 inputs; expect 3"),
        (lambda outer, inner: inner.output.pop(0), r"condition has \d elements of object; expect 1 of bool"),
        (lambda outer, inner: [inner.output.pop() for _ in body.output], "body has 0 outputs; expect 2 at least"),
        (lambda outer, inner: inner.output.add(name="nothing"), "no node computes 'nothing'"),
        (lambda outer, inner: outer.node.append(node("Identity", ["last"], ["y"])), "two nodes compute 'y'"),
        (lambda outer, inner: outer.node[0].attribute.pop(), "attribute body is missing, or no graph"),
        (lambda outer, inner: outer.node[0].ClearField("input"), "it has no inputs"),
    ]
    for change, text in cases:
        with pytest.raises(poolrt.ModelError, match=text):
            session(broken(change), cache).run(None, {"x": ["a"], "passes": np.array(2)})


def _end_loops(monkeypatch: pytest.MonkeyPatch, most: int = 100) -> None:
    """Have loops end after some passes: ONNX's without a limit and with a condition that stays true never do."""
    run = Course._loop

    def run_some(course: Course, known: Any, operands: Sequence[Any]) -> Any:
        limit, *others = operands
        if limit is None or (limit.size == 1 and limit.dtype.kind in "iu" and limit.reshape(()) > most):
            limit = np.array(most)
        return run(course, known, [limit, *others])

    monkeypatch.setattr(Course, "_loop", run_some)


def test_a_loop_without_a_limit_ends_where_tests_end_it(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = KINDS["repeated"](np.random.default_rng(0))
    model.graph.node[0].input[0] = ""
    _end_loops(monkeypatch)
    assert session(model, cache).run(["every"], next(iter(feeds)))[0].shape == (100,)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mutated_models_of_strings_raise_the_documented_errors(
    cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng()
    kinds = [make(random)[0].SerializeToString() for make in KINDS.values()]
    monkeypatch.setattr(model_mutations, "seeds", lambda: kinds)
    _end_loops(monkeypatch)
    first, ran = int(random.integers(1 << 30)), 0
    for number in range(first, first + 400):
        try:
            found = session(model_mutations.mutate(number), cache)
            feed: dict[str, Any] = {}
            for port in found._model.inputs:
                dims = [size if isinstance(size, int) and size < 9 else 2 for size in (port.dims or ())][:6]
                assert port.dtype is not None
                feed[port.name] = np.full(dims, "ab" if port.type == "tensor(string)" else 1, port.dtype)
            found.run(None, feed)
            ran += 1
        except poolrt.GraphError:
            pass
        except Exception as error:
            raise AssertionError(f"mutation {number}") from error
    assert ran > 0


@pytest.mark.parametrize("given", [STRING, FLOAT])
def test_strings_of_the_model_are_results_that_the_caller_may_change(given: int, cache: PrimitiveProvider) -> None:
    made = text_model(
        [node("Identity" if given == STRING else "Relu", ["x"], ["y"])],
        {"x": (given, [2])},
        {"y": given, "c": STRING},
        c=np.array(["a", "b"], object),
    )
    found = session(made, cache)
    feed = {"x": np.array(["p", "q"], object) if given == STRING else np.ones(2, np.float32)}
    for _ in range(3):
        y, c = found.run(None, feed)
        assert y.tolist() == feed["x"].tolist()
        assert c.tolist() == ["a", "b"]
        c.fill("changed")
