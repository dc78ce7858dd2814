"""Models that would take the machine: what they compute, declare and refer to is checked before memory is taken."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import ModelError, UnsupportedNode, load_onnx
from poolrt.settings import Settings, SettingsError

from .single_node import model_of
from .test_importer import compute, model

ROOT = Path(__file__).parents[4]
node = helper.make_node
FILLED = node("ConstantOfShape", ["s"], ["z"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0]))
ADD = node("Add", ["x", "q"], ["y"])


def _integers(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def _bomb(nodes: list[Any], **constants: NDArray[Any]) -> onnx.ModelProto:
    return model(nodes, {"x": (1,)}, ["y"], dict(constants), 17)


def _chain(count: int) -> list[Any]:
    links = [node("Concat", ["c" if k == 0 else f"c{k}"] * 30, [f"c{k + 1}"], axis=0) for k in range(count)]
    return [*links, node("Identity", [f"c{count}"], ["q"]), ADD]


BOMBS: dict[str, onnx.ModelProto] = {
    "filled": _bomb([FILLED, node("Mul", ["z", "z"], ["q"]), ADD], s=_integers(30_000, 30_000)),
    "overflow": _bomb([FILLED, node("Mul", ["z", "z"], ["q"]), ADD], s=_integers(2**62, 2**62)),
    "negative size": _bomb([FILLED, node("Mul", ["z", "z"], ["q"]), ADD], s=_integers(-1, 2**40)),
    "two halves": _bomb([FILLED, node("Neg", ["z"], ["q"]), ADD], s=_integers(12_000, 12_000)),
    "reshaped": _bomb([FILLED, node("Reshape", ["z", "m"], ["q"]), ADD], s=_integers(12_000, 12_000), m=_integers(-1)),
    "wider type": _bomb([FILLED, node("Cast", ["z"], ["q"], to=11), ADD], s=_integers(9_000, 12_000)),
    "powers": _bomb([FILLED, node("Pow", ["z", "z"], ["q"]), ADD], s=_integers(12_000, 12_000)),
    "broadcast": _bomb([node("Add", ["a", "b"], ["q"]), ADD], a=np.ones((50_000, 1), "f4"), b=np.ones(50_000, "f4")),
    "joined": _bomb(_chain(6), c=np.ones(10, np.float32)),
    "gathered": _bomb([node("Gather", ["a", "i"], ["q"]), ADD], a=np.ones((1, 50_000), "f4"), i=np.zeros(50_000, "i8")),
    "scaled weights": _bomb([FILLED, node("Gemm", ["x", "z"], ["y"], alpha=0.5)], s=_integers(12_000, 12_000)),
}


@pytest.mark.parametrize("count", [0, -1, 3, 2**40, 2**62])
def test_a_split_into_more_or_less_parts_than_outputs_is_refused_before_they_are_listed(count: int) -> None:
    """As ONNX Runtime does when it runs such a node."""
    parts = node("Split", ["x"], ["y", "z"], axis=0, num_outputs=count)
    with pytest.raises(ModelError, match=f"num_outputs is {count}, but there are 2 outputs$"):
        load_onnx(model([parts], {"x": (2,)}, ["y", "z"], {}, 18).SerializeToString())


@pytest.mark.parametrize("name", BOMBS)
def test_a_constant_beyond_the_limit_is_refused_before_it_is_computed(name: str) -> None:
    with pytest.raises(ModelError, match=r"node '\w+' \(\w+, opset 17\): its (constant )?result") as caught:
        load_onnx(BOMBS[name].SerializeToString())
    assert name == "negative size" or "allow more with constant_bytes" in str(caught.value)


def test_the_limit_is_a_setting_and_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _bomb(
        [FILLED, node("Reshape", ["z", "m"], ["q"]), ADD], s=_integers(25), m=_integers(5, 5)
    ).SerializeToString()
    with pytest.raises(ModelError, match=r"takes 100 bytes, and those before it 0; the limit of all is 99"):
        load_onnx(made, constant_bytes=99)
    with pytest.raises(ModelError, match=r"takes 100 bytes, and those before it 100; the limit of all is 199"):
        load_onnx(made, constant_bytes=199)
    assert load_onnx(made, constant_bytes="1 KiB").outputs == {"y": (5, 5)}
    monkeypatch.setenv("POOLRT_CONSTANT_BYTES", "99")
    with pytest.raises(ModelError, match="the limit of all is 99"):
        load_onnx(made)
    with pytest.raises(SettingsError, match="constant_bytes: expected number of bytes"):
        load_onnx(made, constant_bytes="many")
    assert Settings().constant_bytes == 768 << 20


def test_a_list_of_integers_that_describes_a_shape_is_short() -> None:
    ones = node("ConstantOfShape", ["s"], ["z"], value=helper.make_tensor("v", TensorProto.INT64, [1], [1]))
    made = _bomb([ones, node("Reshape", ["x", "z"], ["y"])], s=_integers(90_000_000))
    with pytest.raises(ModelError, match="shape: expect at most 64 integers, got 90000000"):
        load_onnx(made)
    with pytest.raises(ModelError, match="attribute shape: expect at most 128 integers, got 100000"):
        load_onnx(model([node("Reshape", ["x"], ["y"], shape=[2**62] * 100_000)], {"x": (1,)}, ["y"], opset=4))


def test_a_model_of_a_kilobyte_takes_no_memory() -> None:
    code = (
        "import sys; from poolrt import ModelError, load_onnx; from tests.peak_memory import peak_resident\n"
        "before = peak_resident()\n"
        "try:\n    load_onnx(sys.stdin.buffer.read())\nexcept ModelError:\n"
        "    print(peak_resident() - before)"
    )
    content = BOMBS["filled"].SerializeToString()
    assert len(content) < 1024
    done = subprocess.run(
        [sys.executable, "-c", code], input=content, capture_output=True, timeout=60, check=True, cwd=ROOT
    )
    assert 0 < int(done.stdout) < 100 << 20, "of which the onnx package takes half"


def test_folded_integers_are_divided_exactly_and_never_by_zero() -> None:
    cast = node("Cast", ["z"], ["q"], to=TensorProto.FLOAT)
    numbers, divisors = _integers(-7, 7, 2**53 + 1, -(2**53) - 1), _integers(2, -2, 1, -1)
    quotients = model([node("Div", ["a", "b"], ["z"]), node("Sub", ["z", "c"], ["d"]), node("Cast", ["d"], ["q"], to=1), ADD],
                      {"x": (4,)}, ["y"], {"a": numbers, "b": divisors, "c": _integers(0, 0, 2**53, 2**53)})  # fmt: skip
    (y,) = compute(quotients, x=np.zeros(4))
    assert y.tolist() == [-3, -3, 1, 1]
    with pytest.raises(ModelError, match="an integer is divided by zero"):
        load_onnx(_bomb([node("Div", ["a", "b"], ["z"]), cast, ADD], a=_integers(1), b=_integers(0)))


def _declare(made: onnx.ModelProto, **fields: Any) -> onnx.ModelProto:
    tensor = made.graph.initializer[0]
    for name, value in fields.items():
        if name == "dims":
            tensor.ClearField("dims")
            tensor.dims.extend(value)
        else:
            setattr(tensor, name, value)
    return made


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dims": [2**40, 2**40]}, r"its shape \(\d+, \d+\) of float32 needs \d+ bytes, its data have 4"),
        ({"dims": [2**62, 0]}, ".* needs 0 bytes, its data have 4"),
        ({"dims": [-1]}, r"its shape \(-1,\) has a negative size"),
        ({"dims": [1] * 65}, "it has 65 dimensions; expect at most 64"),
        ({"dims": [2**62] * 100_000}, "it has 100000 dimensions"),
        ({"raw_data": b""}, ".* needs 4 bytes, its data have 0"),
        ({"data_type": TensorProto.STRING}, "it has strings"),
        ({"data_type": 4711}, "data type 4711 is not supported"),
    ],
)
def test_an_initialiser_has_exactly_the_data_that_it_declares(fields: dict[str, Any], message: str) -> None:
    made = model_of("Add", {"x": (1,)}, {"c": np.ones(1, np.float32)})
    with pytest.raises(ModelError, match=f"tensor 'c': {message}"):
        load_onnx(_declare(made, **fields))


def test_bytes_that_are_no_booleans_become_booleans() -> None:
    nodes = [node("Cast", ["c"], ["q"], to=TensorProto.FLOAT), ADD]
    made = model(nodes, {"x": (3,)}, ["y"], {"c": np.array([True, False, True])})
    made.graph.initializer[0].raw_data = b"\x02\x00\xff"
    assert compute(made, x=np.zeros(3))[0].tolist() == [1, 0, 1]


WEIGHTS = np.arange(30, dtype=np.float32).reshape(6, 5)


def _beside(folder: Path, **entries: str) -> Path:
    """Write a model whose weights are in another file, described by entries, and return its path."""
    made = model_of("MatMul", {"x": (3, 6)}, {"w": WEIGHTS})
    (initializer,) = made.graph.initializer
    initializer.ClearField("raw_data")
    initializer.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        initializer.external_data.add(key=key, value=value)
    onnx.save(made, folder / "model.onnx")
    return folder / "model.onnx"


def _link(folder: Path) -> None:
    (folder / "w.bin").symlink_to(folder.parent / "secret.bin")


def _circle(folder: Path) -> None:
    (folder / "w.bin").symlink_to("w.bin")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "w.bin")


def _nothing(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(130))


@pytest.mark.parametrize(
    ("entries", "prepare", "message"),
    [
        ({"location": "{outside}"}, _nothing, "outside of the model's folder"),
        ({"location": "{inside}/w.bin"}, _nothing, "outside of the model's folder"),
        ({"location": "a/../w.bin"}, _nothing, "outside of the model's folder"),
        ({"location": "w.bin"}, _link, "outside of the model's folder"),
        ({"location": "w.bin"}, _circle, ""),
        ({"location": "w.bin"}, _pipe, "not a regular file"),
        ({"location": ""}, _nothing, "Is a directory"),
        ({"location": "w\x00.bin"}, _nothing, "null"),
        ({"location": "w.bin", "offset": "16"}, _nothing, "its data end at byte 136 of w.bin, which has 130"),
        ({"location": "w.bin", "offset": "9" * 19}, _nothing, "which has 130"),
        ({"location": "w.bin", "offset": "-4"}, _nothing, "offset: expect a number of bytes, got '-4'"),
        ({"location": "w.bin", "length": "119"}, _nothing, "needs 120 bytes, its data have 119"),
        ({"location": "w.bin", "length": "1e3"}, _nothing, "length: expect a number of bytes"),
    ],
)
def test_data_in_another_file_are_in_the_folder_and_in_the_file(
    tmp_path: Path, entries: dict[str, str], prepare: Callable[[Path], None], message: str
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(120))
    prepare(folder)
    places = {"inside": str(folder), "outside": str(tmp_path / "secret.bin")}
    path = _beside(folder, **{key: value.format(**places) for key, value in entries.items()})
    with pytest.raises(ModelError, match=f"tensor 'w': .*{message}"):
        load_onnx(path)


def test_data_in_another_file_may_start_anywhere(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"odd" + WEIGHTS.tobytes() + b"more")
    path = _beside(tmp_path, location="w.bin", offset="3", length="120")
    _, (constant,) = load_onnx(path).to_wire(optimize=False)
    np.testing.assert_array_equal(constant.to_array(), WEIGHTS)


def test_a_model_that_is_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="cannot be read: not a regular file"):
        load_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("MaxPool", {"kernel_shape": [2, 2], "auto_pad": 3}, "attribute auto_pad: expect text, got 3"),
        ("LeakyRelu", {"alpha": "x"}, "attribute alpha: expect a number, got b'x'"),
        ("Flatten", {"axis": 1.5}, "attribute axis: expect an integer, got 1.5"),
        ("Flatten", {"axis": 9}, r"axis: expect -4\.\.4, got 9"),
        ("Transpose", {"perm": [0.5, 1.5]}, "attribute perm: expect integers, got"),
        ("Cast", {}, "attribute to is missing"),
        ("Softmax", {"axis": [1]}, "attribute axis: expect an integer"),
    ],
)
def test_attributes_have_the_type_that_the_operator_defines(
    operator: str, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=rf"node 'node' \({operator}, opset 13\): {message}"):
        load_onnx(model_of(operator, {"x": (1, 2, 4, 4)}, **attributes))


def test_a_cast_to_an_unknown_type_is_unsupported() -> None:
    with pytest.raises(UnsupportedNode, match="data type 4711 is not supported"):
        load_onnx(model_of("Cast", {"x": (2,)}, to=4711))


def test_messages_are_one_line_with_any_names_in_a_model() -> None:
    for name in ("a\nb\x1b[2J", "n" * 100_000):
        made = model_of("Relu", {"x": (2,)})
        made.graph.node[0].name = made.graph.node[0].op_type = name
        with pytest.raises(UnsupportedNode) as caught:
            load_onnx(made)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) <= 1_000
        made.graph.node[0].ClearField("output")
        with pytest.raises(ModelError) as refused:
            load_onnx(made)
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) <= 1_000


@pytest.mark.slow
def test_names_that_repeat_cost_no_more_than_others() -> None:
    def seconds(names: list[str]) -> float:
        nodes = [node("Relu", ["x"], [f"y{number}"], name) for number, name in enumerate(names)]
        made = model(nodes, {"x": (2,)}, ["y0"])
        started = time.process_time()
        wire, _ = load_onnx(made).to_wire(optimize=False)
        assert len({each[1] for each in wire["nodes"]}) == len(names)
        return time.process_time() - started

    count = 20_000
    assert seconds(["same"] * count) < 3 * seconds([f"n{number}" for number in range(count)])


@pytest.mark.parametrize("name", [b"node", b"Relu", b"input", b"result", b"alpha", b"constant"])
def test_a_name_that_is_not_utf_8_is_refused(name: bytes) -> None:
    constants = {"constant": np.ones(1, np.float32)}
    whole = model_of("Relu", {"input": (2,)}, constants, outputs=("result",), alpha=1.0).SerializeToString()
    with pytest.raises(ModelError, match=r"the name b'.*' is not UTF-8"):
        load_onnx(whole.replace(name, b"\xff" * len(name)))


def test_tensors_in_attributes_are_checked_as_initialisers_are() -> None:
    filling = numpy_helper.from_array(np.ones(1, np.float32))
    filling.dims[0] = 2**40
    made = model([node("Constant", [], ["q"], value=filling), ADD], {"x": (1,)}, ["y"])
    with pytest.raises(ModelError, match="needs 4398046511104 bytes, its data have 4"):
        load_onnx(made)
