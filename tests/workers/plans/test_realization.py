"""The primitives of a plan: nested ones realized first, and none that reaches over to another engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from poolrt.workers.desc import MemoryDesc, PrimitiveAttr, Reorder
from poolrt.workers.engines.engine import Engine
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import Program
from poolrt.workers.plans import realization
from poolrt.workers.plans.execution_plan import ExecutionPlan
from poolrt.workers.plans.realization import realize_all
from poolrt.workers.primitives.entry import Entry, MalformedEntry, pack_entry


def entry(name: str, program: Program) -> bytes:
    return pack_entry(name, "cpu", program, [], [], [b"key"] * len(program.nested))


def plan(*nested: tuple[int, ...]) -> ExecutionPlan:
    return ExecutionPlan(("cpu",), (), (), (), (), (0,), (0,) * len(nested), nested)


class Text(str):
    """Stands for a resource; weak references to it may be made."""


def test_what_is_nested_is_realized_before_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    realized: list[str] = []

    def realize(parsed: Entry, engine: Engine, nested: Sequence[str]) -> Text:
        realized.append(parsed.implementation)
        return Text(f"{parsed.implementation} on {engine.kind}({', '.join(nested)})")

    monkeypatch.setattr(realization, "realize", realize)
    entries = [entry(name, Program((), ())) for name in "abc"]
    found: Any = realize_all(plan((), (0,), (1, 0)), entries, [Engine("cpu")])
    assert found[2] == "c on cpu(b on cpu(a on cpu()), a on cpu())"
    assert realized == ["a", "b", "c"]


def test_plans_share_the_resources_of_equal_entries_on_one_engine() -> None:
    engine, other = Engine("cpu"), Engine("cpu")
    entries = [entry(name, Program((), (), tables=b"constants of " + name.encode())) for name in "ab"]
    first, second = (realize_all(plan((), ()), entries, [engine]) for _ in range(2))
    assert [first[n] is second[n] for n in (0, 1)] == [True, True]
    assert first[0] is not first[1]
    assert realize_all(plan((), ()), entries, [other])[0] is not first[0]
    # They are there for as long as one of the plans
    first.clear()
    assert len(engine.resources.values()) == 2
    second.clear()
    assert engine.resources.values() == []


def test_a_plan_needs_one_entry_for_each_primitive() -> None:
    with pytest.raises(ValueError, match="expect one entry for each of 2 primitives, got 1"):
        realize_all(plan((), ()), [entry("a", Program((), ()))], [Engine("cpu")])


def test_a_reorder_between_engines_is_refused() -> None:
    md = MemoryDesc((3,), "f32")
    program = primitive_desc(Reorder(md, md, "opencl", "cpu"), PrimitiveAttr(), cpu_target()).program()
    with pytest.raises(MalformedEntry, match="native:cross_engine copies between engines"):
        realize_all(plan(()), [entry("native:cross_engine", program)], [Engine("cpu")])
