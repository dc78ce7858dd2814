"""Files of tensors that would take the machine: headers are read and compared before any data."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from poolrt.cli.report import JobFailed, UsageError
from poolrt.cli.run.tensor_file import Header, read_headers, read_tensor
from poolrt.cli.run.tensors import Port, read_expected, read_inputs

#: Bytes of zeros that an archive of less than a hundred kilobytes stands for.
_INFLATED = 32 << 20
PORT = Port("x", (2, 3), "float32")


def _head(dims: tuple[int, ...], dtype: str = "<f4") -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": dims})
    return head.getvalue()


def _archive(path: Path, begin: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("x.npy", "w", force_zip64=True) as member:
        member.write(begin)
        for _ in range(_INFLATED >> 22):
            member.write(bytes(1 << 22))
    return path


@contextmanager
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _archive(tmp_path_factory.mktemp("bomb") / "bomb.npz", _head((_INFLATED // 4,)))


def test_an_array_of_another_shape_is_refused_before_it_is_inflated(bomb: Path) -> None:
    assert bomb.stat().st_size < 100_000
    with _little_memory():
        with pytest.raises(UsageError, match=r"has shape \[8388608\], the model expects \[2, 3\]"):
            read_inputs([f"x={bomb}"], None, [PORT])
        with pytest.raises(JobFailed, match=r"output x has shape \[2, 3\], expected \[8388608\]"):
            read_expected(bomb, ["x"], [], {"x": (2, 3)})


def test_a_header_that_is_longer_than_numpys_is_refused_before_it_is_read(tmp_path: Path) -> None:
    begin = b"\x93NUMPY\x02\x00" + (_INFLATED - 100).to_bytes(4, "little")
    path = _archive(tmp_path / "header.npz", begin)
    with _little_memory(), pytest.raises(UsageError, match="its header has 33554332 bytes, expect at most 10000"):
        read_inputs([f"x={path}"], None, [PORT])


def test_archives_of_methods_that_decompress_all_at_once_are_refused(tmp_path: Path) -> None:
    path = _archive(tmp_path / "method.npz", _head((2, 3)), zipfile.ZIP_BZIP2)
    assert path.stat().st_size < 4096
    with _little_memory(), pytest.raises(UsageError, match=r"x\.npy is compressed in a way that NumPy does not use"):
        read_inputs([f"x={path}"], None, [PORT])


@pytest.mark.parametrize("dims", [(1 << 60,), (-1,), (1 << 30, 1 << 30)])
def test_an_array_file_that_declares_more_than_it_holds_is_refused(tmp_path: Path, dims: tuple[int, ...]) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(_head(dims) + bytes(100))
    with pytest.raises(UsageError, match="the model expects"):
        read_inputs([f"x={path}"], None, [PORT])
    with pytest.raises(JobFailed, match="expected"):
        read_expected(path, ["y"], [], {"y": (2, 3)})


def test_an_element_of_many_bytes_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(_head((1,), "|V2000000000"))
    with _little_memory(), pytest.raises(UsageError, match="not numbers"):
        read_expected(path, ["y"], [], {"y": (1,)})


@pytest.mark.parametrize(
    "content", [b"\x93NUMPY\x03\x00" + bytes(40), b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff", _head((2, 3))]
)
def test_a_damaged_array_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.npy: a damaged array file"):
        read_inputs([f"x={path}"], None, [PORT])


def test_a_file_that_changes_between_header_and_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((2, 3), "f4"))
    (header,) = read_headers(path).values()
    assert header == Header((2, 3), np.dtype("f4"))
    assert read_tensor(path, "", header).shape == (2, 3)
    np.save(path, np.zeros((2, 3)))
    with pytest.raises(UsageError, match="it changes while it is read"):
        read_tensor(path, "", header)


def test_an_onnx_tensor_has_its_data_in_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    proto = onnx.TensorProto(name="x", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value="secret.bin")
    path = tmp_path / "x.pb"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UsageError, match="not an ONNX tensor: tensor 'x': its data is in another file"):
        read_inputs([f"x={path}"], None, [PORT])
