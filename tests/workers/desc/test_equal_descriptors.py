"""Equal descriptors have equal keys, however their numbers are given, and only they have."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.cachestore import Key
from poolrt.workers.desc import (
    OPERATIONS,
    Arg,
    BatchNormalization,
    Convolution,
    Eltwise,
    MemoryDesc,
    OpDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Rnn,
    Sum,
    op_from_wire,
)
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.primitives.key import primitive_key

from .descriptors import attributes, changed, drawn
from .restated import restated, with_zeros

MD = MemoryDesc((2, 4, 6, 6), "f32")
Described = tuple[OpDesc, PrimitiveAttr]


def key(described: Described) -> Key:
    """Return the key of a primitive; for what no implementation takes, that of its descriptors."""
    op, attr = described
    try:
        return primitive_key(primitive_desc(op, attr, cpu_target()))
    except UnsupportedPrimitive:
        return Key({"primitive": op.kind, "operation": op.fields(), "attributes": attr.fields()})


def pair(rng: random.Random) -> tuple[Described, Described, bool]:
    """Return two descriptors with attributes in mixed numeric types, and whether the second is the first stated again."""
    kind = rng.choice(list(OPERATIONS))
    op = with_zeros(rng, drawn(kind, rng))
    attr = with_zeros(rng, attributes(rng, op))
    how = rng.choice(("stated", "stated", "signs", "changed", "attributes", "drawn"))
    other, other_attr = op, attr
    if how == "signs":
        other, other_attr = with_zeros(rng, op), with_zeros(rng, attr)
    elif how == "changed":
        other = changed(rng, op)
    elif how == "attributes":
        other_attr = attributes(rng, op)
    elif how == "drawn":
        other = drawn(kind, rng)
    return (op, attr), (restated(rng, other), restated(rng, other_attr)), how == "stated"


def check(rng: random.Random) -> bool:
    """Draw a pair; return whether it is equal."""
    first, second, same = pair(rng)
    equal = first == second
    assert equal or not same, (first, second)
    assert not equal or hash(first) == hash(second)
    one, other = key(first), key(second)
    assert (one == other) == (one.digest == other.digest) == equal, (first, second, one.diff(other))
    # A message is a third statement of the same.
    op, attr = second
    assert (op_from_wire(op.to_wire()), decode(PrimitiveAttr, encode(attr))) == second
    return equal


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_descriptors_of_mixed_numeric_types_are_equal_exactly_when_their_keys_are(rng: random.Random) -> None:
    check(rng)


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_20_000_pairs_of_mixed_numeric_types_are_equal_exactly_when_their_keys_are() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    try:
        equal = sum(check(rng) for _ in range(20_000))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}") from error
    assert 5_000 < equal < 15_000


def digest_of_many(seed: int, count: int) -> str:
    """Return a digest over the keys of both sides of many pairs."""
    rng, total = random.Random(seed), hashlib.sha256()
    for _ in range(count):
        for described in pair(rng)[:2]:
            total.update(key(described).digest.encode())
    return total.hexdigest()


@pytest.mark.slow
def test_keys_of_mixed_numeric_types_are_the_same_under_two_hash_seeds() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    code = f"from tests.workers.desc.test_equal_descriptors import digest_of_many; print(digest_of_many({seed}, 1000))"
    found = {digest_of_many(seed, 1000)}
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True
        )
        found.add(done.stdout.strip())
    assert len(found) == 1, f"seed {seed}"


NUMBERS: tuple[Any, ...] = (
    1, 1.0, np.float32(1), np.float16(1), np.int64(1), np.uint8(1), np.array(1), np.array(1.0), np.longdouble(1)
)  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_is_brought_to_the_declared_type_of_its_field(number: Any) -> None:
    relu = Eltwise(MD, MD, "relu", number)
    assert (relu, repr(relu.alpha)) == (Eltwise(MD, MD, "relu", 1.0), "1.0")
    w = MemoryDesc((4, 4, 3, 3), "f32")
    convolution = Convolution(MD, w, None, MD, (number, 1), (0, 0), (1, 1), (1, number), number)
    assert [type(size) for size in (*convolution.strides, convolution.groups)] == [int] * 3
    assert MemoryDesc((number, 2), "f32", (2, number)) == MemoryDesc((1, 2), "f32")
    normalised = BatchNormalization(MD, MD, number)
    assert (normalised, type(normalised.epsilon)) == (BatchNormalization(MD, MD, 1.0), float)
    attr = PrimitiveAttr((PostOp.accumulate(number, number),), (Quantisation(number, 0, (number,)),))
    assert attr == PrimitiveAttr((PostOp.accumulate(1.0, 1),), (Quantisation(Arg.SRC, 0, (1.0,)),))


WRONG: tuple[Any, ...] = (
    True,
    np.True_,
    np.array(True),
    1.5,
    np.float32(1.5),
    np.array(1.5),
    np.array([1]),
    "1",
    10**5000,
)


@pytest.mark.parametrize("value", WRONG, ids=[f"{place}-{type(value).__name__}" for place, value in enumerate(WRONG)])
def test_what_is_no_integer_is_refused_by_name(value: Any) -> None:
    w = MemoryDesc((4, 4, 3, 3), "f32")
    with pytest.raises(ValueError, match=r"^groups: expect an integer of 64 bits, got .* \(Convolution\)$"):
        Convolution(MD, w, None, MD, (1, 1), (0, 0), (1, 1), (1, 1), value)
    with pytest.raises(ValueError, match=r"^dims: "):
        MemoryDesc((2, value), "f32")
    with pytest.raises(ValueError, match=r"^strides: "):
        MemoryDesc((2, 2), "f32", strides=(value, 1))
    with pytest.raises(ValueError, match=r"^mask: expect an integer"):
        Quantisation(Arg.SRC, value)


def test_true_is_refused_as_a_size_also_if_a_descriptor_of_1_is_known() -> None:
    pairs: list[tuple[Any, Any]] = [((1, 2), (True, 2)), ((0, 2), (np.False_, 2))]
    for first, second in pairs:
        MemoryDesc(first, "f32")
        with pytest.raises(ValueError, match=r"^dims: expect integers, got \("):
            MemoryDesc(second, "f32")


ZEROS: dict[str, tuple[Any, Any, bool]] = {
    "slope of relu": (Eltwise(MD, MD, "relu", 0.0), Eltwise(MD, MD, "relu", -0.0), True),
    "shift of linear": (Eltwise(MD, MD, "linear", 1, 0.0), Eltwise(MD, MD, "linear", 1, -0.0), True),
    "bound of clip": (Eltwise(MD, MD, "clip", 0.0, 1), Eltwise(MD, MD, "clip", -0.0, 1), True),
    "tanh": (Eltwise(MD, MD, "tanh", 0.0, 0.0), Eltwise(MD, MD, "tanh", -0.0, -0.0), False),
    "relu has no beta": (Eltwise(MD, MD, "relu", 1, 0.0), Eltwise(MD, MD, "relu", 1, -0.0), False),
    "epsilon": (BatchNormalization(MD, MD, 0.0), BatchNormalization(MD, MD, -0.0), False),
    "scale of a sum": (Sum((MD, MD), MD, (1, 0.0)), Sum((MD, MD), MD, (1, -0.0)), True),
    "sum": (PostOp.accumulate(0.0), PostOp.accumulate(-0.0), True),
    "binary has no alpha": (
        PostOp("binary", "add", 0.0, src1=MD), PostOp("binary", "add", -0.0, src1=MD), False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_a_zero_has_a_sign_only_if_the_operation_depends_on_it(name: str) -> None:
    one, other, differ = ZEROS[name]
    assert (one != other) == differ
    assert (Key(one.fields()) != Key(other.fields())) == differ
    assert one != 0.0
    assert hash(one) == hash(dataclasses.replace(one))


def test_the_slope_of_a_recurrent_network_has_a_sign_only_with_relu() -> None:
    md = [MemoryDesc(dims, "f32") for dims in ((2, 1, 3), (1, 1, 3, 1, 4), (1, 1, 4, 1, 4), (2, 1, 4))]

    def rnn(activation: str, alpha: float) -> Rnn:
        return Rnn(md[0], None, md[1], md[2], None, md[3], None, activation, alpha)

    assert rnn("relu", 0.0) != rnn("relu", -0.0)
    assert rnn("tanh", 0.0) == rnn("tanh", -0.0)
    assert str(rnn("tanh", -0.0).alpha) == "0.0"
