"""Recurrent networks on matmul: packed and other weights, states there or not, layers and directions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Gru, Lstm, Matmul, MemoryDesc, OpDesc, PrimitiveAttr, Reorder, Rnn
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.nested.recurrent import NestedRecurrent
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_desc
from tests.references import results
from tests.workers.implementations.reference.drawing import Runner, arguments
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

KINDS = ("rnn", "lstm", "gru", "lbr_gru")
#: Steps, batch, hidden channels, layers, direction, whether states are given and asked for, layout of weights.
NETWORKS: tuple[tuple[int, int, int, int, str, bool, str], ...] = (
    (5, 50, 32, 2, "bidirectional_concat", True, "any"),
    (3, 200, 16, 1, "right2left", False, "any"),
    (3, 20, 47, 2, "bidirectional_concat", True, "any"),
)
#: Error that a state between -1 and 1 may have; one near 0 is a difference of larger numbers.
ABSOLUTE = 1e-6


def network(
    kind: str, steps: int, batch: int, hidden: int, layers: int, direction: str, states: bool, tag: str, dtype: str = "f32"
) -> OpDesc:  # fmt: skip
    gates = {"rnn": 1, "lstm": 4}.get(kind, 3)
    stack = (layers, 1 + direction.startswith("bidirectional"))
    state = MemoryDesc((*stack, batch, hidden), dtype) if states else None
    tensors: dict[str, Any] = {
        "src_layer": MemoryDesc((steps, batch, hidden), dtype),
        "src_iter": state,
        "weights_layer": MemoryDesc((*stack, hidden, gates, hidden), dtype, tag),
        "weights_iter": MemoryDesc((*stack, hidden, gates, hidden), dtype, tag),
        "bias": MemoryDesc((*stack, gates + (kind == "lbr_gru"), hidden), dtype),
        "dst_layer": MemoryDesc((steps, batch, hidden * (1 + (direction == "bidirectional_concat"))), dtype),
        "dst_iter": state,
        "direction": direction,
    }
    if kind == "lstm":
        return Lstm(**tensors, src_iter_c=state, dst_iter_c=state)
    return Rnn(**tensors) if kind == "rnn" else Gru(**tensors, linear_before_reset=kind == "lbr_gru")


def compared(runner: Runner, op: OpDesc, target: Target, bound: float = ABSOLUTE) -> PrimitiveDesc:
    """Compare all results of a network on products with its equations'; return its descriptor."""
    pd = primitive_desc(op, PrimitiveAttr(), target)
    assert pd.impl_name() == "nested:matmul"
    args = arguments(pd.op, PrimitiveAttr(), 1, -0.5, 0.5)
    # With larger weights each step would multiply the errors of the one before.
    args[Arg.WEIGHTS_1] = args[Arg.WEIGHTS_1] / 8
    got, wanted = runner.results(pd, args), results(pd.op, PrimitiveAttr(), args)
    assert set(got) == set(wanted)
    for arg, want in wanted.items():
        np.testing.assert_allclose(got[arg], want, rtol=0.0, atol=bound, err_msg=f"argument {arg} of {op}")
    return pd


@pytest.mark.parametrize("number", range(len(NETWORKS)))
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_computes_its_equations(runner: Runner, kind: str, number: int) -> None:
    compared(runner, network(kind, *NETWORKS[number]), runner.target)


@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_limits_what_functions_are_computed_of(runner: Runner, kind: str) -> None:
    for numbers in (NETWORKS[0], (7, 1, 19, 2, "bidirectional_sum", True, "any")):
        op: Any = network(kind, *numbers)
        compared(runner, dataclasses.replace(op, clip=0.2), runner.target)


def with_peepholes(numbers: tuple[int, int, int, int, str, bool, str], dtype: str = "f32", clip: float = 0.0) -> Lstm:
    op: Any = network("lstm", *numbers, dtype)
    layers, directions, _, _, hidden = op.weights_iter.dims
    seen = MemoryDesc((layers, directions, 3, hidden), dtype)
    found: Lstm = dataclasses.replace(op, weights_peephole=seen, clip=clip)
    return found


@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_gates_see_the_cell_state_through_peepholes(runner: Runner, clip: float) -> None:
    for numbers in (*NETWORKS, (7, 1, 19, 2, "bidirectional_sum", False, "any")):
        compared(runner, with_peepholes(numbers, clip=clip), runner.target)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.one_in(2)
def test_peepholes_are_seen_on_every_level(native: NativeRunner, isa: str, dtype: str) -> None:
    bound = ABSOLUTE if dtype == "f32" else 1e-13
    for numbers in ((6, 1, 32, 1, "left2right", True, "any"), (4, 3, 130, 1, "bidirectional_concat", True, "any")):
        compared(native, with_peepholes(numbers, dtype), target_of(isa), bound)


#: None grows beyond 1.
FUNCTIONS = {"activations": ("hardsigmoid", "clip", "softsign"), "alphas": (0.2, -0.8, 0.0), "betas": (0.5, 0.7, 0.0)}


@pytest.mark.parametrize("kind", ["lstm", "gru", "lbr_gru"])
def test_cells_have_the_functions_that_are_named(runner: Runner, kind: str) -> None:
    count = 3 if kind == "lstm" else 2
    chosen: Any = {name: values[:count] for name, values in FUNCTIONS.items()}
    for numbers in (*NETWORKS, (7, 1, 19, 2, "bidirectional_sum", False, "any")):
        op: Any = network(kind, *numbers)
        compared(runner, dataclasses.replace(op, **chosen), runner.target)


@pytest.mark.parametrize("kind", ["lstm", "gru", "lbr_gru"])
@pytest.mark.one_in(2)
def test_functions_are_those_of_float64(native: NativeRunner, isa: str, kind: str) -> None:
    count = 3 if kind == "lstm" else 2
    chosen: Any = {name: values[:count] for name, values in FUNCTIONS.items()}
    for numbers in ((6, 1, 32, 1, "left2right", True, "any"), (4, 3, 130, 1, "bidirectional_concat", True, "any")):
        op: Any = network(kind, *numbers, "f64")
        compared(native, dataclasses.replace(op, **chosen), target_of(isa), 1e-13)


def test_unknown_functions_and_other_numbers_of_them_are_refused() -> None:
    op: Any = network("gru", *NETWORKS[0])
    for changed, why in (
        ({"activations": ("logistic",)}, "activations: expect 2, got 1"),
        ({"activations": ("logistic", "heaviside")}, "activations: unknown 'heaviside'"),
        ({"alphas": (0.1,)}, "alphas: expect 2, got 1"),
    ):
        with pytest.raises(ValueError, match=why):
            dataclasses.replace(op, **changed)


def test_peepholes_of_another_shape_are_refused() -> None:
    op = with_peepholes(NETWORKS[0])
    with pytest.raises(ValueError, match=r"weights_peephole: expect \(2, 2, 3, 32\), got \(2, 2, 4, 32\)"):
        dataclasses.replace(op, weights_peephole=MemoryDesc((2, 2, 4, 32), "f32"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_remains_beside_a_clip(native: NativeRunner, kind: str) -> None:
    op: Any = network(kind, 3, 2, 20, 1, "left2right", False, "")
    pd = primitive_desc(dataclasses.replace(op, clip=0.5), PrimitiveAttr(), cpu_target())
    args = arguments(pd.op, PrimitiveAttr(), 1, -0.5, 0.5)
    args[Arg.SRC][1, 0, 3] = np.nan
    found = native.results(pd, args)[Arg.DST]
    assert np.isfinite(found[0]).all()
    assert np.isfinite(found[:, 1]).all()
    assert np.isnan(found[1:, 0]).all()


def test_a_negative_clip_is_refused() -> None:
    op: Any = network("gru", *NETWORKS[0])
    with pytest.raises(ValueError, match="clip: expect 0 or more, got -1"):
        dataclasses.replace(op, clip=-1.0)


@pytest.mark.parametrize("tag", ["any", ""])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(3)
def test_float64_is_computed_as_such_on_the_processor(native: NativeRunner, isa: str, kind: str, tag: str) -> None:
    for number, hidden in ((0, 32), (1, 16), (0, 19), (1, 5), (0, 47), (1, 15)):
        steps, batch, _, layers, direction, states, _ = NETWORKS[number]
        op = network(kind, steps, batch, hidden, layers, direction, states, tag, "f64")
        compared(native, op, target_of(isa), 1e-13)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(3)
def test_all_steps_of_few_short_sequences_are_one_launch(native: NativeRunner, isa: str, kind: str, dtype: str) -> None:
    for batch, hidden, layers, direction, states, tag in (
        (1, 32, 1, "left2right", False, "any"),
        (2, 48, 1, "right2left", True, "any"),
        (3, 19, 2, "bidirectional_sum", True, ""),
        (1, 5, 1, "bidirectional_concat", False, "any"),
        (5, 16, 1, "left2right", True, ""),
        (1, 1, 1, "left2right", True, "any"),
        (2, 47, 2, "bidirectional_sum", True, "any"),
        (1, 15, 1, "right2left", False, "any"),
    ):
        op = network(kind, 6, batch, hidden, layers, direction, states, tag, dtype)
        pd = compared(native, op, target_of(isa), ABSOLUTE if dtype == "f32" else 1e-13)
        assert {spec.generator for spec in pd.program().kernels} == {"recurrent_steps"}


@pytest.mark.parametrize(("kind", "products"), [("rnn", 2), ("lstm", 2), ("gru", 3), ("lbr_gru", 2)])
def test_inputs_of_all_steps_are_one_product_and_weights_left_open_are_not_moved(kind: str, products: int) -> None:
    pd = primitive_desc(network(kind, 7, 50, 32, 1, "left2right", False, "any"), PrimitiveAttr(), cpu_target())
    assert pd.impl_name() == "nested:matmul"
    assert [inner.op.kind for inner in pd.nested()] == ["matmul"] * products
    # The inputs' product, and one or two in each step but the first, whose state is 0
    nested = [run for run in pd.program().launches if not hasattr(run, "kernel")]
    assert len(nested) == 1 + 6 * (products - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_channels_of_gates_are_filled_up_if_the_weights_layouts_are_open(kind: str) -> None:
    for batch in (1, 50):
        op = network(kind, 3, batch, 650, 1, "left2right", False, "any")
        inner = [pd.op for pd in primitive_desc(op, PrimitiveAttr(), cpu_target()).nested()]
        weights = [each.weights for each in inner if isinstance(each, Matmul)]
        assert {md.tag for md in weights} == {"Ba16b"}
        assert {md.dims[1] % 656 for md in weights} == {0}
        assert {each.src for each in inner if isinstance(each, Reorder)} == {op.memories()[Arg.BIAS]}
    # So many more products would take longer than they save, and packed weights by others that are not would be moved.
    given: Any = network(kind, 3, 50, 650, 1, "left2right", False, "any")
    given = dataclasses.replace(given, weights_iter=given.weights_iter.with_tag(""))
    for op in (network(kind, 3, 50, 50, 1, "left2right", False, "any"), given):
        memories = primitive_desc(op, PrimitiveAttr(), cpu_target()).op.memories()
        assert not any(md.layout.blocks for md in memories.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tags", [("abdEc16e", ""), ("", "abdEc16e"), ("abdEc16e", "abdEc16e")])
@pytest.mark.one_in(3)
def test_weights_of_which_one_is_packed_or_both_give_the_same(
    native: NativeRunner, isa: str, kind: str, tags: tuple[str, str]
) -> None:
    for batch, hidden in ((2, 30), (3, 150), (50, 16)):
        op: Any = network(kind, 3, batch, hidden, 1, "left2right", True, "")
        layer, each = (md.with_tag(tag) for md, tag in zip((op.weights_layer, op.weights_iter), tags, strict=True))
        op = dataclasses.replace(op, weights_layer=layer, weights_iter=each)
        compared(native, op, target_of(isa))


@pytest.mark.parametrize(
    ("changed", "why", "name"),
    [
        ({"dtype": "bf16"}, "only f32 and f64", "nested:f32"), ({"batch": 0}, "without elements", "ref:lstm"),
        ({"steps": 5000}, "more than 4096", "ref:lstm"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_left_to_others(changed: dict[str, Any], why: str, name: str) -> None:
    given = {"steps": 2, "batch": 1, "hidden": 3, "layers": 1, "direction": "left2right", "states": False, "tag": ""}
    op = network("lstm", **{**given, **changed})
    reason = NestedRecurrent[Lstm]("cpu").reject(op, PrimitiveAttr(), cpu_target())  # type: ignore[arg-type]
    assert reason is not None
    assert why in reason
    assert primitive_desc(op, PrimitiveAttr(), cpu_target()).impl_name() == name
