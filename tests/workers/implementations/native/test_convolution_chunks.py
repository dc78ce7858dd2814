"""Convolutions in chunks of inputs: how they are cut, and their results where there are many inputs, images and strips."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers.desc import Arg, Convolution, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.memory import Memory
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.implementations.native.convolution_chunks import Sizes, chunks, cut, ends_with_half, takes_chunks
from poolrt.workers.implementations.primitive_desc import primitive_desc, primitive_descs
from poolrt.workers.implementations.program import Launch
from poolrt.workers.streams.stream import Stream
from tests.references import pack, reference, unpack
from tests.workers import compiled
from tests.workers.levels import of_level, target_of
from tests.workers.native_runner import NativeRunner

#: images, inputs, outputs, image, kernel, strides, dilations, padding (of both dimensions, or of each), groups
Pair = tuple[int, int]
Problem = tuple[int, int, int, Pair, Pair, Pair, Pair, int | Pair, int]
PROBLEMS: list[Problem] = [
    (1, 640, 40, (5, 7), (1, 1), (1, 1), (0, 0), 0, 1),
    (3, 530, 24, (7, 7), (1, 1), (2, 2), (0, 0), 0, 1),
    (2, 100, 33, (7, 5), (3, 3), (1, 1), (0, 0), 1, 1),
    (5, 68, 16, (6, 3), (3, 3), (2, 1), (0, 0), 1, 1),
    (1, 64, 32, (9, 13), (5, 3), (1, 2), (1, 2), 4, 1),
    (2, 96, 64, (5, 5), (5, 5), (1, 1), (0, 0), 2, 2),
    (1, 8, 20, (31, 29), (9, 7), (2, 3), (0, 0), 3, 1),
    (2, 128, 16, (1, 4), (1, 3), (1, 1), (0, 0), 1, 1),
    (1, 160, 48, (40, 41), (3, 3), (1, 1), (0, 0), 1, 1),
    (4, 80, 80, (33, 1), (3, 1), (1, 1), (0, 0), 1, 1),
    (2, 132, 132, (4, 5), (3, 3), (1, 1), (0, 0), 1, 3),
    (2, 136, 136, (5, 7), (1, 1), (1, 1), (0, 0), 0, 4),
    (1, 24, 112, (9, 7), (1, 1), (1, 1), (0, 0), 0, 4),
    (3, 35, 21, (6, 5), (3, 2), (2, 1), (1, 0), 1, 7),
    (1, 80, 32, (5, 5), (1, 1), (1, 1), (0, 0), 0, 2),
    (2, 102, 66, (8, 3), (3, 3), (1, 1), (0, 0), 1, 3),
    (2, 33, 40, (20, 21), (3, 3), (1, 1), (5, 5), 6, 1),
    (1, 64, 24, (1, 50), (1, 5), (1, 1), (0, 11), (0, 24), 1),
]
CHAINS: list[tuple[str, ...]] = [(), ("relu",), ("add",), ("add", "relu"), ("relu", "add"), ("relu", "add", "relu")]
#: Each problem with each chain; in `make test`, with two of the six, so that each chain has problems.
PAIRS = [
    pytest.param(problem, chain, marks=[pytest.mark.slow] * ((p + c) % 3 > 0), id=f"{problem}-{'-'.join(chain)}")
    for p, problem in enumerate(PROBLEMS)
    for c, chain in enumerate(CHAINS)
]


def steps_of(chain: tuple[str, ...], dst: MemoryDesc) -> PrimitiveAttr:
    """Return a chain of post-ops in which a tensor like ``dst`` is added."""
    return PrimitiveAttr(
        tuple(PostOp("binary", "add", src1=dst) if step == "add" else PostOp("eltwise", step) for step in chain)
    )


def convolution(problem: Problem) -> Convolution:
    n, ic, oc, size, kernel, strides, dilations, padding, groups = problem
    pads = padding if isinstance(padding, tuple) else (padding,) * 2
    out = tuple(
        (s + 2 * pad - ((k - 1) * (d + 1) + 1)) // st + 1
        for s, k, st, d, pad in zip(size, kernel, strides, dilations, pads, strict=True)
    )

    def md(*dims: int) -> MemoryDesc:
        return MemoryDesc(dims, "f32", "any")

    return Convolution(
        md(n, ic, *size), md(oc, ic // groups, *kernel), md(oc), md(n, oc, *out), strides, dilations, pads, pads,
        groups,
    )  # fmt: skip


def arguments(op: Convolution, attr: PrimitiveAttr) -> dict[int, np.ndarray[Any, Any]]:
    """Return fresh numbers for every argument that is read."""
    draw = np.random.default_rng()
    memories: dict[int, MemoryDesc] = {Arg.SRC: op.src, Arg.WEIGHTS: op.weights}
    if op.bias is not None:
        memories[Arg.BIAS] = op.bias
    for index, step in enumerate(attr.post_ops):
        if step.src1 is not None:
            memories[post_op_src(index)] = step.src1
    return {arg: draw.standard_normal(md.dims).astype(np.float32) for arg, md in memories.items()}


def assert_near(got: np.ndarray[Any, Any], op: Convolution, attr: PrimitiveAttr, args: dict[int, Any]) -> None:
    """Raise AssertionError unless errors are a few units in the last place of the sum of magnitudes."""
    want = reference(op, attr, args)
    magnitudes = reference(op, steps_of((), op.dst), {arg: np.abs(value) for arg, value in args.items() if arg < 1000})
    for index, step in enumerate(attr.post_ops):
        if step.src1 is not None:
            magnitudes = magnitudes + np.abs(args[post_op_src(index)])
    inputs = op.weights.elements // op.weights.dims[0]
    assert np.abs(got - want).max() > 0 or inputs < 4  # float32 rounds, the reference does not
    assert (np.abs(got - want) <= 2.0**-24 * (4 + 2 * inputs**0.5) * magnitudes).all()


@pytest.mark.parametrize(("problem", "chain"), PAIRS)
@pytest.mark.one_in(3)
def test_sums_of_many_inputs_are_right(
    native: NativeRunner, problem: Problem, chain: tuple[str, ...], isa: str
) -> None:
    opened = convolution(problem)
    for pd in primitive_descs(opened, PrimitiveAttr(), target_of(isa)):
        if not pd.impl_name().startswith("native:"):
            continue
        if pd.impl_name() == "native:direct":
            continue
        op: Any = pd.op
        attr = steps_of(chain, op.dst)
        args = arguments(op, attr)
        chosen = primitive_desc(op, attr, target_of(isa), references=False)
        got = native.results(chosen, args)[Arg.DST]
        assert_near(got, op, attr, args)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("chain", [("add",), ("add", "relu"), ("relu", "add")], ids="-".join)
def test_the_tensor_that_is_added_may_be_the_destination(
    chain: tuple[str, ...], groups: int, store: CacheStore
) -> None:
    """Sums so far, and outputs of other groups, are in the destination: what is added must have been read before."""
    opened = convolution((2, 640, 88, (7, 5), (3, 3), (1, 1), (0, 0), 1, groups))
    op: Any = primitive_desc(opened, PrimitiveAttr(), cpu_target()).op
    attr = steps_of(chain, op.dst)
    engine = Engine("cpu")
    pd = primitive_desc(op, attr, cpu_target())
    args = arguments(op, attr)
    memories = {arg: Memory(pd.memories()[arg], engine) for arg in (*args, Arg.DST)}
    added = post_op_src(next(i for i, step in enumerate(attr.post_ops) if step.src1 is not None))
    memories[Arg.DST] = memories[added]
    for arg, values in args.items():
        memories[arg].map()[:] = pack(values, pd.memories()[arg]).view(np.uint8).tobytes()
    stream = Stream(engine)
    Primitive(pd, engine, compiled.cache(4, store)).execute(stream, memories)
    stream.wait()
    got = unpack(np.frombuffer(memories[Arg.DST].map(), np.float32), pd.memories()[Arg.DST])
    assert_near(got, op, attr, args)


def test_the_last_block_and_a_half_of_outputs_have_wide_tiles() -> None:
    """Of 24 outputs, tiles of whole blocks would sum a quarter for none."""
    for outputs, groups, blocks in (
        (24, 1, [1]),
        (17, 1, [1]),
        (25, 1, [2]),
        (40, 1, [1, 1]),
        (88, 1, [4, 1]),
        (16, 1, [1]),
    ):
        opened = convolution((1, 32, outputs, (9, 9), (3, 3), (1, 1), (0, 0), 1, groups))
        pd = next(
            each
            for each in primitive_descs(opened, PrimitiveAttr(), of_level("x86-64-v3"))
            if each.impl_name() == "native:blocked"
        )
        program = pd.program()
        launched = [
            (dict(program.kernels[run.kernel].params), run)
            for run in program.launches
            if isinstance(run, Launch) and program.kernels[run.kernel].generator == "conv_chunks"
        ]
        assert [run.args[12] for _, run in launched] == [("i", count) for count in blocks]
        assert launched[-1][0].get("wide", False) is ends_with_half(groups, outputs)
        assert not any(params.get("wide") for params, _ in launched[:-1])


def test_kernels_that_are_dilated_far_leave_taps_out_and_have_no_chunks() -> None:
    """Of a kernel that is dilated as far as DeepLab's, three quarters of the taps may read padding."""
    for dilation, in_chunks in ((0, True), (1, True), (5, False), (17, False)):
        opened = convolution((1, 64, 64, (28, 28), (3, 3), (1, 1), (dilation, dilation), dilation + 1, 1))
        pds = primitive_descs(opened, PrimitiveAttr(), of_level("x86-64-v3"))
        program = next(pd for pd in pds if pd.impl_name() == "native:blocked").program()
        made = {kernel.generator for kernel in program.kernels} & {"conv", "conv_chunks"}
        assert made == ({"conv_chunks"} if in_chunks else {"conv"})


@pytest.mark.parametrize("whole", [False, True])
def test_chunks_have_all_steps_and_no_more_inputs_than_fit_in_the_cache(whole: bool) -> None:
    for lanes in ([16] * 32, [16] * 288, [21] * 7, [3], [16] * 9 + [4] * 9, [88] * 11, [1] * 300, [5, 300, 5]):
        starts = chunks(lanes, whole)
        assert starts[0] == 0
        assert starts[-1] == len(lanes)
        sizes = [sum(lanes[first:end]) for first, end in itertools.pairwise(starts)]
        assert min(sizes) > 0
        assert len(sizes) == 1 if whole else max(sizes) <= 288 + 2 * max(lanes)


def test_strips_have_all_tiles_of_all_images_and_tiles_all_outputs() -> None:
    draw = np.random.default_rng()
    for _ in range(300):
        images, outputs, groups, blocks = (int(draw.integers(1, most)) for most in (9, 4000, 4, 64))
        outputs += 2
        assert takes_chunks("x86-64-v3", outputs)
        src, weights, count = (int(draw.integers(1, most)) for most in (1 << 24, 1 << 23, 9))
        made = cut("x86-64-v3", Sizes(images, outputs, groups, blocks, src, weights), count)
        assert made.strips[0] == 0
        assert made.strips[-1] == made.tiles * images
        assert all(first < end for first, end in itertools.pairwise(made.strips))
        small = made.tiles - made.large
        assert made.large * made.positions + small * (made.positions - 1) == outputs
        assert 2 <= made.positions <= 6
        assert made.span % blocks == 0


def test_a_strip_has_a_source_that_stays_in_the_second_level_cache() -> None:
    made = cut("x86-64-v3", Sizes(1, 3136, 1, 4, 4 * 58 * 58 * 64, 64 * 9 * 4 * 64), 2)
    assert len(made.strips) - 1 == 2
    one = cut("x86-64-v3", Sizes(1, 49, 1, 32, 512 * 81 * 4, 512 * 9 * 512 * 4), 16)
    assert len(one.strips) - 1 == 1


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 7, 9, 13, 32])
def test_threads_share_the_items_of_a_few_blocks_evenly(blocks: int) -> None:
    made = cut("x86-64-v3", Sizes(1, 169, 1, blocks, 48 * 15 * 15 * 4, 48 * 9 * blocks * 64), 2)
    items = (len(made.strips) - 1) * blocks
    assert items >= 8
    assert items % 2 == 0
    whole = cut("x86-64-v3", Sizes(1, 169, 1, 63, 512 * 169 * 4, 512 * 63 * 64), 2)
    assert len(whole.strips) - 1 == 1
