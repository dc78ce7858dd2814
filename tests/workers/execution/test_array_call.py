"""Launches on arrays, called by compiled code that looks at the arrays' objects."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.desc.operations.array_call import ArrayCall
from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.execution import array_call
from poolrt.workers.execution.array_call import ArrayCalls
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.memory.array_address import ARE_THERE
from poolrt.workers.threadpools.interface import KERNEL_TYPE, KernelFailed, Region
from tests.workers.compiled import compiled


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    """Return the kernel, loaded."""
    return load_object(compiled(KernelSpec.of("array_call"), cpu_target(host_isa())))


class _Launches:
    """Launches of Python functions, one after the other, and the memory of a block of arguments."""

    def __init__(self, *functions: Any) -> None:
        self.block = (ctypes.c_int64 * 8)()
        self.places = [(self.block, 3, 0, 0), (self.block, 4, 1, 16), (self.block, 5, 2, 0), (self.block, 6, 0, 4)]
        self.kept = [KERNEL_TYPE(function) for function in functions]
        at = ctypes.addressof(self.block)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self.kept]
        self.calls = [(None, Region(address, [at], "a launch", None, 10_000)) for address in addresses]


class _Primitive:
    """Without scratch memory."""

    class entry:  # noqa: N801 - in place of an attribute
        scratchpad = 0


def calls(kernel: NativeKernel, patch: pytest.MonkeyPatch, launches: _Launches, reach: int = 0) -> ArrayCalls:
    patch.setattr(array_call, "BoundLaunches", lambda *_: launches)
    primitive: Any = _Primitive()
    return ArrayCalls(kernel, primitive, (1, 2, 3), ((3, 4, 0), (4, 5, reach)))


@pytest.mark.skipif(not ARE_THERE, reason="this interpreter's arrays are elsewhere")
def test_launches_find_the_addresses_of_arrays_that_fit(kernel: NativeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []

    def note(_status: int, _raised: int, blob: int) -> int:
        seen.append(list((ctypes.c_int64 * 8).from_address(blob)))
        return 0

    ready = calls(kernel, monkeypatch, _Launches(note, note))
    a, b, c = (np.zeros(shape, np.float32) for shape in ((3, 4), (4, 5), (3, 5)))
    assert ready.run(a, b, c)
    assert seen == [[0, 0, 0, a.ctypes.data, b.ctypes.data + 16, c.ctypes.data, a.ctypes.data + 4, 0]] * 2
    for left, right in (
        (a.T, b), (a.astype(np.float64), b), (a[None], b), (a[0], b), (b, a), (a[:2], b), (a, b[:, :4]), (a[::-1], b),
        (None, b), (a, 3), ([], b), (a.astype(">f4"), b), (a.astype(np.int32), b), (a, np.zeros((5, 4), np.float32).T),
    ):  # fmt: skip
        assert not ready.run(left, right, c)
    assert len(seen) == 2


@pytest.mark.skipif(not ARE_THERE, reason="this interpreter's arrays are elsewhere")
def test_a_matrix_at_the_end_of_a_page_does_not_fit_if_kernels_read_behind_it(
    kernel: NativeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = np.zeros(8192, np.uint8)
    end = -room.ctypes.data % 4096 + 4096
    a, c = np.zeros((3, 4), np.float32), np.zeros((3, 5), np.float32)
    for behind, fits in ((0, False), (60, False), (64, True), (128, True)):
        b = room[end - behind - 80 : end - behind].view(np.float32).reshape(4, 5)
        assert calls(kernel, monkeypatch, _Launches(lambda *_: 0), reach=80).run(a, b, c) == fits
        assert calls(kernel, monkeypatch, _Launches(lambda *_: 0)).run(a, b, c)


@pytest.mark.skipif(not ARE_THERE, reason="this interpreter's arrays are elsewhere")
def test_a_launch_that_fails_is_raised_and_no_other_follows(
    kernel: NativeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def note(*given: int) -> int:
        seen.extend(given)
        return 0

    ready = calls(kernel, monkeypatch, _Launches(lambda *_: 0, lambda *_: 1, note))
    with pytest.raises(KernelFailed, match="a launch failed"):
        ready.run(*(np.zeros(shape, np.float32) for shape in ((3, 4), (4, 5), (3, 5))))
    assert not seen


def test_the_call_takes_no_attributes() -> None:
    with pytest.raises(UnsupportedPrimitive, match="attributes"):
        primitive_desc(ArrayCall(), PrimitiveAttr(jobs=2), cpu_target())
