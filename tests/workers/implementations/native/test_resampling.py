"""Resampling on native kernels, with float64 results of the definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, Resampling, post_op_src
from poolrt.workers.desc.operations.resampling import COORDINATES
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc, primitive_descs
from poolrt.workers.streams.stream import Stream
from tests.references import assert_close, reference, results
from tests.workers import compiled
from tests.workers.cases import Case, integers
from tests.workers.implementations.reference.drawing import DOUBT, LAST_PLACE
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.problems import FAST, summand
from tests.workers.support.reading import EdgeRunner

#: Outer dimensions, spatial sizes of src and of dst: strips and pieces of rows, both sides of 16, smaller and larger.
PROBLEMS = (
    ((1, 3), (7,), (33,)),
    ((2, 19), (5, 3), (7, 7)),
    ((1, 2), (4, 9), (300, 17)),
    ((1, 1), (3, 1100), (2, 530)),
    ((1, 17), (1, 1), (3, 5)),
    ((1, 2), (3, 4, 5), (5, 3, 18)),
    ((1, 1), (6, 2, 3), (2, 5, 2)),
    ((1, 16), (8, 8), (8, 8)),
)
RARE = ("s64", "u64", "u32", "s16", "u16", "s8", "bool")
ALGORITHMS = ("linear", pytest.param("nearest", marks=pytest.mark.slow))


def resampling(
    algorithm: str, outer: tuple[int, ...], src: tuple[int, ...], dst: tuple[int, ...], blocked: bool
) -> Resampling:
    tag = f"aB{'cde'[: len(src)]}16b" if blocked else ""
    return Resampling(MemoryDesc((*outer, *src), "f32", tag), MemoryDesc((*outer, *dst), "f32", tag), algorithm)


@pytest.mark.parametrize("blocked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sizes_grow_and_shrink(native: NativeRunner, isa: str, algorithm: str, blocked: bool) -> None:
    for outer, small, large in PROBLEMS:
        op = resampling(algorithm, outer, small, large, blocked)
        assert primitive_desc(op, PrimitiveAttr(), target_of(isa)).impl_name() == "native:resampling"
        src = integers(op.src.dims, low=1, high=90)  # of one sign: nothing cancels
        native.check(Case(f"{outer} {small} {large}", op, {Arg.SRC: src}, rtol=7 * 2.0**-23), isa)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_rows_of_planes_that_become_lower_are_mixed_first(native: NativeRunner, isa: str, coordinates: str) -> None:
    for src, dst in (
        ((9, 37), (4, 22)), ((5, 15), (3, 31)), ((7, 700), (2, 1100)), ((12, 40), (6, 40)), ((6, 3), (5, 1)),
        ((3, 4200), (2, 60)),
    ):  # fmt: skip
        op = dataclasses.replace(resampling("linear", (2, 3), src, dst, False), coordinates=coordinates)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert [dict(kernel.params)["shrinks"] for kernel in pd.program().kernels] == [src[1] <= 4096]
        values = integers(op.src.dims, low=1, high=90)  # of one sign: nothing cancels
        native.check(Case(f"{src} {dst}", op, {Arg.SRC: values}, rtol=7 * 2.0**-23), isa)
        # An infinite element counts where it has a weight, and nowhere else: the reference implementation leaves it out, too.
        values[:, :, 0, 0], values[:, :, -1, src[1] // 2] = np.inf, np.nan
        pds = primitive_descs(op, PrimitiveAttr(), target_of(isa))
        fast, plain = (native.results(pd, {Arg.SRC: values})[Arg.DST] for pd in pds)
        np.testing.assert_allclose(fast, plain, rtol=1e-6, err_msg=f"{src} {dst}")


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners"])
def test_rows_are_added_up_before_columns_by_cubic_convolution(
    native: NativeRunner, isa: str, coordinates: str
) -> None:
    found = set()
    for src, dst in (
        ((28, 28), (14, 14)), ((9, 37), (4, 22)), ((5, 15), (3, 31)), ((7, 700), (2, 1100)), ((12, 40), (6, 40)),
        ((6, 3), (5, 1)), ((3, 4200), (2, 600)), ((4, 600), (3, 80)), ((14, 14), (28, 28)), ((4, 60), (9, 20)),
    ):  # fmt: skip
        op = dataclasses.replace(resampling("cubic", (2, 3), src, dst, False), coordinates=coordinates)
        pds = primitive_descs(op, PrimitiveAttr(), target_of(isa))
        (params,) = [dict(kernel.params) for kernel in pds[0].program().kernels]
        assert params["part"] == ("lower" if src[0] > dst[0] and src[1] <= min(4096, 8 * dst[1]) else "rows")
        found.add(params["near"])
        args = {int(Arg.SRC): np.random.default_rng(5).standard_normal(op.src.dims).astype(np.float32)}
        want = reference(op, PrimitiveAttr(), args)
        added = summand(op, args, pds[0].impl_name(), Arg.DST)
        assert_close(native.results(pds[0], args)[Arg.DST], want, "f32", FAST["resampling"], str(op), added)
        # An infinite element counts where it has a weight, and nowhere else: the reference implementation leaves it out, too.
        args[Arg.SRC][0, :, 0, 0], args[Arg.SRC][1, :, -1, src[1] // 2] = np.inf, np.nan
        fast, plain = (np.isfinite(native.results(pd, args)[Arg.DST]) for pd in pds)
        np.testing.assert_array_equal(fast, plain, err_msg=str(op))
    assert found == {0, 16, 32}


@pytest.mark.parametrize("blocked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("dtype", ["f64", "s32", "u8", *(pytest.param(each, marks=pytest.mark.slow) for each in RARE)])
@pytest.mark.one_in(4)
def test_other_types_are_rounded_once(
    native: NativeRunner, isa: str, dtype: str, algorithm: str, blocked: bool
) -> None:
    for outer, small, large in PROBLEMS:
        op = resampling(algorithm, outer, small, large, blocked)
        op = dataclasses.replace(
            op, src=dataclasses.replace(op.src, dtype=dtype), dst=dataclasses.replace(op.dst, dtype=dtype)
        )
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:resampling"
        lowest, highest = (0, 1) if dtype == "bool" else (0, 200) if dtype[0] == "u" else (-100, 100)
        args = {int(Arg.SRC): np.random.default_rng(7).integers(lowest, highest + 1, op.src.dims).astype(np.float64)}
        want = reference(op, PrimitiveAttr(), args)
        added = summand(op, args, pd.impl_name(), Arg.DST)
        limit = LAST_PLACE.get(dtype, 0.0)
        assert_close(native.results(pd, args)[Arg.DST], want, dtype, limit, str(op), added, DOUBT["resampling"])


def test_elements_that_are_only_moved_keep_all_bits(native: NativeRunner, isa: str) -> None:
    for dtype, stored in (
        ("s64", np.int64),
        ("u64", np.uint64),
        ("s32", np.int32),
        ("s16", np.int16),
        ("u8", np.uint8),
    ):
        for src, dst in (((5, 37), (7, 90)), ((4, 40), (8, 80)), ((6, 50), (3, 20))):
            op = Resampling(MemoryDesc((1, 2, *src), dtype), MemoryDesc((1, 2, *dst), dtype), "nearest")
            limits = np.iinfo(stored)
            given = np.random.default_rng(3).integers(limits.min, limits.max, op.src.dims, stored, endpoint=True)
            places = [
                np.clip(np.floor((np.arange(wide) + 0.5) * size / wide - 0.5 + 0.5), 0, size - 1).astype(int)
                for size, wide in zip(src, dst, strict=True)
            ]
            got = native.results(primitive_desc(op, PrimitiveAttr(), target_of(isa)), {int(Arg.SRC): given})[Arg.DST]
            np.testing.assert_array_equal(got, given[:, :, places[0]][..., places[1]])


@pytest.mark.parametrize("algorithm", ["linear", "nearest"])
def test_rows_that_shrink_are_taken_by_permutations_of_two_vectors(algorithm: str) -> None:
    """Nothing is read further behind src than `SLACK` bytes, also of widths less than a vector's."""
    found = set()
    for isa in ("x86-64-v3", "x86-64-v4"):
        for src, dst in (
            (64, 32),
            (333, 200),
            (100, 55),
            (21, 19),
            (40, 17),
            (18, 16),
            (130, 129),
            (700, 600),
            (90, 30),
        ):
            op = resampling(algorithm, (2, 2), (3, src), (3, dst), False)
            pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
            (params,) = [dict(kernel.params) for kernel in pd.program().kernels]
            found.add((isa, params["far"]))
            args = {int(Arg.SRC): np.random.default_rng().standard_normal(op.src.dims).astype(np.float32)}
            got, want = EdgeRunner().results(pd, args)[Arg.DST], reference(op, PrimitiveAttr(), args)
            added = summand(op, args, pd.impl_name(), Arg.DST)
            assert_close(got, want, "f32", FAST["resampling"], str(op), added)
    assert found == {("x86-64-v3", False), ("x86-64-v4", False), ("x86-64-v4", True)}


@pytest.mark.parametrize("factor", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("chained", [False, True])
def test_elements_are_repeated(native: NativeRunner, isa: str, factor: int, chained: bool) -> None:
    for outer, src in (((2, 3), (5, 7)), ((1, 2), (2, 28)), ((1, 1), (1, 300)), ((1, 2), (2, 3, 5)), ((3, 1), (16,))):
        for cut in (0, 1):
            # With a cut, the last element is there once less than the others.
            dst = (*(factor * size for size in src[:-1]), factor * src[-1] - cut)
            op = dataclasses.replace(
                resampling("nearest", outer, src, dst, False), coordinates="asymmetric", nearest="floor",
                factors=(float(factor),) * len(src),
            )  # fmt: skip
            attr = PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),) if chained else ())
            pd = primitive_desc(op, attr, target_of(isa))
            given = np.random.default_rng().standard_normal(op.src.dims).astype(np.float32)
            want = given
            for axis in range(len(src)):
                want = want.repeat(factor, axis + 2)
            want = want[..., : dst[-1]]
            got = native.results(pd, {int(Arg.SRC): given})[Arg.DST]
            np.testing.assert_array_equal(got, np.maximum(want, 0) if chained else want)


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("algorithm", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_places_are_those_of_the_coordinates(
    native: NativeRunner, isa: str, coordinates: str, algorithm: str, blocked: bool
) -> None:
    for outer, small, large in PROBLEMS:
        op = dataclasses.replace(
            resampling(algorithm, outer, small, large, blocked),
            coordinates=coordinates,
            nearest="round_prefer_floor",
            exclude_outside=len(small) == 2,
            factors=tuple((b + 0.25) / a for a, b in zip(small, large, strict=True)),
            roi=(0.125,) * len(small) + (0.75,) * len(small) if coordinates == "tf_crop_and_resize" else (),
        )
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:resampling"
        args = {int(Arg.SRC): np.random.default_rng(5).standard_normal(op.src.dims).astype(np.float32)}
        want = reference(op, PrimitiveAttr(), args)
        added = summand(op, args, pd.impl_name(), Arg.DST)
        assert_close(native.results(pd, args)[Arg.DST], want, "f32", FAST["resampling"], str(op), added)


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [False, True])
def test_an_infinite_neighbour_without_weight_counts_nothing(native: NativeRunner, blocked: bool) -> None:
    """The reference implementation leaves elements of weight 0 out, too."""
    op = resampling("linear", (1, 3), (5, 5), (15, 5), blocked)
    src = integers(op.src.dims)
    src[0, 0, 2], src[0, 1, :, 3], src[0, 2, 0, 0] = np.inf, -np.inf, np.nan
    args = {int(Arg.SRC): src}
    fast, plain = (native.results(pd, args)[Arg.DST] for pd in primitive_descs(op, PrimitiveAttr(), cpu_target()))
    np.testing.assert_allclose(fast, plain, rtol=1e-6, atol=2e-6)
    assert np.isinf(fast).any()
    assert np.isfinite(fast).any()


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [False, True])
def test_a_chain_follows(native: NativeRunner, isa: str, blocked: bool) -> None:
    op = resampling("linear", (2, 19), (5, 3), (7, 19), blocked)
    attr = PrimitiveAttr((PostOp("binary", "add", src1=op.dst), PostOp("eltwise", "relu")))
    args = {int(Arg.SRC): integers(op.src.dims), post_op_src(0): integers(op.dst.dims, "added")}
    native.check(Case("", op, args, attr, rtol=1e-6, atol=4e-6), isa)


@pytest.mark.parametrize(("src", "dst"), [((5, 3), (7, 19)), ((40, 40), (9, 21))])
@pytest.mark.parametrize("algorithm", ["nearest", "linear"])
def test_the_tensor_that_is_added_may_be_the_destination(
    algorithm: str, src: tuple[int, ...], dst: tuple[int, ...], store: CacheStore
) -> None:
    """No row writes over what is added to the next one."""
    op = resampling(algorithm, (2, 3), src, dst, False)
    attr = PrimitiveAttr((PostOp("binary", "add", src1=op.dst),))
    engine = Engine("cpu")
    pd = primitive_desc(op, attr, cpu_target())
    assert pd.impl_name() == "native:resampling"
    given = {int(Arg.SRC): integers(op.src.dims), post_op_src(0): integers(op.dst.dims, "added")}
    memories = {arg: Memory(pd.memories()[arg], engine) for arg in given}
    for arg, values in given.items():
        memories[arg].map()[:] = values.astype(np.float32).view(np.uint8).reshape(-1).tobytes()
    stream = Stream(engine)
    added = memories[post_op_src(0)]
    Primitive(pd, engine, compiled.cache(4, store)).execute(stream, {**memories, int(Arg.DST): added})
    stream.wait()
    expected = results(op, attr, given)[Arg.DST]
    got = np.frombuffer(added.map(), np.float32).reshape(op.dst.dims)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_types_of_16_bits_are_converted_unless_they_are_moved(dtype: str) -> None:
    op = resampling("nearest", (1, 3), (5, 5), (15, 5), False)
    op = dataclasses.replace(
        op, src=dataclasses.replace(op.src, dtype=dtype), dst=dataclasses.replace(op.dst, dtype=dtype)
    )
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == "native:resampling"
    linear = dataclasses.replace(op, algorithm="linear")
    assert primitive_desc(linear, PrimitiveAttr(), cpu_target()).impl_name() == "nested:f32"


def test_what_the_kernels_cannot_do_is_refused_with_the_reason() -> None:
    wide, last = MemoryDesc((1, 1, 2, 2, 2, 2), "f32"), MemoryDesc((1, 3, 4, 4), "f32", "acdb")
    for md, why in ((wide, "4 spatial"), (last, "acdb")):
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(Resampling(md, md, "linear"), PrimitiveAttr(), cpu_target(), references=False)
    md = MemoryDesc((1, 1, 4), "f32")
    op = Resampling(md, md, "linear", coordinates="tf_crop_and_resize", roi=(0.0, 1.5))
    with pytest.raises(UnsupportedPrimitive, match="outside"):
        primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)
