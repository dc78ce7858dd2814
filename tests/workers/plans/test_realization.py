"""The primitives of a plan: nested ones realized first, and none that reaches over to another engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from poolrt.workers.desc import MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import Program
from poolrt.workers.plans.execution_plan import ExecutionPlan
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.primitives.entry import Entry, MalformedEntry, pack_entry


def entry(name: str, program: Program) -> bytes:
    return pack_entry(name, "cpu", program, [], [], [b"key"] * len(program.nested))


def plan(*nested: tuple[int, ...]) -> ExecutionPlan:
    return ExecutionPlan(("cpu",), (), (), (), (), (0,), (0,) * len(nested), nested)


def test_what_is_nested_is_realized_before_and_once() -> None:
    realized: list[str] = []

    def realize(parsed: Entry, nested: Sequence[str]) -> str:
        realized.append(parsed.implementation)
        return f"{parsed.implementation}({', '.join(nested)})"

    entries = {number: entry(name, Program((), ())) for number, name in ((2, "c"), (0, "a"), (1, "b"))}
    assert realize_all(plan((), (0,), (1, 0)), entries, realize)[2] == "c(b(a()), a())"
    assert realized == ["a", "b", "c"]


def test_a_reorder_between_engines_is_refused() -> None:
    md = MemoryDesc((3,), "f32")
    program = primitive_desc(Reorder(md, md, "opencl", "cpu"), PrimitiveAttr(), cpu_target()).program()
    with pytest.raises(MalformedEntry, match="native:crossing transfers between engines"):
        realize_all(plan(()), {0: entry("native:crossing", program)}, lambda parsed, nested: parsed)
