"""Arguments that name arrays in place: they come back as they were, and nothing else is read, whatever the bytes are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from poolrt.workers.ipc.outlined_payload import LONG, Place
from poolrt.workers.processes.placed_arrays import pack_placed, parse_placed
from poolrt.workers.processes.plain_pickles import UNPACKING_ERRORS, unpack_scalar

_ARENA = np.zeros(1 << 20, np.uint8)
_BEGIN = _ARENA.ctypes.data


def _find(address: int, nbytes: int) -> int:
    offset = address - _BEGIN
    return offset if 0 <= offset <= _ARENA.nbytes - nbytes else -1


def _open(places: tuple[Place, ...]) -> list[Any]:
    found = []
    for _, start, nbytes in places:
        if start < 0 or nbytes < 0 or start + nbytes > _ARENA.nbytes:
            raise ValueError("outside")
        found.append(_ARENA.data[start : start + nbytes])
    return found


def _opened(flat: tuple[Any, ...]) -> list[Any]:
    parsed = parse_placed(flat)
    return parsed.fill(_open(parsed.places))


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _arrays() -> list[Any]:
    floats = _ARENA[256 : 256 + 4 * 12_000].view(np.float32)
    return [
        floats,
        floats.reshape(30, 400),
        floats.reshape(30, 400).T,
        floats.reshape(3, 20, 200)[1:],
        floats[16:].view(">i8"),
        _ARENA[64 : 64 + 40_000].view("M8[ms]"),
        _ARENA[64 : 64 + 48_000].view("U3"),
        _ARENA[: LONG + 8].view(np.bool_),
        _ARENA[1 : 1 + 8 * 2000].view(np.complex64),  # not aligned
        floats.reshape(1, 1, -1, 1),
    ]


def test_arrays_and_scalars_come_back_as_they_were() -> None:
    rng = random.Random(3)
    _ARENA[:] = np.random.default_rng(0).integers(0, 256, _ARENA.size)
    arrays = _arrays()
    for _ in range(300):
        chosen = rng.sample(arrays, rng.randrange(1, 4))
        args = [*chosen, 5, -(1 << 70), 2.5, "text", b"bytes", None, True][: rng.randrange(1, 10)]
        rng.shuffle(args)
        if not any(isinstance(each, np.ndarray) for each in args):
            continue
        packed = pack_placed(tuple(args), _find)
        assert packed is not None
        data, held = packed
        assert all(each.array is given for each, given in zip(held, filter(_is_array, args), strict=True))
        found = _opened(unpack_scalar(data))
        assert len(found) == len(args)
        for got, given in zip(found, args, strict=True):
            if not isinstance(given, np.ndarray):
                assert got == given
                continue
            assert (got.dtype, got.shape, got.strides) == (given.dtype, given.shape, given.strides)
            assert got.ctypes.data == given.ctypes.data
            assert got.tobytes() == given.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(20_000),
        _ARENA[: LONG - 1],
        _ARENA[: 2 * LONG : 2],
        _ARENA[: 8 * 4000].view([("a", "i4"), ("b", "f4")]),
        _ARENA[:40_000].view(np.recarray),
        [1, 2],
        (1,),
        "x" * 2000,
        np.float64(2),
        _ARENA.reshape(1024, 1024)[:, :512],
    ],
    ids=["other memory", "short", "strided", "records", "subclass", "list", "tuple", "text", "NumPy number", "columns"],
)
def test_any_other_argument_is_left_to_pickles(value: Any) -> None:
    assert pack_placed((_ARENA[:40_000], value), _find) is None


def test_the_same_array_twice_is_left_to_pickles() -> None:
    array = _ARENA[:40_000]
    assert pack_placed((array, array), _find) is None


def test_no_other_memory_is_read_whatever_the_bytes_are() -> None:
    rng = random.Random(7)
    arrays = _arrays()
    packed = [pack_placed((each, 7, arrays[0][8:]), _find) for each in arrays]
    loaded = 0
    for _ in range(20_000):
        chosen = rng.choice(packed)
        assert chosen is not None
        damaged = bytearray(chosen[0])
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            found = _opened(unpack_scalar(bytes(damaged)))
        except (*UNPACKING_ERRORS, IndexError, AttributeError):
            continue
        loaded += 1
        for each in found:
            if isinstance(each, np.ndarray):
                assert not each.dtype.hasobject
                assert _find(each.ctypes.data, each.nbytes) >= 0 or not each.nbytes
    assert loaded > 100


def test_no_array_of_objects_is_made_of_bytes() -> None:
    with pytest.raises(TypeError, match="data type"):
        _opened(("C", 0, "|O", 1, 2000))
