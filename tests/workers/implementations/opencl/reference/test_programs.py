"""What reference implementations on OpenCL share with those on the CPU, and what their programs depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from poolrt import workers
from poolrt.workers.desc import (
    OPERATIONS,
    Arg,
    Convolution,
    Eltwise,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Sum,
)
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.opencl.grid import MAX_ITEMS
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, implementations
from poolrt.workers.implementations.program import Launch
from poolrt.workers.kernels.opencl.source import kernel_source
from poolrt.workers.kernels.spec import KernelSpec
from poolrt.workers.primitives.key import primitive_key

DOUBLE = Target("opencl", "opencl", (("fp64", "True"), ("type", "CPU")))
SINGLE = replace(DOUBLE, device=(("fp64", "False"), ("type", "CPU")))
GPU = replace(DOUBLE, device=(("fp64", "True"), ("type", "GPU")))


def described(op: Convolution | Eltwise | Sum, attr: PrimitiveAttr, target: Target = DOUBLE) -> PrimitiveDesc:
    last = implementations(op.kind, "opencl")[-1]
    assert last.reject(op, attr, target) is None
    return PrimitiveDesc(last.complete(op, attr, target), attr, target, last)


def convolution(src: str, dst: str, tag: str = "", channels: int = 4) -> Convolution:
    weights = MemoryDesc((6, channels, 2), "f32")
    return Convolution(
        MemoryDesc((2, channels, 7), src, tag), weights, None, MemoryDesc((2, 6, 6), dst, tag), (1,), (0,), (0,), (0,)
    )  # fmt: skip


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_last_resort_is_the_same_on_every_engine(kind: str) -> None:
    last = [implementations(kind, engine)[-1] for engine in ("cpu", "opencl")]
    assert [implementation.name for implementation in last] == [f"ref:{kind}"] * 2
    assert all(implementation.general for implementation in last)


def test_every_kernel_is_there_in_both_languages() -> None:
    kernels = Path(workers.__path__[0], "kernels")
    native = {f.stem for f in kernels.glob("native/reference/*.py") if "\ndef make(" in f.read_text()}
    opencl = {f.stem for f in kernels.glob("opencl/reference/*.cl") if "__kernel " in f.read_text()}
    assert native == opencl


def test_types_layouts_shapes_and_attributes_need_no_kernels_of_their_own() -> None:
    plain = described(convolution("f32", "f32"), PrimitiveAttr()).program()
    # Given another problem, with a chain, scales and zero points
    other = convolution("u8", "s8", "aBc4b", channels=3)
    steps = (PostOp.accumulate(), PostOp("eltwise", "mish"), PostOp("binary", "mul", src1=MemoryDesc((1, 6, 1), "f16")))
    quantised = (Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS, 1), Quantisation(Arg.DST))
    program = described(other, PrimitiveAttr(steps, quantised, quantised)).program()
    # Then only what zeroes padding is added
    assert program.kernels[:1] == plain.kernels
    assert [spec.name for spec in program.kernels] == ["convolution", "padding"]
    assert program.tables != plain.tables


def test_more_memories_than_a_program_takes_need_a_larger_one() -> None:
    md = MemoryDesc((3,), "f32")
    few, many = (described(Sum((md,) * count, md), PrimitiveAttr()).program() for count in (15, 16))
    assert [dict(program.kernels[0].params)["operands"] for program in (few, many)] == [16, 32]
    assert [len(program.launches[0].args) for program in (few, many)] == [5 + 16, 5 + 32]


def test_a_device_without_double_precision_has_its_own_programs_and_keys() -> None:
    op = convolution("f32", "f32")
    double, single = (described(op, PrimitiveAttr(), target) for target in (DOUBLE, SINGLE))
    assert primitive_key(double).digest != primitive_key(single).digest
    sources = [kernel_source(pd.program().kernels[0]) for pd in (double, single)]
    assert ["#define FP64 1" in source for source in sources] == [True, False]


@pytest.mark.parametrize("dtype", ["f64", "s64"])
def test_what_only_double_precision_holds_is_refused_without_it(dtype: str) -> None:
    last, md = implementations("eltwise", "opencl")[-1], MemoryDesc((3,), "f32")
    wide = replace(md, dtype=dtype)
    added = PrimitiveAttr((PostOp("binary", "add", src1=wide),))
    for op, attr in ((Eltwise(wide, md, "relu"), PrimitiveAttr()), (Eltwise(md, md, "relu"), added)):
        assert "no double precision" in str(last.reject(op, attr, SINGLE))
        assert last.reject(op, attr, DOUBLE) is None


def test_more_elements_than_a_launch_holds_are_refused() -> None:
    last = implementations("eltwise", "opencl")[-1]
    for dims, tag, refused in (
        ((MAX_ITEMS,), "", False),
        ((MAX_ITEMS + 1,), "", True),
        ((MAX_ITEMS // 4, 1), "aB16b", True),
    ):
        md = MemoryDesc(dims, "s8", tag)
        assert (last.reject(Eltwise(md, md, "relu"), PrimitiveAttr(), DOUBLE) is not None) == refused


def test_groups_suit_the_device() -> None:
    op = convolution("s8", "s8")
    for target, size in ((DOUBLE, (8, 1)), (GPU, (64, 1))):
        launch = described(op, PrimitiveAttr(), target).program().launches[0]
        assert isinstance(launch, Launch)
        assert launch.local_size == size


def test_a_kernel_must_say_how_many_operands_it_takes() -> None:
    with pytest.raises(TypeError, match="operands must be a number"):
        kernel_source(KernelSpec.of("reference.copy", fp64=True, operands="many", local=(8, 1)))
