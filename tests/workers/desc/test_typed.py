"""Fields of descriptors: a value of another type is refused by name, or stands for one of the right type."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pytest

from poolrt.workers.desc import (
    OPERATIONS,
    Arg,
    Convolution,
    Eltwise,
    MemoryDesc,
    OpDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Softmax,
    Sum,
    op_from_wire,
)
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.desc.op_desc import INTERNAL
from poolrt.workers.desc.operations.array_call import ArrayCall
from poolrt.workers.desc.operations.call import Call
from poolrt.workers.desc.operations.padding import Padding
from poolrt.workers.desc.operations.region_loop import RegionLoop
from poolrt.workers.desc.operations.ring_ends import RingEnds
from poolrt.workers.desc.typed import Typed
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch, Program
from poolrt.workers.primitives.creation import PrimitiveCreator
from poolrt.workers.primitives.entry import MalformedEntry, parse_entry
from poolrt.workers.primitives.key import primitive_key

from .descriptors import drawn

MD: Final = MemoryDesc((2, 4, 6, 6), "f32")
#: What a user, a program or a damaged message may put in the place of anything.
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2, 1.0, 1.5, -0.0, math.nan, math.inf, -math.inf, 1e300, 2**31, 2**63 - 1, 2**63,
    -(2**63) - 1, 10**400, "", "x", "relu", "max", b"", b"x", (), [], {}, set(), frozenset({1}), (1, 1), [1, 1],
    (1.5, 1.5), (1.0, 1.0), ("1", "1"), (True, True), (None,), ((1,), (1,)), (2**70, 2**70), (-1, -1), np.int64(1),
    np.int8(2), np.uint64(2**64 - 1), np.float32(0.5), np.float64(1.0), np.float16(math.nan), np.bool_(True),
    np.array([1, 1]), np.array([1.5, 1.5]), np.array(1), np.array([[1]]), np.str_("relu"), 1j, object(), int, MD, (MD,),
    (MD, MD), [MD], Arg.SRC, range(2), PostOp("eltwise", "relu"), slice(None),
)  # fmt: skip
KINDS: Final = (*OPERATIONS, *INTERNAL)


def _example(kind: str, seed: int) -> OpDesc:
    if kind in INTERNAL:
        examples = {
            "region_loop": RegionLoop(),
            "ring_ends": RingEnds(),
            "array_call": ArrayCall(),
            "padding": Padding(MemoryDesc((3,), "f32", "A4a")),
            "call": Call((MD,), (MD,), "f", ("0", "1"), ("src 0", "dst 0", "int 2"), "v1", "src0.0"),
        }
        return examples[kind]
    return drawn(kind, random.Random(seed), ("plain",))


def _parts(value: object) -> Iterator[object]:
    """Yield the numbers and texts of which descriptors are made."""
    if isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Typed):
        for field in fields(value):  # type: ignore[arg-type]
            yield from _parts(getattr(value, field.name))
    else:
        yield value


def _check_parts(value: object) -> None:
    for part in _parts(value):
        assert type(part) in (int, float, str, bool, type(None), MemoryDesc), repr(part)
        assert type(part) is not int or -(2**63) <= part < 2**63
        assert part == part, "no NaN"


def _check_entry(pd: PrimitiveDesc) -> None:
    """Everything but the compiled kernels: a creator with a compiler that does nothing."""
    entry = PrimitiveCreator(lambda spec, target: b"kernel").create(pd)
    parse_entry(entry)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_an_operation_refuses_each_value_or_takes_what_it_stands_for(kind: str) -> None:
    refused = accepted = 0
    example = _example(kind, 1)
    for field in fields(example):
        for value in VALUES:
            try:
                made = replace(example, **{field.name: value})
            except ValueError as error:
                refused += 1
                assert str(error).isprintable()
                assert len(str(error)) < 1000
                continue
            accepted += 1
            _check_parts(made)
            hash(made)
            assert op_from_wire(made.to_wire()) == made
            try:
                pd = primitive_desc(made, PrimitiveAttr(), cpu_target())
            except UnsupportedPrimitive:
                continue
            primitive_key(pd)
            try:
                _check_entry(pd)
            except MalformedEntry:
                pytest.fail(f"{field.name}={value!r} makes an entry that no process can parse")
    assert (refused > 0) == bool(fields(example))


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_a_message_refuses_each_value_or_takes_what_it_stands_for(kind: str) -> None:
    wire = _example(kind, 2).to_wire()
    for place in range(len(wire)):
        for value in (*VALUES, [2, 3], [[2, 3], "f32", "ab", []], [[1.5], "f32", "", []]):
            changed = [*wire[:place], value, *wire[place + 1 :]]
            try:
                made = op_from_wire(changed)
            except ValueError:
                continue
            _check_parts(made)
            assert op_from_wire(made.to_wire()) == made
    for value in VALUES:
        if not isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match=r"unknown operation|expected|expect"):
                op_from_wire(value)


ATTRIBUTES: Final = (
    PostOp("eltwise", "relu", 0.5),
    PostOp("binary", "add", src1=MD),
    PostOp.accumulate(0.5, 3),
    Quantisation(Arg.SRC, 0, (0.5,)),
    PrimitiveAttr((PostOp("eltwise", "relu", 0.5),), (Quantisation(Arg.SRC, 0, (0.5,)),)),
)


@pytest.mark.parametrize("example", ATTRIBUTES, ids=lambda example: type(example).__name__)
def test_a_field_of_attributes_refuses_each_value_or_takes_what_it_stands_for(example: Any) -> None:
    for field in fields(example):
        for value in VALUES if field.init else ():
            try:
                made = replace(example, **{field.name: value})
            except ValueError as error:
                assert str(error).isprintable()
                continue
            if isinstance(made, Quantisation):
                # Its values have no data type before they are scales.
                assert all(type(value) in (int, float) for value in made.values)
                try:
                    made = PrimitiveAttr(scales=(made,))
                except ValueError:
                    continue
            _check_parts(tuple(getattr(made, each.name) for each in fields(made) if each.init))
            hash(made)
            assert decode(type(made), encode(made)) == made


@pytest.mark.parametrize("place", range(4))
def test_a_memory_descriptor_refuses_each_value_or_takes_what_it_stands_for(place: int) -> None:
    names = ("dims", "dtype", "tag", "strides")
    given: dict[str, Any] = {"dims": (2, 3), "dtype": "f32", "tag": "ab"}
    for value in VALUES:
        try:
            made = MemoryDesc(**{**given, names[place]: value})
        except ValueError:
            continue
        _check_parts((made.dims, made.dtype, made.tag, made.strides))
        assert all(type(size) is int for size in (*made.dims, *made.strides, made.nbytes if not made.is_any else 0))


CONVOLUTION: Final = Convolution(
    MD, MemoryDesc((4, 4, 3, 3), "f32"), None, MD, (1, 1), (0, 0), (1, 1), (1, 1)
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("strides", (1.5, 1.5), r"strides: expect a tuple of integers of 64 bits, got \(1.5, 1.5\) \(Convolution\)"),
        ("strides", 1, r"strides: expect a tuple of integers of 64 bits, got 1 \(Convolution\)"),
        ("strides", (2**70, 2**70), "strides: expect a tuple of integers of 64 bits, got"),
        ("groups", True, r"groups: expect an integer of 64 bits, got True \(Convolution\)"),
        ("groups", "1", r"groups: expect an integer of 64 bits, got '1' \(Convolution\)"),
        ("src", None, r"src: expect a MemoryDesc, got None \(Convolution\)"),
        ("prop", 3, r"prop: expect a str, got 3 \(Convolution\)"),
        ("prop", "backwards", "prop: unknown 'backwards'; known: "),
    ],
)
def test_the_error_names_field_operation_value_and_what_is_expected(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONVOLUTION, **{field: value})


def test_numbers_of_numpy_and_lists_are_what_they_stand_for() -> None:
    given: dict[str, Any] = {
        "strides": [np.int64(1), 1],
        "padding_l": np.array([1, 1]),
        "groups": np.int8(1),
        "dilations": [0, 0],
    }
    made = replace(CONVOLUTION, **given)
    assert made == CONVOLUTION
    assert made.fields() == CONVOLUTION.fields()
    _check_parts(made)
    relu = Eltwise(MD, MD, np.str_("relu"), np.float32(0.5), np.int64(2), use_dst=np.bool_(True))  # type: ignore[arg-type]
    assert [type(value) for value in (relu.algorithm, relu.alpha, relu.beta, relu.use_dst)] == [str, float, float, bool]
    assert Sum([MD, MD], MD, [1, 2]).srcs == (MD, MD)  # type: ignore[arg-type]


def test_sizes_of_memory_are_integers_of_64_bits() -> None:
    for dims in ((1.5, 2), ("3",), (math.nan,), (math.inf,), (2**40, 2**40), (0, 2**70), 3, None, ((1, 2),)):
        with pytest.raises(ValueError, match=r"dims: "):
            MemoryDesc(dims, "f32")  # type: ignore[arg-type]
    for tag in (f"A{2**40}a{2**40}a", f"A{10**30}a"):
        with pytest.raises(ValueError, match="its blocks have more than"):
            MemoryDesc((0,), "f32", tag)


def test_more_sources_than_there_are_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="srcs: expect at least one source, at most 3072"):
        Sum((MD,) * 3073, MD)


def test_an_entry_that_no_process_can_parse_is_not_compiled() -> None:
    class Absurd:
        name = "native:absurd"
        general = True

        def program(self, op: OpDesc, attr: PrimitiveAttr, target: Target) -> Program:
            program = primitive_desc(op, attr, target).program()
            return program._replace(launches=(Launch(0, (), work=1 << 63),))

    compiled: list[object] = []
    pd = primitive_desc(Softmax(MD, MD, 1), PrimitiveAttr(), cpu_target())
    absurd: Any = Absurd()
    broken = replace(pd, implementation=absurd)

    def compile_kernel(spec: object, target: object) -> bytes:
        compiled.append(spec)
        return b""

    creator = PrimitiveCreator(compile_kernel)
    with pytest.raises(MalformedEntry, match="9223372036854775808 instead of a number"):
        creator.create(broken)
    assert compiled == []


def test_a_field_that_cannot_be_checked_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TypeError, match="number: a field cannot be checked by the annotation 'complex'"):

        @dataclass(frozen=True, slots=True)
        class Loose(Typed):
            number: complex
