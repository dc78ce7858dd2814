"""Products of 8-bit integers: exact on every ISA level, with and without the dot-product instruction."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, Matmul, MemoryDesc, PostOp, PrimitiveAttr, Quantisation, zero_points_of
from poolrt.workers.engines.cpu import CpuEngine
from poolrt.workers.execution.native_binding import BoundPrimitive, RealizedPrimitive
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc, primitive_descs
from poolrt.workers.memory.buffer import Buffer
from poolrt.workers.primitives.entry import parse_entry
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.threadpools.jobs import Jobs
from tests.workers import compiled
from tests.workers.levels import target_of

Array = NDArray[Any]
#: Every way to compute that there is: ISA levels, and the last two with the extension for products of integers.
INSTRUCTIONS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512_vnni", "x86-64-v3+avx_vnni")


class Products:
    """Computes products; each kernel is compiled once."""

    def __init__(self) -> None:
        self._creator = compiled.creator()
        self._engine = CpuEngine()

    def compute(self, pd: PrimitiveDesc, args: dict[int, Array], parts: int) -> None:
        """Execute with each launch's work cut into ``parts``, the last part first."""
        realized = RealizedPrimitive(parse_entry(self._creator.create(pd)), self._engine)
        scratchpad = Buffer(realized.entry.scratchpad)
        addresses: dict[int, int | None] = {arg: array.ctypes.data for arg, array in args.items()}
        result = (ctypes.c_int64 * 8)()
        start = ctypes.addressof(result)
        for block in BoundPrimitive(realized, addresses, scratchpad.address, Jobs(parts)).blocks:
            for address in reversed(block.addresses):
                assert block.kernel.function(start, start + 32, address) == 0


@pytest.fixture(scope="module")
def products() -> Products:
    return Products()


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
@settings(max_examples=25, deadline=None, database=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(0, 70)),
    transposed=st.tuples(st.booleans(), st.booleans()),
    offsets=st.tuples(*[st.integers(-300, 300)] * 2),
    mask=st.sampled_from([None, 0, 1, 2]),
    adds=st.booleans(),
    constant=st.booleans(),
    parts=st.sampled_from([1, 2, 7]),
    seed=st.integers(0, 1 << 32),
)
@pytest.mark.one_in(3)
def test_a_product_is_exact(
    products: Products,
    instructions: str,
    dtype: str,
    shape: tuple[int, int, int],
    transposed: tuple[bool, bool],
    offsets: tuple[int, int],
    mask: int | None,
    adds: bool,
    constant: bool,
    parts: int,
    seed: int,
) -> None:
    rows, columns, depth = shape
    rng = np.random.default_rng(seed)
    low, high, kind = (0, 256, np.uint8) if dtype == "u8" else (-128, 128, np.int8)
    left = rng.integers(low, high, (rows, depth)).astype(kind)
    right = rng.integers(-128, 128, (depth, columns)).astype(np.int8)
    dst = rng.integers(-1000, 1000, (rows, columns)).astype(np.int32)
    # Given a product with zero points of both factors, of the result where there is a mask, and maybe added to dst
    tags = ["ba" if turned else "ab" for turned in transposed]
    op = Matmul(
        MemoryDesc((rows, depth), dtype, tags[0]), MemoryDesc((depth, columns), "s8", tags[1]), None,
        MemoryDesc((rows, columns), "s32"),
    )  # fmt: skip
    points = [
        Quantisation(arg, values=(offset,) if constant else ())
        for arg, offset in zip((Arg.SRC, Arg.WEIGHTS), offsets, strict=True)
    ]
    count = {None: 0, 0: 1, 1: rows, 2: columns}[mask]
    result = rng.integers(-(2**20), 2**20, count).astype(np.int32)
    if mask is not None:
        points.append(Quantisation(Arg.DST, mask, tuple(result) if constant else ()))
    attr = PrimitiveAttr((PostOp.accumulate(),) if adds else (), zero_points=tuple(points))
    want = (left.astype(np.int64) - offsets[0]) @ (right.astype(np.int64) - offsets[1])
    want += dst if adds else 0
    want += result[:, None] if mask == 1 else result if mask is not None else 0
    # When it is computed
    args: dict[int, Array] = {
        Arg.SRC: np.ascontiguousarray(left.T if transposed[0] else left),
        Arg.WEIGHTS: np.ascontiguousarray(right.T if transposed[1] else right),
        Arg.DST: dst,
        zero_points_of(Arg.SRC): np.array([offsets[0]], np.int32),
        zero_points_of(Arg.WEIGHTS): np.array([offsets[1]], np.int32),
        zero_points_of(Arg.DST): result,
    }
    if constant:
        args = {arg: array for arg, array in args.items() if arg < Arg.ATTR_ZERO_POINTS}
    pd = primitive_desc(op, attr, target_of(instructions))
    products.compute(pd, args, parts)
    # Then it is the one that 64-bit arithmetic gives, by the kernel meant for these instructions
    how = "vnni" if "+" in instructions else "pairs"
    assert pd.impl_name() in (f"native:integer_{how}", f"native:packed_{how}", "native:batch_vnni")
    np.testing.assert_array_equal(dst, want)


def test_only_keys_of_implementations_that_use_an_extension_name_it() -> None:
    target = target_of("x86-64-v4+avx512_vnni")
    op = Matmul(MemoryDesc((4, 8), "u8"), MemoryDesc((8, 5), "s8"), None, MemoryDesc((4, 5), "s32"))
    found = {pd.impl_name(): pd for pd in primitive_descs(op, PrimitiveAttr(), target)}
    for family in ("packed", "integer"):
        assert found[f"native:{family}_vnni"].target.extensions == ("avx512_vnni",)
    # A host of the same level without the extension asks for this very key.
    plain = primitive_desc(op, PrimitiveAttr(), target_of("x86-64-v4"))
    assert plain.impl_name() == "native:packed_pairs"
    assert primitive_key(found["native:packed_pairs"]) == primitive_key(plain)
