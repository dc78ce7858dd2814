"""`OrtValue` and `IOBinding` do what ONNX Runtime's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import poolrt.onnx as ort
from poolrt.workers.primitives.provider import PrimitiveProvider

from .models import Array, rival, session, sums

_X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


@pytest.mark.parametrize("library", [ort, onnxruntime])
def test_a_value_shares_the_memory_of_its_array(library: Any) -> None:
    x = _X.copy()
    value = library.OrtValue.ortvalue_from_numpy(x)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", TensorProto.FLOAT)
    assert (value.device_name(), value.has_value(), value.is_tensor()) == ("cpu", True, True)
    assert (value.data_ptr(), value.tensor_size_in_bytes()) == (x.ctypes.data, 24)
    value.update_inplace(np.full((2, 3), 9, np.float32))
    np.testing.assert_array_equal(x, np.full((2, 3), 9, np.float32))
    np.testing.assert_array_equal(np.from_dlpack(value), x)
    x[0, 0] = 1
    assert library.OrtValue.from_dlpack(x).numpy()[0, 0] == value.numpy()[0, 0] == 1
    empty = library.OrtValue.ortvalue_from_shape_and_type([2, 5], np.int64)
    assert (empty.shape(), empty.data_type()) == ([2, 5], "tensor(int64)")
    bits = library.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([16256], np.uint16), TensorProto.BFLOAT16)
    assert (bits.data_type(), bits.element_type()) == ("tensor(bfloat16)", TensorProto.BFLOAT16)


def test_a_value_of_an_array_in_another_byte_order_has_its_numbers(cache: PrimitiveProvider) -> None:
    swapped = _X.astype(">f4")
    value = ort.OrtValue.ortvalue_from_numpy(swapped)
    np.testing.assert_array_equal(value.numpy(), _X)
    found = session(sums(), cache).run_with_ort_values(["s"], {"x": value, "y": value})
    np.testing.assert_array_equal(found[0].numpy(), 2 * _X)
    with pytest.raises(ort.InvalidArgument, match=r"Actual: \(tensor\(float\) in another byte order, >f4\) , expected"):
        session(sums(), cache).run(None, {"x": swapped, "y": _X})


def test_values_of_other_devices_types_and_shapes_are_refused() -> None:
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    with pytest.raises(ort.InvalidArgument, match="device cuda:0"):
        ort.OrtValue.ortvalue_from_numpy(_X, "cuda", 0)
    with pytest.raises(ort.InvalidArgument, match=r"expect float32\[2, 3\], got float64\[2, 3\]"):
        value.update_inplace(_X.astype(np.float64))
    with pytest.raises(ort.InvalidArgument, match="complex64"):
        ort.OrtValue.ortvalue_from_numpy(np.zeros(2, np.complex64))


def bound(library: Any, made: Any, buffer: Array, value: Any) -> list[Array]:
    """Run with inputs and outputs bound in each way; return what the outputs hold."""
    x = _X.copy()
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_input("y", "cpu", 0, np.float32, [2, 3], x.ctypes.data)
    binding.bind_output("s", "cpu", 0, np.float32, [2, 3], buffer.ctypes.data)
    binding.bind_output("p")
    made.run_with_iobinding(binding)
    first = [buffer.copy(), *binding.copy_outputs_to_cpu()]
    x[...] = 1  # the next run reads it
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("p", value)
    binding.bind_ortvalue_input("y", library.OrtValue.ortvalue_from_numpy(x))
    made.run_with_iobinding(binding)
    return [*first, value.numpy().copy(), *(each.numpy() for each in binding.get_outputs())]


def test_bound_memory_is_read_and_written_in_every_run(cache: PrimitiveProvider) -> None:
    found, expected = (
        bound(library, made, np.zeros((2, 3), np.float32), library.OrtValue.ortvalue_from_numpy(np.zeros_like(_X)))
        for library, made in ((ort, session(sums(), cache)), (onnxruntime, rival(sums())))
    )
    assert len(found) == len(expected) == 5
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


@pytest.mark.parametrize("offset", range(0, 64, 20))
def test_an_output_is_written_to_its_memory_and_to_no_other(offset: int, cache: PrimitiveProvider) -> None:
    made = session(sums(), cache)
    memory = np.full(4096, 7, np.uint8)
    place = memory[1024 + offset :][:24].view(np.float32).reshape(2, 3)
    binding = made.io_binding()
    for name in "xy":
        binding.bind_cpu_input(name, _X)
    binding.bind_ortvalue_output("s", ort.OrtValue.ortvalue_from_numpy(place))
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(place, 2 * _X)
    place[...] = np.full(24, 7, np.uint8).view(np.float32).reshape(2, 3)
    assert (memory == 7).all()


def test_an_output_may_be_bound_to_the_memory_of_an_input(cache: PrimitiveProvider) -> None:
    made, x, y = session(sums(), cache), _X.copy(), _X.copy()
    binding = made.io_binding()
    for name, array in (("x", x), ("y", y)):
        binding.bind_cpu_input(name, array)
    # Both outputs read x: neither may see what the other one has written.
    binding.bind_ortvalue_output("p", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("s", ort.OrtValue.ortvalue_from_numpy(y))
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(x, _X * [1, 2, 4])
    np.testing.assert_array_equal(y, 2 * _X)


def test_wrong_bindings_are_refused(cache: PrimitiveProvider) -> None:
    made = session(sums(), cache)
    binding = made.io_binding()
    with pytest.raises(ort.InvalidArgument, match="Failed to find NodeArg with name: z"):
        binding.bind_cpu_input("z", _X)
    with pytest.raises(ort.InvalidArgument, match=r"Actual: \(tensor\(double\)\)"):
        binding.bind_cpu_input("x", _X.astype(np.float64))
    with pytest.raises(ValueError, match="`element_type` and `shape`"):
        binding.bind_output("s", buffer_ptr=64)
    for name in "xy":
        binding.bind_cpu_input(name, _X)
    with pytest.raises(ort.InvalidArgument, match="At least one output"):
        made.run_with_iobinding(binding)
    binding.bind_ortvalue_output("s", ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 3), np.float32)))
    with pytest.raises(ort.InvalidArgument, match=r"output s: it is float32\[2, 3\].*float32\[3, 3\]"):
        made.run_with_iobinding(binding)
    with pytest.raises(ValueError, match="session that created it"):
        session(sums(), cache).run_with_iobinding(binding)
