"""What is made for speed computes the definition on shapes, layouts and chains drawn at random, on each kind of engine.

Reference implementations have tests of their own that draw more: data types and all attributes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from poolrt.workers.desc import OPERATIONS, Arg, Binary, MemoryDesc, OpDesc, PostOp, PrimitiveAttr
from poolrt.workers.implementations.contract import REFERENCE
from poolrt.workers.implementations.primitive_desc import (
    PrimitiveDesc,
    UnsupportedPrimitive,
    implementations,
    primitive_descs,
)
from tests.workers.desc.descriptors import drawn
from tests.workers.desc.layouts import GIVEN, LAYOUTS

from .conftest import WHOLE
from .descriptors import product_types
from .problems import FAST, cells
from .table import offered
from .verification import Verification

#: Problems for each implementation by engine kind: first those of the thorough tier. And the most that are drawn to find them.
PROBLEMS = {"cpu": (16, 1), "opencl": (6, 1)}
DRAWS = 10_000
#: Tests that draw operations in `make test`.
PARTS = 3
#: Types that implementations of their own have, or that are computed in f32, and how many of the problems are in one of them.
OTHER_TYPES = ("f16", "bf16", "u8", "s8", "s64", "u16")
SHARE_OF_OTHER_TYPES = 0.4
PRODUCTS = ("convolution", "inner_product", "matmul")
RELU = PostOp("eltwise", "relu")


def chained(pd: PrimitiveDesc, rng: random.Random) -> PrimitiveDesc:
    """Return the same implementation with a chain drawn at random, or as it is where it takes none."""
    dst = pd.memories().get(Arg.DST)
    if dst is None or dst.dtype != "f32":
        return pd
    # What is not exact may cancel with what is added.
    added = () if pd.op.kind in (*FAST, "binary") else (PostOp("binary", "add", src1=dst),)
    chain = rng.choice(((), (RELU,), added, (*added, RELU)))
    try:
        found = primitive_descs(pd.op, PrimitiveAttr(chain), pd.target)
        return next((other for other in found if other.impl_name() == pd.impl_name()), pd)
    except UnsupportedPrimitive:
        return pd


def in_other_types(op: OpDesc, rng: random.Random) -> OpDesc:
    """Return an operation on f32 in another data type, drawn at random, as the table has it; as it is if it refuses that."""
    dtype = rng.choice(OTHER_TYPES)
    types = product_types(getattr(op, "prop", "forward_inference"), dtype)
    given = {"src": types[0], "weights": types[1]} if op.kind in PRODUCTS else {}
    memories = {
        f.name: md for f in fields(op) if isinstance(md := getattr(op, f.name), MemoryDesc) and md.dtype == "f32"
    }
    result = types[2] if op.kind in PRODUCTS else dtype
    if isinstance(op, Binary):  # one of its algorithms has an implementation of its own for bytes
        op = replace(op, algorithm=rng.choice((op.algorithm, "add")))
    try:
        return replace(op, **{name: replace(md, dtype=given.get(name, result)) for name, md in memories.items()})
    except ValueError:
        return op


def offers(kind: str, verification: Verification, rng: random.Random) -> Iterator[PrimitiveDesc]:
    """Yield what takes problems drawn at random; implementations made for speed are offered most where layouts are open."""
    layouts = GIVEN if kind == "reorder" else (*LAYOUTS, "any", "any")
    for _ in range(DRAWS):
        try:
            op = drawn(kind, rng, layouts)
            if verification.target.engine_kind == "cpu" and rng.random() < SHARE_OF_OTHER_TYPES:
                op = in_other_types(op, rng)
            yield from primitive_descs(op, PrimitiveAttr(), verification.target)
        except UnsupportedPrimitive:
            continue


def made_for_speed(engine_kind: str) -> list[str]:
    """Return the operations that have more than a reference implementation on a kind of engine."""
    return [kind for kind in OPERATIONS if len(implementations(kind, engine_kind)) > 1]


@pytest.mark.parametrize("verification", ["native", "opencl"], indirect=True)
@pytest.mark.parametrize("part", range(PARTS))
def test_implementations_of_some_operations_compute_random_problems(verification: Verification, part: int) -> None:
    """Each part draws operations of its own; together they compute about a third; `make test` runs one part in three."""
    kinds = made_for_speed(verification.target.engine_kind)
    chosen = random.Random(f"{verification.seed} {part}").sample(kinds, len(kinds) // (3 * PARTS) + 1)
    for kind in chosen:
        compute(verification, kind)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verification", "kind"),
    [
        (runner + WHOLE, kind)
        for runner, engine in (("native", "cpu"), ("opencl", "opencl"))
        for kind in made_for_speed(engine)
    ],
    indirect=["verification"],
)
def test_every_implementation_made_for_speed_computes_random_problems(verification: Verification, kind: str) -> None:
    compute(verification, kind)


def compute(verification: Verification, kind: str) -> None:
    """Compute problems with each implementation of an operation that is made for speed. Raises AssertionError."""
    rng = random.Random(verification.seed)
    listed = {name for cell in cells() if cell.kind == kind for name in offered(cell, verification.target)}
    thorough, few = PROBLEMS[verification.target.engine_kind]
    count = thorough if verification.most is None else few
    left = Counter(dict.fromkeys((name for name in listed if not name.startswith(REFERENCE)), count))
    assert left
    for pd in offers(kind, verification, rng):
        if left[pd.impl_name()] > 0:
            verification.compute(chained(pd, rng))
            left[pd.impl_name()] -= 1
        if not any(left.values()):
            return
    raise AssertionError(f"seed {verification.seed}: {DRAWS} draws have not enough problems for {+left}")
