"""Keys of primitives: equal exactly when what is computed is, in every process."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from poolrt.workers.desc import OPERATIONS, MemoryDesc, OpDesc, PrimitiveAttr
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from poolrt.workers.primitives.key import primitive_key

from .descriptors import attributes, changed, drawn, operation, rebuilt

#: What the operation fixes, or the dimensions of src and weights imply: no two descriptors differ in it alone.
IMPLIED = {
    ("convolution", "groups"), ("deconvolution", "groups"), ("gather", "batch_dims"), ("pad", "padding_l"),
    ("pad", "padding_r"), ("top_k", "k"), ("non_max_suppression", "most"),
    ("dynamic_quantise", "scale"),
}  # fmt: skip


def described(op: OpDesc, attr: PrimitiveAttr, target: Target) -> PrimitiveDesc | None:
    try:
        return primitive_desc(op, attr, target)
    except UnsupportedPrimitive:
        return None


def supported(rng: random.Random, target: Target) -> Iterator[tuple[OpDesc, PrimitiveAttr, PrimitiveDesc]]:
    """Yield random operations with attributes that some implementation takes."""
    while True:
        op = operation(rng)
        attr = attributes(rng, op)
        pd = described(op, attr, target) or described(
            op, attr := PrimitiveAttr(deterministic=attr.deterministic), target
        )
        if pd is not None:
            yield op, attr, pd


@pytest.mark.parametrize("pairs", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_keys_are_equal_exactly_when_descriptors_are(pairs: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng, target = random.Random(seed), cpu_target()
    equal = different = 0
    source = supported(rng, target)
    while equal + different < pairs:
        op, attr, pd = next(source)
        # Given a second descriptor: built anew, changed in one field, with other attributes, or of the same kind
        other, other_attr = rng.choice(
            (
                (rebuilt(op), decode(PrimitiveAttr, encode(attr))),
                (changed(rng, op), attr),
                (rebuilt(op), dataclasses.replace(attr, deterministic=not attr.deterministic)),
                (drawn(op.kind, rng), attr),
            )
        )
        second = described(other, other_attr, target)
        if second is None:
            continue
        same = (op, attr) == (other, other_attr)
        first_key, second_key = primitive_key(pd), primitive_key(second)
        # Then the keys agree with the descriptors, in full and by their digests
        assert (first_key == second_key) == same, f"seed {seed}: {op} {attr}; {other} {other_attr}"
        assert (first_key.canonical == second_key.canonical) == same
        assert (first_key.digest == second_key.digest) == same
        equal, different = equal + same, different + (not same)
    assert equal > pairs // 5
    assert different > pairs // 5


@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_field_of_an_operation_makes_another_key(kind: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rng, target = random.Random(seed), cpu_target()
    wanted = {f.name for f in dataclasses.fields(drawn(kind, rng)) if (kind, f.name) not in IMPLIED}
    seen: set[str] = set()
    for _ in range(4_000):
        if seen == wanted:
            break
        op = drawn(kind, rng)
        name = rng.choice(sorted(wanted - seen))
        value = other_value(rng, op, name)
        try:
            other = dataclasses.replace(op, **{name: value})
        except (ValueError, TypeError):
            continue
        pd = described(op, PrimitiveAttr(), target)
        if other == op or pd is None:
            continue
        # One that no implementation takes alone would still have a key of its own.
        second_pd = described(other, PrimitiveAttr(), target) or dataclasses.replace(pd, op=other)
        first, second = primitive_key(pd), primitive_key(second_pd)
        assert first != second, f"seed {seed}: {name} of {op} is not in the key"
        assert any(path.startswith(f"operation.{name}") for path in first.diff(second)), name
        seen.add(name)
    assert seen == wanted, f"seed {seed}: no pair was found that differs in {wanted - seen} alone"


def other_value(rng: random.Random, op: OpDesc, name: str) -> Any:
    """Return another value for a field: another layout of a tensor, or what another draw has."""
    value = getattr(op, name)
    if isinstance(value, MemoryDesc) and value.ndims > 1 and rng.random() < 0.5:
        letters = "abcdefghijkl"[: value.ndims]
        return value.with_tag("".join(rng.sample(letters, len(letters))))
    if isinstance(value, MemoryDesc) and not op.is_forward and value.strides == ():
        return MemoryDesc(value.dims, rng.choice(("f32", "f64", "bf16")), value.tag)
    if isinstance(value, MemoryDesc) and rng.random() < 0.5:
        return MemoryDesc(value.dims, rng.choice(("f32", "f64", "bf16", "f16")), value.tag, value.strides)
    return getattr(drawn(op.kind, rng), name)


def test_every_attribute_makes_another_key() -> None:
    rng, target = random.Random(), cpu_target()
    seen: set[str] = set()
    wanted = {f.name for f in dataclasses.fields(PrimitiveAttr) if f.init}
    for _ in range(20_000):
        if seen == wanted:
            return
        op = operation(rng)
        attr, other = attributes(rng, op), attributes(rng, op)
        name = rng.choice(sorted(wanted - seen))
        other = dataclasses.replace(attr, **{name: getattr(other, name)})
        pds = [described(op, a, target) for a in (attr, other)]
        if attr == other or pds[0] is None or pds[1] is None:
            continue
        first, second = (primitive_key(pd) for pd in pds if pd is not None)
        assert first != second
        assert any(path.startswith(f"attributes.{name}") for path in first.diff(second)), name
        seen.add(name)
    raise AssertionError(f"no pair was found that differs in {wanted - seen} alone")


def digest_of_many(seed: int, count: int) -> str:
    """Return a digest over the digests of many keys."""
    total = hashlib.sha256()
    source = supported(random.Random(seed), cpu_target())
    for _ in range(count):
        total.update(primitive_key(next(source)[2]).digest.encode())
    return total.hexdigest()


@pytest.mark.parametrize(
    ("count", "hash_seeds"), [(500, ("1",)), pytest.param(5_000, ("1", "2"), marks=pytest.mark.slow)]
)
def test_keys_are_the_same_in_processes_with_other_hash_seeds(count: int, hash_seeds: tuple[str, ...]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    code = f"from tests.workers.desc.test_keys import digest_of_many; print(digest_of_many({seed}, {count}))"
    found = {digest_of_many(seed, count)}
    for hash_seed in hash_seeds:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1, f"seed {seed}"
