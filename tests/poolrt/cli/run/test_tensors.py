"""Tensors from files: accepted and refused files, and when two results count as equal."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from poolrt.cli.report import JobFailed, UsageError
from poolrt.cli.run.tensors import Port, compare, read_expected, read_inputs, save, top

PORTS = [Port("a", (2, 3), "float32"), Port("b", (4,), "float32")]


def _npy(folder: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str = "x.npy") -> Path:
    path = folder / name
    np.save(path, array)
    return path


def test_random_inputs_are_as_the_help_describes() -> None:
    generator = np.random.default_rng(7)
    first, second = generator.standard_normal((2, 3)).astype("f4"), generator.standard_normal((4,)).astype("f4")
    values = read_inputs([], 7, PORTS)
    assert list(values) == ["a", "b"]
    np.testing.assert_array_equal(values["a"], first)
    np.testing.assert_array_equal(values["b"], second)


def test_a_given_input_does_not_shift_the_random_ones(tmp_path: Path) -> None:
    given = np.ones((2, 3), "f4")
    values = read_inputs([f"a={_npy(tmp_path, given)}"], 7, PORTS)
    np.testing.assert_array_equal(values["a"], given)
    np.testing.assert_array_equal(values["b"], read_inputs([], 7, PORTS)["b"])


def test_a_name_may_hold_an_equals_sign(tmp_path: Path) -> None:
    path = _npy(tmp_path, np.zeros(1, "f4"))
    assert list(read_inputs([f"x=y={path}"], None, [Port("x=y", (1,), "float32")])) == ["x=y"]


@pytest.mark.parametrize(
    ("assignments", "seed", "message"),
    [
        (["a"], 0, "--input a: expected NAME=FILE"),
        (["a="], 0, "--input a=: expected NAME=FILE"),
        (["c={npy}"], 0, "--input c: the model has no such input; it has a float32[2, 3], b float32[4]"),
        (["a={npy}", "a={npy}"], 0, "--input a: given twice"),
        (["a={npy}"], None, "no value for b float32[4]: give --input NAME=FILE or --random-inputs SEED"),
        (["b={npy}"], 0, "--input b: {npy} has shape [2, 3], the model expects [4]"),
        (["a={f64}"], 0, "--input a: {f64} holds float64, the model expects float32"),
        (["a=/nowhere/x.npy"], 0, "/nowhere/x.npy: No such file or directory"),
        (["a={text}"], 0, "{text}: not a file of arrays; expected NumPy's .npy or .npz, or .pb with an ONNX tensor"),
        (["a={pickle}"], 0, "{pickle}: a damaged array file, or one of Python objects: "),
        (["a={npz}"], 0, "--input a: {npz} holds no array of this name; it holds x, y"),
        (["a={folder}"], 0, "{folder}: Is a directory"),
    ],
)
def test_a_wrong_input_is_refused_in_one_line(
    tmp_path: Path, assignments: list[str], seed: int | None, message: str
) -> None:
    text, npz = tmp_path / "text.npy", tmp_path / "many.npz"
    text.write_text("hello")
    np.savez(npz, x=np.zeros(1), y=np.zeros(1))
    names = {
        "folder": tmp_path,
        "npy": _npy(tmp_path, np.zeros((2, 3), "f4")),
        "f64": _npy(tmp_path, np.zeros((2, 3)), "f64.npy"),
        "pickle": tmp_path / "pickle.npy",
        "text": text,
        "npz": npz,
    }
    np.save(names["pickle"], np.array([{}]), allow_pickle=True)
    with pytest.raises(UsageError) as caught:
        read_inputs([line.format(**names) for line in assignments], seed, PORTS)
    assert str(caught.value).startswith(message.format(**names))


def test_an_onnx_tensor_is_read_with_its_name(tmp_path: Path) -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    path = tmp_path / "output_0.pb"
    path.write_bytes(numpy_helper.from_array(array, "second").SerializeToString())
    expected = read_expected(path, ["first", "second"])
    assert list(expected) == ["second"]
    np.testing.assert_array_equal(expected["second"], array)


@pytest.mark.parametrize("form", ["npy", "npz", "pb"])
def test_a_single_tensor_of_another_name_stands_for_the_only_output(tmp_path: Path, form: str) -> None:
    array = np.arange(3, dtype="f4")
    path = tmp_path / f"output.{form}"
    if form == "pb":
        path.write_bytes(numpy_helper.from_array(array, "elsewhere").SerializeToString())
    else:
        (np.save if form == "npy" else np.savez)(path, array)
    expected = read_expected(path, ["gpu_0/softmax_1"], ["gpu_0/data_0"])
    assert list(expected) == ["gpu_0/softmax_1"]
    np.testing.assert_array_equal(expected["gpu_0/softmax_1"], array)
    with pytest.raises(UsageError, match="expected arrays named as the model's outputs, first, second"):
        read_expected(path, ["first", "second"])


@pytest.mark.parametrize("form", ["npy", "npz", "pb"])
def test_an_input_is_read_from_each_form_of_file(tmp_path: Path, form: str) -> None:
    array = np.arange(6, dtype=">f4" if form == "npy" else "f4").reshape(2, 3)
    path = tmp_path / f"a=b.{form}"
    if form == "pb":
        path.write_bytes(numpy_helper.from_array(array, "elsewhere").SerializeToString())
    elif form == "npz":
        np.savez(path, allow_pickle=False, **{"gpu_0/data_0": array, "another": np.zeros(3)})
    else:
        np.save(path, array)
    values = read_inputs([f"gpu_0/data_0={path}"], None, [Port("gpu_0/data_0", (2, 3), "float32")])
    assert values["gpu_0/data_0"].dtype == np.dtype("=f4")
    np.testing.assert_array_equal(values["gpu_0/data_0"], array)


def test_arrays_named_as_inputs_are_no_expected_outputs(tmp_path: Path) -> None:
    path = tmp_path / "both.npz"
    np.savez(path, x=np.zeros(2), y=np.ones(2))
    assert list(read_expected(path, ["y"], ["x"])) == ["y"]
    with pytest.raises(UsageError, match="holds x; expected arrays named as the model's outputs, y"):
        read_expected(path, ["y"])


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.zeros(1, "M8[s]"), np.zeros(1, "V4")])
def test_values_that_are_no_numbers_are_refused_as_expected_output(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UsageError, match="not numbers"):
        read_expected(_npy(tmp_path, array), ["y"])


def test_a_broken_onnx_tensor_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pb"
    whole = numpy_helper.from_array(np.zeros(100, "f4"), "x").SerializeToString()
    for content in (whole[:50], b"\xff" * 40, onnx.TensorProto(data_type=1, dims=[3]).SerializeToString()):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="not an ONNX tensor"):
            read_expected(path, ["x"])


def test_an_archive_gives_each_output_by_name_and_refuses_names_that_the_model_lacks(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    np.savez(path, y=np.ones(2))
    assert list(read_expected(path, ["x", "y"])) == ["y"]
    np.savez(path, y=np.ones(2), z=np.ones(2))
    with pytest.raises(UsageError, match="holds z; expected arrays named as the model's outputs, x, y"):
        read_expected(path, ["x", "y"])
    with pytest.raises(UsageError, match="holds y, z; expected arrays named as the model's outputs, x"):
        read_expected(path, ["x"])
    np.savez(path)
    with pytest.raises(UsageError, match="holds no array"):
        read_expected(path, ["x"])


def _flipped(path: Path) -> bytes:
    np.savez_compressed(path, x=np.arange(1000.0))
    content = bytearray(path.read_bytes())
    content[200:220] = bytes(20)
    return bytes(content)


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    flipped = _flipped(path)
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    broken = {
        b"PK\x03\x04 not really": "a damaged archive",
        b"": "not a file of arrays",
        flipped: "a damaged archive",
        (tmp_path / "text.npz").read_bytes(): "not an archive of NumPy arrays: it holds readme.txt",
    }
    for content, said in broken.items():
        path.write_bytes(content)
        with pytest.raises(UsageError, match=rf"e\.npz: {said}"):
            read_expected(path, ["x"])


def test_results_within_tolerance_give_the_largest_absolute_error() -> None:
    expected = {"y": np.array([1.0, 100.0, np.inf, np.nan])}
    result = {"y": np.array([1.0005, 100.05, np.inf, np.nan], "f4"), "other": np.zeros(1)}
    assert compare(result, expected, 1e-3, 0) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(1.0021, 1.0), (np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (np.inf, -np.inf), (-np.inf, np.inf)],
)
def test_a_result_that_differs_fails_and_names_its_index(value: float, wanted: float) -> None:
    expected, result = np.ones((2, 2)), np.ones((2, 2), "f4")
    expected[1, 0], result[1, 0] = wanted, value
    with pytest.raises(JobFailed, match=r"output y differs .* in 1 of 4 values, by .* at most, at \[1, 0\]"):
        compare({"y": result}, {"y": expected}, 1e-3, 1e-3)


def test_a_result_of_another_shape_fails_rather_than_being_broadcast() -> None:
    with pytest.raises(JobFailed, match=r"output y has shape \[1\], expected \[3\]"):
        compare({"y": np.ones(1)}, {"y": np.ones(3)}, 1, 1)


def test_results_are_saved_in_full_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    save(path, {"y/z": np.arange(3), "file": np.ones(2)})
    with np.load(path) as archive:
        np.testing.assert_array_equal(archive["file"], np.ones(2))
        np.testing.assert_array_equal(archive["y/z"], np.arange(3))
    with pytest.raises(JobFailed, match="--save"):
        save(tmp_path / "none" / "out.npz", {"y": np.arange(3)})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.npz"]


def test_the_largest_values_come_first_with_their_flat_index() -> None:
    assert top(np.array([[0.5, 2.0], [2.0, -1.0]]), 3) == [(1, 2.0), (2, 2.0), (0, 0.5)]
