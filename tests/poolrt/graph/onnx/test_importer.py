"""Whole models: files, inputs, shapes that are left open, constants, and errors of one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import Executor, ModelError, UnsupportedNode, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

from .single_node import model_of, runtime

Array = NDArray[Any]


def model(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    constants: dict[str, Array] | None = None,
    opset: int = 13,
) -> onnx.ModelProto:
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    initializers = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "net", declared, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compute(made: onnx.ModelProto, **feeds: Array) -> list[Array]:
    graph = load_onnx(made.SerializeToString())
    results = run_wire(*graph.to_wire(), feeds)
    return [results[each.name] for each in made.graph.output]


def test_a_model_loads_from_a_path_from_bytes_and_from_a_proto(tmp_path: Path) -> None:
    made = model_of("Relu", {"x": (2, 3)})
    path = tmp_path / "small model.onnx"
    onnx.save(made, path)
    wires = [load_onnx(source).to_wire()[0] for source in (path, str(path), made.SerializeToString(), made)]
    assert [wire.pop("name") for wire in wires] == ["small model", "small model", "single", "single"]
    assert wires[0] == wires[1] == wires[2] == wires[3]
    assert load_onnx(path, name="other", engine="opencl:0").to_wire()[0]["engine"] == "opencl:0"


def test_initialisers_listed_as_inputs_are_constants() -> None:
    made = model_of("Add", {"x": (2, 3)}, {"c": np.ones(3, np.float32)}, opset=7, ir_version=3)
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, (3,)))
    graph = load_onnx(made.SerializeToString())
    assert graph.inputs == {"x": (2, 3)}


def test_large_initialisers_are_views_into_the_model() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 32, 3, 3)).astype(np.float32)
    content = model_of("Conv", {"x": (1, 32, 8, 8)}, {"w": weights}).SerializeToString()
    graph = load_onnx(content)
    _, (constant,) = graph.to_wire()
    assert np.shares_memory(constant.array, np.frombuffer(content, np.uint8))
    np.testing.assert_array_equal(constant.to_array(), weights)


@pytest.mark.parametrize(
    ("dims", "arguments", "expected"),
    [
        (("N", 3), {}, (1, 3)),
        (("N", 3), {"batch": 4}, (4, 3)),
        ((None, 3), {"batch": 4}, (4, 3)),
        ((0, 3), {"batch": 2}, (2, 3)),
        (("N", "N"), {"batch": 2}, (2, 2)),
        (("N", "W"), {"shapes": {"x": (2, 5)}}, (2, 5)),
        ((4, 3), {"batch": 4}, (4, 3)),
        ((), {}, ()),
    ],
)
def test_open_dimensions_are_filled_in(dims: Any, arguments: Any, expected: tuple[int, ...]) -> None:
    graph = load_onnx(model_of("Relu", {"x": dims}), **arguments)
    assert graph.inputs == {"x": expected}
    assert graph.outputs == {"y": expected}


@pytest.mark.parametrize(
    ("dims", "arguments", "expected"),
    [
        (("N", "W"), {}, "input 'x': dimension 1 (W) is open; pass shapes={'x': ...}"),
        (("?", "?"), {"batch": 2}, "input 'x': dimension 1 (?) is open; pass shapes={'x': ...}"),
        ((1, None), {}, "input 'x': dimension 1 (unnamed) is open; pass shapes={'x': ...}"),
        ((1, 3), {"batch": 4}, "input 'x': the model fixes its batch at 1; got batch=4"),
        ((1, 3), {"shapes": {"z": (1,)}}, "shapes: the model has no input 'z'"),
        (("N", 3), {"batch": -2}, "input 'x': shape: dimensions must not be negative"),
    ],
)
def test_dimensions_that_stay_open_or_contradict_are_refused(dims: Any, arguments: Any, expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_onnx(model_of("Relu", {"x": dims}), **arguments)
    assert expected in str(caught.value)


def test_an_input_without_a_shape_or_of_another_type_is_refused() -> None:
    made = model_of("Relu", {"x": (2,)})
    made.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="input 'x': the model gives no shape; pass shapes="):
        load_onnx(made)
    assert load_onnx(made, shapes={"x": (2, 2)}).outputs == {"y": (2, 2)}
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(ModelError, match="input 'x': a graph has no tensors of COMPLEX64; it has FLOAT, "):
        load_onnx(made, shapes={"x": (2, 2)})


def test_shapes_that_the_model_computes_are_known_when_it_is_loaded() -> None:
    # What exporters write for "flatten all but the batch", and for a slice of a shape.
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("Slice", ["s", "one", "many"], ["tail"]),
        helper.make_node("Mul", ["tail", "one"], ["tail1"]),
        helper.make_node("Cast", ["tail1"], ["tail2"], to=TensorProto.INT64),
        helper.make_node("Concat", ["n1", "tail2"], ["back"], axis=0),
        helper.make_node("Reshape", ["flat", "back"], ["y"]),
    ]
    constants = {
        name: np.array(value, np.int64)
        for name, value in (("zero", 0), ("axes", [0]), ("minus", [-1]), ("one", [1]), ("many", [9]))
    }
    made = model(nodes, {"x": (2, 3, 4)}, ["flat", "y"], constants)
    picture = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    flat, back = compute(made, x=picture)
    np.testing.assert_array_equal(flat, picture.reshape(2, 12))
    np.testing.assert_array_equal(back, picture)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps", "expected"),
    [
        ([1], [3], [0], [1], np.arange(12).reshape(4, 3)[1:3]),
        ([-1], [-9], [0], [-2], np.arange(12).reshape(4, 3)[::-2]),
        ([0, 1], [9, 2], [0, 1], [2, 1], np.arange(12).reshape(4, 3)[::2, 1:2]),
    ],
)
def test_known_arrays_are_sliced(
    starts: list[int], ends: list[int], axes: list[int], steps: list[int], expected: Array
) -> None:
    indices = {"s": starts, "e": ends, "a": axes, "t": steps}
    constants: dict[str, Array] = {name: np.array(value, np.int64) for name, value in indices.items()}
    constants["data"] = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = [
        helper.make_node("Slice", ["data", "s", "e", "a", "t"], ["part"]),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    made = model(nodes, {"x": expected.shape}, ["y"], constants)
    (y,) = compute(made, x=np.zeros(expected.shape))
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(runtime(made, {"x": np.zeros(expected.shape)})[0], expected)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value": numpy_helper.from_array(np.array([1, 2, 3], np.float32))}, [1, 2, 3]),
        ({"value_float": 2.5}, 2.5),
        ({"value_floats": [1.5, 2.5, 3.5]}, [1.5, 2.5, 3.5]),
    ],
)
def test_constant_nodes(attribute: dict[str, Any], expected: Any) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **attribute), helper.make_node("Add", ["x", "c"], ["y"])]
    (y,) = compute(model(nodes, {"x": (2, 3)}, ["y"]), x=np.zeros((2, 3)))
    np.testing.assert_array_equal(y, np.zeros((2, 3)) + np.asarray(expected))


def test_constant_of_shape_takes_no_memory() -> None:
    filling = numpy_helper.from_array(np.array([0.02], np.float32))
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["w"], value=filling),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    made = model(nodes, {"x": (1, 512, 3, 3)}, ["y"], {"s": np.array([512, 512, 3, 3], np.int64)})
    _, (constant,) = load_onnx(made).to_wire()
    assert constant.array.strides == (0, 0, 0, 0)
    assert constant.nbytes == 512 * 512 * 9 * 4


def test_broadcasting_as_it_was_until_opset_6() -> None:
    feeds = {"x": np.arange(24.0).reshape(2, 3, 4)}
    made = model_of("Add", {"x": (2, 3, 4)}, {"c": np.array([1, 2, 3], np.float32)}, 6, broadcast=1, axis=1)
    np.testing.assert_array_equal(compute(made, **feeds)[0], feeds["x"] + np.array([[1], [2], [3]]))


def test_swish_follows_its_definition() -> None:
    picture = np.linspace(-3, 3, 7)
    (y,) = compute(model_of("Swish", {"x": (7,)}, opset=24, alpha=0.5), x=picture)
    np.testing.assert_allclose(y, picture / (1 + np.exp(-0.5 * picture)))


def test_nodes_without_names_and_with_repeated_names_get_names_of_their_own() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "same"),
        helper.make_node("Tanh", ["a"], ["b"], "same"),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    wire, _ = load_onnx(model(nodes, {"x": (2,)}, ["y"])).to_wire()
    assert [node[1] for node in wire["nodes"]] == ["same", "same#2", "y"]


def test_outputs_may_be_inputs_constants_and_repeated_readings() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["c"], ["fixed"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    made = model(nodes, {"x": (2,)}, ["same", "fixed", "y"], {"c": np.array([5, 6], np.float32)})
    same, fixed, y = compute(made, x=np.array([-1.0, 2.0]))
    assert (same.tolist(), fixed.tolist(), y.tolist()) == ([-1, 2], [5, 6], [0, 2])


def test_data_in_a_file_beside_the_model_is_mapped(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    path = tmp_path / "model.onnx"
    made = model_of("MatMul", {"x": (3, 6)}, {"w": weights})
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph = load_onnx(path)
    picture = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
    np.testing.assert_allclose(run_wire(*graph.to_wire(), {"x": picture})["y"], picture @ weights, rtol=1e-5, atol=1e-6)
    assert isinstance(_mapped(graph.to_wire(optimize=False)[1][0].array), np.memmap)
    with pytest.raises(ModelError, match="load the model by its path"):
        load_onnx(path.read_bytes())
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"tensor 'w': .*No such file"):
        load_onnx(path)


def _mapped(array: Any) -> Any:
    while not isinstance(array, np.memmap) and array.base is not None:
        array = array.base
    return array


def test_data_outside_of_the_models_folder_is_refused(tmp_path: Path) -> None:
    made = model_of("MatMul", {"x": (3, 6)}, {"w": np.zeros((6, 5), np.float32)})
    (initializer,) = made.graph.initializer
    initializer.ClearField("raw_data")
    initializer.data_location = TensorProto.EXTERNAL
    initializer.external_data.add(key="location", value="../secret.bin")
    (tmp_path / "secret.bin").write_bytes(bytes(120))
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(made, folder / "model.onnx")
    with pytest.raises(ModelError, match="its data is outside of the model's folder"):
        load_onnx(folder / "model.onnx")


def test_files_that_are_missing_or_no_models_are_refused_in_one_line(tmp_path: Path) -> None:
    whole = model_of("Relu", {"x": (2,)}).SerializeToString()
    contents = {"text": b"hello world, this is not protobuf", "empty": b"", "cut": whole[:-7], "noise": b"\xff" * 64}
    for name, content in contents.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load_onnx(path)
        assert str(caught.value).startswith(f"{path}: not an ONNX model")
        assert "\n" not in str(caught.value)
    for path in (tmp_path / "absent.onnx", tmp_path):
        with pytest.raises(ModelError, match="cannot be read: ") as caught:
            load_onnx(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            model_of("MaxPool", {"x": (1, 1, 4, 4)}),
            "model: node 'node' (MaxPool, opset 13): attribute kernel_shape is mi",
        ),
        (model_of("Conv", {"x": (1, 3, 4, 4)}), "model: node 'node' (Conv, opset 13): input 1 is missing"),
        (
            model_of("Conv", {"x": (1, 3, 4, 4)}, {"w": np.zeros((2, 4, 1, 1), np.float32)}),
            "(Conv, opset 13): convolution 'node': weights: expect 3 input channels, got 4",
        ),
        (
            model_of("Relu", {"x": (2,)}, order=["z"]),
            "model: node 'node' (Relu, opset 13) reads 'z', which no node before it computes",
        ),
        (model([], {"x": (2,)}, ["y"]), "model: output 'y': no node computes it"),
        (model_of("Concat", {"x": (2,)}), "attribute axis is missing"),
        (
            model_of("Conv", {"x": (1, 3, 4, 4)}, {"w": np.zeros((2, 3, 1, 1), np.float32)}, pads=[1, 1]),
            "kernel, strides, dilations and pads do not fit 2 spatial dimensions",
        ),
        (
            model_of(
                "ConvTranspose", {"x": (1, 3, 4, 4)}, {"w": np.zeros((3, 2, 3, 3), np.float32)}, output_padding=[1, 1]
            ),
            "(ConvTranspose, opset 13): deconvolution 'node': output_padding: expect 0..0, got (1, 1)",
        ),
        (
            model_of(
                "ConvTranspose", {"x": (1, 3, 4, 4)}, {"w": np.zeros((3, 2, 3, 3), np.float32)}, output_shape=[6, 9]
            ),
            "output_shape (6, 9) is a stride or more beyond the result (6, 6)",
        ),
        (
            model_of("MaxPool", {"x": (1, 3, 4, 4)}, kernel_shape=[2, 2], strides=[1, 0]),
            "(MaxPool, opset 13): strides: expect numbers of at least 1, got (1, 0)",
        ),
        (
            model_of("Pad", {"x": (3, 5)}, {"p": np.array([0, 0, 0, -6])}),
            "(Pad, opset 13): pads: 0 and -6 cut more than dimension 1 has, which is 5",
        ),
        (
            model_of("ConvTranspose", {"x": (1, 1, 4)}, {"w": np.zeros((1, 1, 3), np.float32)}, dilations=[0]),
            "dilations: expect numbers of at least 1, got (0,)",
        ),
        (
            model_of("Resize", {"x": (1, 4)}, {"r": np.zeros(0, np.float32), "s": np.array([1, np.inf], np.float32)}),
            "scales: expect 2 positive numbers below 1e9, got (1.0, inf)",
        ),
        (
            model([helper.make_node(each, ["x"], ["y"], each) for each in ("Relu", "Abs")], {"x": (2,)}, ["y"]),
            "node 'Abs' (Abs, opset 13): its result 'y' is the name of another value; give each value one name",
        ),
        (
            model([helper.make_node("Relu", ["x"], ["x"], "first")], {"x": (2,)}, ["x"]),
            "node 'first' (Relu, opset 13): its result 'x' is the name of another value; give each value one name",
        ),
    ],
)
def test_nodes_that_are_not_valid_are_refused(made: onnx.ModelProto, expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_onnx(made)
    assert not isinstance(caught.value, UnsupportedNode)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_versions_of_operator_sets_that_do_not_exist_are_refused() -> None:
    newest = onnx.defs.onnx_opset_version()
    for domain, version, message in (
        ("", -3, f"model: opset -3 of ai.onnx: expect a version from 1 to {newest}$"),
        ("", 0, f"model: opset 0 of ai.onnx: expect a version from 1 to {newest}$"),
        (
            "ai.onnx",
            2**62,
            f"of ai.onnx: the installed onnx package has versions up to {newest}; install a newer package",
        ),
        ("", newest + 1, "; install a newer package, or export the model with an older opset"),
        ("ai.onnx.ml", 2**62, "of ai.onnx.ml: the installed onnx package has "),
    ):
        # Given a model whose nodes are the same in all versions, and a function that no node calls
        direct, within = model_of("Relu", {"x": (2,)}), model_of("Relu", {"x": (2,)})
        relu, imported = helper.make_node("Relu", ["a"], ["b"]), helper.make_opsetid(domain, version)
        direct.opset_import.append(imported)
        within.functions.append(helper.make_function("f", "g", ["a"], ["b"], [relu], [imported]))
        # When it is read, then it is refused
        for made in (direct, within):
            with pytest.raises(ModelError, match=message):
                load_onnx(made)
    # But those of other domains are their owners'
    made = model_of("Relu", {"x": (2,)})
    made.opset_import.append(helper.make_opsetid("com.example", -1))
    assert load_onnx(made).outputs == {"y": (2,)}


def test_two_inputs_of_one_name_are_refused() -> None:
    made = model_of("Relu", {"x": (2,)})
    made.graph.input.append(made.graph.input[0])
    with pytest.raises(ModelError, match="model: input 'x': there is an input of this name already"):
        load_onnx(made)


def test_an_operator_of_another_domain_is_not_taken_for_onnxs() -> None:
    made = model_of("Relu", {"x": (2,)})
    made.graph.node[0].domain = "com.example"
    with pytest.raises(UnsupportedNode, match=r"node 'node' \(Relu, opset 13\): .* operator of domain com.example"):
        load_onnx(made)


def test_a_run_may_have_another_batch_where_shapes_follow_it(cache: PrimitiveProvider) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "one", "many", "last"], ["cut"]),
        helper.make_node("Gather", ["cut", "zero"], ["y"], axis=1),
    ]
    numbers = {"one": [1], "many": [2**40], "last": [-1], "zero": 0}
    constants = {name: np.array(value, np.int64) for name, value in numbers.items()}
    graph = load_onnx(model(nodes, {"x": ("N", 3, 4)}, ["y"], constants))
    picture = np.random.default_rng(0).standard_normal((5, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(Executor(graph, cache=cache).run(x=picture)["y"], picture[:, 0, 1:])


def test_inputs_that_a_graph_has_to_know_are_given_as_values() -> None:
    made = model_of("ReduceSum", {"x": (2, 3), "axes": (1,)})
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(UnsupportedNode, match=r"while loading: values=\{'axes': \.\.\.\}, or --value axes=\.\.\. "):
        load_onnx(made)
    graph = load_onnx(made, values={"axes": [1]})
    assert (graph.inputs, graph.outputs) == ({"x": (2, 3)}, {"y": (2, 1)})
    assert load_onnx(made, values={"axes": 0}).outputs == {"y": (1, 3)}
    for values, message in (
        ({"axes": [1, 0]}, r"values: input 'axes' has the shape \(1\), got \(2,\)"),
        ({"axes": np.ones(1, np.float32)}, "values: input 'axes' is of type int64, got float32"),
        ({"axis": [1]}, "values: the model has no input 'axis'"),
    ):
        with pytest.raises(ModelError, match=message):
            load_onnx(made, values=values)
    with pytest.raises(TypeError, match="values: expect a dict by input"):
        load_onnx(made, values=[1])  # type: ignore[arg-type]


def test_errors_about_nodes_name_opset_and_inputs_and_the_nearest_name() -> None:
    weights = {"w": np.ones((4, 5), np.float32)}
    fitting = model([helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], {"x": (2, 3)}, ["y"], weights)
    misread = model([helper.make_node("Relu", ["imge"], ["y"], "first")], {"image": (2, 3)}, ["y"])
    misspelt = model([helper.make_node("Sigmod", ["x"], ["y"], "first")], {"x": (2, 3)}, ["y"])
    for made, message in (
        (fitting, r"node 'mm' \(MatMul, opset \d+\): .*; inputs: x float32\[2, 3\], w float32\[4, 5\]$"),
        (misread, r"node 'first' \(Relu, opset \d+\) reads 'imge', which .* computes; the nearest is 'image'$"),
        (misspelt, r"no such operator, nor has ONNX in this opset; the nearest is 'Sigmoid'; "),
    ):
        with pytest.raises(ModelError, match=message):
            load_onnx(made)


def test_operands_and_outputs_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(ModelError, match=r"input 1 \(B\) is of type int64; expect float32, as of another input"):
        load_onnx(model_of("Add", {"x": (2,)}, {"c": np.array([1, 2])}))
    with pytest.raises(ModelError, match="output 'y': the model declares FLOAT, its nodes give int64"):
        load_onnx(model_of("Shape", {"x": (2,)}))


def test_without_the_onnx_package_the_error_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\nimport poolrt\n"
        "try:\n    poolrt.load_onnx('model.onnx')\nexcept poolrt.ModelError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "loading ONNX models needs the onnx package: pip install 'poolrt[onnx]'"
