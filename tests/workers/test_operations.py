"""The public classes of operations: their signatures follow the descriptors, and what they make is a descriptor."""

from __future__ import annotations

import inspect
import pickle
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest

import poolrt
from poolrt.workers import Eltwise, Engine, Matmul, MemoryDesc, Pooling, Reorder, desc
from poolrt.workers.desc import OPERATIONS, OpDesc, PrimitiveAttr, op_from_wire
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives.key import primitive_key

MD = MemoryDesc((4, 4), "f32")


@pytest.mark.parametrize("name", sorted(OPERATIONS.values()))
def test_a_signature_names_the_fields_of_the_descriptor_with_their_types_and_defaults(name: str) -> None:
    descriptor, public = getattr(desc, name), getattr(poolrt, name)
    parameters = list(inspect.signature(public.PrimitiveDesc).parameters.values())
    # Given the engine, the descriptor's fields by position or name, and what is not part of the operation by name only
    assert (parameters[0].name, parameters[0].annotation) == ("engine", "Engine")
    own, further = parameters[1:-3], parameters[-3:]
    assert [(p.name, p.annotation, p.default, p.kind) for p in further] == [
        ("attr", "PrimitiveAttr | None", None, inspect.Parameter.KEYWORD_ONLY),
        ("hint", "PrimitiveDescIface | None", None, inspect.Parameter.KEYWORD_ONLY),
        ("stream", "Stream | None", None, inspect.Parameter.KEYWORD_ONLY),
    ]
    assert {p.kind for p in own} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    # Then these are the same; a list does for a tuple, and a float whose zero has a sign is a float
    types = [str(f.type).replace("Signed", "float") for f in fields(descriptor)]
    expected = [
        (f.name, re.sub(r"tuple\[(\w+), \.\.\.\]", r"Items[\1]", text), f.default)
        for f, text in zip(fields(descriptor), types, strict=True)
    ]
    found = [(p.name, p.annotation, MISSING if p.default is p.empty else p.default) for p in own]
    if public is Reorder:
        # It is overloaded: what stands for a memory or an engine by position has the type of neither.
        expected = [(field, found[i][1], default) for i, (field, _, default) in enumerate(expected)]
    assert expected == found


@pytest.mark.parametrize("name", sorted(OPERATIONS.values()))
def test_every_public_class_is_that_of_its_descriptor(name: str) -> None:
    descriptor, public = getattr(desc, name), getattr(poolrt, name)
    assert issubclass(public, descriptor)
    assert (public.kind, public.__match_args__) == (descriptor.kind, descriptor.__match_args__)
    assert public.__name__ == descriptor.__name__


def test_what_a_user_makes_is_what_a_graph_makes() -> None:
    own: OpDesc = poolrt.Matmul(MD, MD, None, dst=MD)
    same: OpDesc = desc.Matmul(MD, MD, None, MD)
    # Equal either way round, and of one hash, wire form, pickle and key
    assert own == same
    assert same == own
    assert hash(own) == hash(same)
    assert op_from_wire(own.to_wire()) == own == pickle.loads(pickle.dumps(own))  # noqa: S301 - its own
    keys = {primitive_key(primitive_desc(op, PrimitiveAttr(), cpu_target())).digest for op in (own, same)}
    keys.add(primitive_key(poolrt.Matmul.PrimitiveDesc(Engine("cpu"), MD, MD, None, MD).pd).digest)
    assert len(keys) == 1
    # And an instance of the public class, not of another one
    assert isinstance(own, poolrt.Matmul)
    instances = [isinstance(same, getattr(poolrt, name)) for name in OPERATIONS.values()]
    assert instances == [name == "Matmul" for name in OPERATIONS.values()]
    with pytest.raises(ValueError, match="weights: expect K"):
        poolrt.Matmul(MD, MemoryDesc((3, 4), "f32"), None, MD)


def test_fields_are_given_by_position_by_name_or_left_out_alike() -> None:
    engine = Engine("cpu")
    one = Eltwise.PrimitiveDesc(engine, MD, MD, "linear", 0.0, 0.0)
    other = Eltwise.PrimitiveDesc(engine=engine, algorithm="linear", dst=MD, src=MD)
    assert one.pd is other.pd
    image = MemoryDesc((1, 1, 4, 4), "f32")
    tuples = Pooling.PrimitiveDesc(engine, image, image, "max", (1, 1), (1, 1), (0, 0), (0, 0), (0, 0))
    lists = Pooling.PrimitiveDesc(engine, image, image, "max", [1, 1], [1, 1], [0, 0], [0, 0], [0, 0])
    assert tuples.pd is lists.pd


def _checked_by_mypy(engine: Engine, anything: Any) -> PrimitiveDescIface:  # pragma: no cover - never called
    """Type checkers refuse the calls with a comment: `make lint` fails where one of these is not needed."""
    Matmul.PrimitiveDesc(engine, MD, MD, None, MD, attr=PrimitiveAttr(), hint=None, stream=None)
    Matmul.PrimitiveDesc(engine, MD, MD, MD)  # type: ignore[call-arg]
    Matmul.PrimitiveDesc(engine, MD, MD, 1.0, MD)  # type: ignore[arg-type]
    Matmul.PrimitiveDesc("cpu", MD, MD, None, MD)  # type: ignore[arg-type]
    Matmul.PrimitiveDesc(engine, MD, MD, None, MD, PrimitiveAttr())  # type: ignore[call-arg]
    Eltwise.PrimitiveDesc(engine, MD, MD, "relu", slope=0.1)  # type: ignore[call-arg]
    Pooling.PrimitiveDesc(engine, MD, MD, "max", (1, "1"), [1], [0], [0], [0])  # type: ignore[arg-type]
    Reorder.PrimitiveDesc(engine, MD, engine, MD)
    Reorder.PrimitiveDesc(engine, MD, dst_engine=engine, dst=MD)
    Reorder.PrimitiveDesc(engine, MD, engine)  # type: ignore[call-overload]
    Matmul(MD, MD, None)  # type: ignore[call-arg]
    Matmul(MD, MD, 1.0, MD)  # type: ignore[arg-type]
    op: desc.Matmul = Matmul(MD, MD, None, MD)
    found: PrimitiveDescIface = anything or Reorder.PrimitiveDesc(engine, op.src, op.dst)
    return found
