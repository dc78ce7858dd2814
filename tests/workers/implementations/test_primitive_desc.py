"""Primitive descriptors as users hold them: implementations in order, queries, hints, and errors that name the argument."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrt.workers import BatchNormalization, Convolution, Eltwise, Matmul, Reorder, Sum
from poolrt.workers.desc import Arg, Lstm, MemoryDesc, OpDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.engine import Engine
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive
from poolrt.workers.primitives.hint import take_hint
from poolrt.workers.primitives.key import primitive_key

ROOT = Path(__file__).resolve().parents[3]
NOTHING = MemoryDesc((0,), "u8")


def opened(*dims: int, dtype: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, dtype, "any")


def convolution(engine: Engine, attr: PrimitiveAttr | None = None, size: int = 8, **named: Any) -> PrimitiveDescIface:
    md, dst, weights = opened(2, 32, 8, 8), opened(2, 32, size, size), opened(32, 32, 3, 3)
    bias = MemoryDesc((32,), "f32")
    window: dict[str, Any] = {"strides": (1, 1), "dilations": (0, 0), "padding_l": (1, 1), "padding_r": (1, 1)}
    return Convolution.PrimitiveDesc(engine, md, weights, bias, dst, attr=attr, **{**window, **named})


#: A window that moves by two, and reads a padded copy with even and odd columns apart.
BY_TWO: dict[str, Any] = {"strides": (2, 2), "padding_l": (0, 0), "size": 4}


@pytest.fixture
def engine() -> Engine:
    return Engine("cpu")


def test_the_best_implementation_completes_the_layouts(engine: Engine) -> None:
    pd = convolution(engine)
    assert pd.impl_name() == pd.query("impl_info_str") == "native:blocked"
    assert pd.src_desc().tag == pd.dst_desc().tag == "aBcd16b"
    assert pd.weights_desc() == pd.query("weights_md", 0) == pd.query("exec_arg_md", Arg.WEIGHTS)
    assert pd.weights_desc(1) == MemoryDesc((32,), "f32")


def test_implementations_are_walked_through_in_order(engine: Engine) -> None:
    pd = convolution(engine)
    names = [pd.impl_name()]
    while pd.next_impl():
        names.append(pd.impl_name())
    assert names[:2] == ["native:blocked", "native:gathered"]
    assert len(set(names)) == len(names)
    # Behind the last one it stays
    assert not pd.next_impl()
    assert pd.impl_name() == names[-1]
    # And another one begins at the best again
    assert convolution(engine).impl_name() == names[0]


def test_queries_answer_what_the_descriptor_says(engine: Engine) -> None:
    pd = convolution(engine, prop="forward_training", **BY_TWO)
    assert pd.query("primitive_kind") == "convolution"
    assert pd.query("prop_kind") == "forward_training"
    assert pd.query("engine") is engine
    assert pd.query("padding_r") == (1, 1)
    assert (pd.query("num_of_inputs_s32"), pd.query("num_of_outputs_s32")) == (3, 1)
    assert pd.query("memory_consumption_s64") == pd.pd.program().scratchpad > 0
    assert pd.workspace_desc() == pd.diff_src_desc() == pd.src_desc(7) == pd.query("scratchpad_md") == NOTHING


def test_scratch_memory_is_described_only_where_the_user_brings_it(engine: Engine) -> None:
    pd = convolution(engine, PrimitiveAttr(scratchpad_mode="user"), **BY_TWO)
    assert pd.scratchpad_desc() == MemoryDesc((pd.pd.program().scratchpad,), "u8")
    assert pd.query("memory_consumption_s64") == 0
    assert convolution(engine).scratchpad_desc() == NOTHING


def test_sources_are_found_by_index(engine: Engine) -> None:
    md = MemoryDesc((4, 16), "f32")
    pd = Sum.PrimitiveDesc(engine, (md, md, md), md)
    assert [pd.src_desc(i) for i in range(4)] == [md, md, md, NOTHING]
    normalization = BatchNormalization.PrimitiveDesc(
        engine, MemoryDesc((2, 16, 4, 4), "f32"), opened(2, 16, 4, 4), 1e-5
    )
    channel = MemoryDesc((16,), "f32")
    assert (
        [normalization.src_desc(i) for i in (1, 2)] == [normalization.weights_desc(i) for i in (0, 1)] == [channel] * 2
    )
    assert normalization.dst_desc(1) == NOTHING


def test_every_description_is_found_again_without_the_engine(engine: Engine) -> None:
    assert convolution(engine).pd is convolution(Engine("cpu")).pd
    # By name or position, with lists or tuples
    md = MemoryDesc((2, 16), "f32")
    one = Eltwise.PrimitiveDesc(engine, md, md, "relu")
    assert one.pd == Eltwise.PrimitiveDesc(engine, src=md, dst=md, algorithm="relu").pd
    assert convolution(engine, strides=[1, 1]).pd == convolution(engine).pd


def test_zeros_of_two_signs_have_other_keys_if_they_compute_other_results(engine: Engine) -> None:
    md = MemoryDesc((2, 16), "f32")
    first = Eltwise.PrimitiveDesc(engine, md, md, "linear", 0.0)
    second = Eltwise.PrimitiveDesc(engine, md, md, "linear", -0.0)
    for given, pd in ((0.0, first), (-0.0, second)):
        alpha = pd.query("alpha")
        assert (type(alpha), str(alpha)) == (type(given), str(given))
    assert first.pd != second.pd
    assert primitive_key(first.pd) != primitive_key(second.pd)


def test_a_number_of_another_type_describes_the_same_primitive(engine: Engine) -> None:
    md = MemoryDesc((2, 16), "f32")
    first = Eltwise.PrimitiveDesc(engine, md, md, "linear", 1.0)
    for number in (1, np.float32(1), np.int64(1), np.array(1), np.array(1.0)):
        second = Eltwise.PrimitiveDesc(engine, md, md, "linear", number)  # type: ignore[arg-type]
        assert first.pd == second.pd
        assert primitive_key(first.pd) == primitive_key(second.pd)
        assert str(second.query("alpha")) == "1.0"


def test_an_argument_that_only_compares_equal_to_a_known_one_is_refused(engine: Engine) -> None:
    md = MemoryDesc((2, 16), "f32")
    Eltwise.PrimitiveDesc(engine, md, md, "linear", 1)
    with pytest.raises(ValueError, match=r"alpha: expect a number .*, got True"):
        Eltwise.PrimitiveDesc(engine, md, md, "linear", True)


def test_attributes_that_only_compare_equal_differ_in_the_key(engine: Engine) -> None:
    md = MemoryDesc((2, 16), "f32")
    keys = []
    for slope in (0.0, -0.0, 0.0):
        attr = PrimitiveAttr((PostOp("eltwise", "relu", slope),))
        pd = Eltwise.PrimitiveDesc(engine, md, md, "linear", attr=attr)
        assert str(pd.pd.attr.post_ops[0].alpha) == str(slope)
        keys.append(primitive_key(pd.pd))
    assert keys[0] == keys[2] != keys[1]


def test_equal_attributes_are_found_again_however_they_are_given(engine: Engine) -> None:
    md, relu = MemoryDesc((2, 16), "f32"), PostOp("eltwise", "relu")
    given: list[Any] = [(relu,), [relu], [PostOp("eltwise", "relu")]]
    attrs = [PrimitiveAttr(post_ops) for post_ops in given]
    attrs += [copy.deepcopy(attrs[0])]
    assert len(set(attrs)) == 1
    assert len({id(Eltwise.PrimitiveDesc(engine, md, md, "abs", attr=attr).pd) for attr in attrs}) == 1


def test_a_name_is_not_taken_for_a_value(engine: Engine) -> None:
    md = MemoryDesc((2, 16), "f32")
    # Given a description by name
    Eltwise.PrimitiveDesc(engine, md, md, algorithm="relu")
    # Then the same words as values are as wrong as they were before
    with pytest.raises(ValueError, match=r"alpha: expect a number .*, got 'relu'"):
        Eltwise.PrimitiveDesc(engine, md, md, "algorithm", "relu")  # type: ignore[arg-type]


def described(op: OpDesc, engine: Engine) -> PrimitiveDesc:
    """Return a primitive descriptor of an operation as it is, of any implementation."""

    class Anything:
        name, engine_kind, general = "anything", "cpu", True

    return PrimitiveDesc(op, PrimitiveAttr(), engine.target, Anything())  # type: ignore[arg-type]


def test_a_hint_gives_a_backward_operation_the_layouts_of_its_forward_one(engine: Engine) -> None:
    forward = convolution(engine, prop="forward_training").pd
    window = ((1, 1), (0, 0), (1, 1), (1, 1))
    plain = MemoryDesc((2, 32, 8, 8), "f32")
    backward = Convolution(opened(2, 32, 8, 8), opened(32, 32, 3, 3), None, plain, *window, prop="backward_data")
    taken = take_hint(backward, forward)
    assert isinstance(taken, Convolution)
    assert isinstance(forward.op, Convolution)
    assert (taken.src, taken.weights) == (forward.op.src, forward.op.weights)
    # What is given stays
    assert taken.dst is plain


def test_a_backward_primitive_descriptor_knows_its_hint(engine: Engine) -> None:
    forward = convolution(engine, prop="forward_training")
    md, weights = opened(2, 32, 8, 8), opened(32, 32, 3, 3)
    window = ((1, 1), (0, 0), (1, 1), (1, 1))
    backward = Convolution.PrimitiveDesc(engine, md, weights, None, md, *window, prop="backward_data", hint=forward)
    assert (backward.diff_src_desc(), backward.diff_dst_desc()) == (forward.src_desc(), forward.dst_desc())
    assert backward.weights_desc() == forward.weights_desc()
    assert dict(backward.pd.hint) == forward.pd.memories()
    # The same layouts without the hint are another primitive
    unaware = Convolution.PrimitiveDesc(
        engine, forward.src_desc(), forward.weights_desc(), None, forward.dst_desc(), *window, prop="backward_data"
    )
    assert primitive_key(unaware.pd) != primitive_key(backward.pd)


def test_gradients_lie_as_what_they_belong_to(engine: Engine) -> None:
    md = MemoryDesc((2, 16, 4, 4), "f32", "acdb")
    forward = BatchNormalization(md, md, 1e-5, prop="forward_training")
    backward = BatchNormalization(
        md, md, 1e-5, prop="backward", diff_src=opened(2, 16, 4, 4, dtype="f64"), diff_dst=opened(2, 16, 4, 4)
    )
    taken = take_hint(backward, described(forward, engine))
    assert isinstance(taken, BatchNormalization)
    assert (taken.diff_src, taken.diff_dst) == (MemoryDesc((2, 16, 4, 4), "f64", "acdb"), md)


def test_the_memories_of_a_hint_belong_to_the_key(engine: Engine) -> None:
    forward = described(Eltwise(MemoryDesc((4,), "f32"), MemoryDesc((4,), "f32"), "relu"), engine)
    hint = tuple(sorted((int(arg), desc) for arg, desc in forward.memories().items()))
    hinted = PrimitiveDesc(forward.op, forward.attr, forward.target, forward.implementation, hint)
    assert primitive_key(hinted) != primitive_key(forward)
    assert primitive_key(hinted).fields["hint"] == tuple((arg, desc.fields()) for arg, desc in hint)
    assert set(primitive_key(hinted).diff(primitive_key(forward))) == {"hint"}


def test_a_hint_travels_to_a_creator(engine: Engine) -> None:
    pd = convolution(engine).pd
    hinted = PrimitiveDesc(pd.op, pd.attr, pd.target, pd.implementation, ((1, MemoryDesc((4,), "f32")),))
    assert primitive_key(PrimitiveDesc.from_wire(hinted.to_wire())) == primitive_key(hinted)


MD = MemoryDesc((2, 16), "f32")


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda e: Eltwise.PrimitiveDesc("cpu", MD, MD, "relu"), TypeError, "engine: expect an Engine, got str"),  # type: ignore[arg-type]
        (lambda e: Eltwise.PrimitiveDesc(e, MD, MD, "relu", attr=()), TypeError, "attr: expect a PrimitiveAttr"),  # type: ignore[arg-type]
        (lambda e: Eltwise.PrimitiveDesc(e, MD, MD, "relu", hint=MD), TypeError, "hint: expect a primitive descriptor"),  # type: ignore[arg-type]
        (lambda e: Eltwise.PrimitiveDesc(e, MD, MD, "reel"), ValueError, "algorithm"),
        (lambda e: Eltwise.PrimitiveDesc(e, MD, MD), TypeError, "algorithm"),  # type: ignore[call-arg]
        (lambda e: Eltwise.PrimitiveDesc(e, MD, MD, "relu", slope=1.0), TypeError, "slope"),  # type: ignore[call-arg]
        (lambda e: Matmul.PrimitiveDesc(e, MD, opened(15, 4), None, opened(2, 4)), ValueError, "weights: expect K = 16"),
        (lambda e: convolution(e, groups=3), ValueError, "groups: 3 must divide 32"),
        (lambda e: convolution(e, hint=convolution(e)), ValueError, "hint: a forward convolution takes none"),
        (lambda e: convolution(e).query("color"), ValueError, "what: unknown query 'color'; known: bias, diff_dst_md"),
        (lambda e: convolution(e).src_desc(-1), ValueError, "index: expect 0 or more, got -1"),
        (lambda e: Eltwise.PrimitiveDesc(e, MD, {}, "relu"), ValueError, r"dst: expect a MemoryDesc, got {} \(Eltwise\)"),  # type: ignore[arg-type]
    ],
    ids=[
        "engine", "attr", "hint", "value", "missing", "unknown", "descriptor", "groups", "forward hint", "query", "index",
        "unhashable",
    ],
)  # fmt: skip
def test_errors_name_the_argument(
    engine: Engine, wrong: Callable[[Engine], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrong(engine)


@pytest.mark.parametrize("other", ["kind", "dims", "backward"])
def test_a_hint_of_something_else_is_refused(engine: Engine, other: str) -> None:
    state, layers = opened(1, 1, 2, 32), opened(1, 1, 32, 4, 32)
    md = opened(8, 2, 32)
    window = ((1, 1), (0, 0), (1, 1), (1, 1))
    backward = Convolution(
        opened(2, 32, 8, 8), opened(32, 32, 3, 3), None, opened(2, 32, 8, 8), *window, prop="backward_data"
    )
    hints: dict[str, tuple[OpDesc, str]] = {
        "kind": (
            Lstm(md, state, state, layers, layers, None, md, None, None),
            "expect a forward convolution, got .* lstm",
        ),
        "dims": (
            Convolution(opened(1, 32, 8, 8), opened(32, 32, 3, 3), None, opened(1, 32, 8, 8), *window),
            "hint: its src is .*, which cannot give src",
        ),
        "backward": (backward, "expect a forward convolution, got backward_data convolution"),
    }
    op, message = hints[other]
    with pytest.raises(ValueError, match=message):
        take_hint(backward, described(op, engine))


def test_a_descriptor_without_an_implementation_is_refused_with_every_reason(engine: Engine) -> None:
    message = r"native:nest: post-ops .*; native:cross_engine: .*; ref:reorder: .* broadcast"
    attr = PrimitiveAttr((PostOp("binary", "add", src1=MemoryDesc((7,), "f32")),))
    with pytest.raises(UnsupportedPrimitive, match=message):
        Reorder.PrimitiveDesc(engine, MD, MD, attr=attr)


def test_a_primitive_descriptor_needs_neither_compiler_nor_driver() -> None:
    code = """
import sys
from poolrt import Convolution, Engine, MemoryDesc
md, weights = MemoryDesc((2, 32, 8, 8), "f32", "any"), MemoryDesc((32, 32, 3, 3), "f32", "any")
dst = MemoryDesc((2, 32, 4, 4), "f32", "any")
pd = Convolution.PrimitiveDesc(Engine("cpu"), md, weights, None, dst, (2, 2), (0, 0), (0, 0), (1, 1))
print(pd.impl_name(), pd.query("memory_consumption_s64") > 0, pd.next_impl())
print({"numba", "llvmlite", "numpy", "pyopencl", "redis", "asyncio"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["native:blocked True True", "set()"]


def test_no_implementation_imports_a_compiler_or_a_driver() -> None:
    code = """
import pkgutil, sys
from importlib import import_module
import poolrt.workers.implementations as package
names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    import_module(name)
print(len(names) > 100, {"numba", "llvmlite", "numpy", "pyopencl", "redis", "asyncio"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True set()\n"


def test_products_of_floats_import_no_implementations_of_other_types() -> None:
    program = """
import sys
from poolrt.workers.desc import InnerProduct, Matmul, MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.engines.engine import Engine
from poolrt.workers.implementations.primitive_desc import implementations, primitive_desc

def opened(*dims):
    return MemoryDesc(dims, "f32", "any")

for op in (
    Matmul(opened(6, 7), opened(7, 5), None, opened(6, 5)),
    InnerProduct(opened(6, 7), opened(5, 7), None, opened(6, 5)),
    Reorder(MemoryDesc((6, 7), "f32"), MemoryDesc((6, 7), "f32", "ba")),
):
    print(primitive_desc(op, PrimitiveAttr(), Engine("cpu").target).impl_name())
further = "cross_engine", "integer_packed", "integer_product", "narrow_matmul", "typed_product", "nested.inner_product"
print([name for name in further if any(module.endswith(name) for module in sys.modules)])
print(*[each.name for each in implementations("inner_product", "cpu")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    *first, listed, _ = done.stdout.split("\n")
    assert first == ["native:tiles", "native:tiles", "native:nest", "[]"]
    assert listed.split()[-3:] == ["nested:matmul", "nested:f32", "ref:inner_product"]
