"""Graphs lowered for this machine's processor, and what their plans say."""

from __future__ import annotations

from poolrt import Graph
from poolrt.graph.lower import lower
from poolrt.graph.lowered_plan import LoweredPlan
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import Target
from poolrt.workers.plans.execution_plan import Step

CPU = Target("cpu", "native", (("isa", "x86-64-v3"),))


def lowered(graph: Graph, optimize: bool = True) -> LoweredPlan:
    """Return the plan of a graph for a processor with AVX2."""
    return lower(parse(graph.to_wire(optimize)[0]), {"cpu": CPU})


def steps(plan: LoweredPlan) -> list[Step]:
    """Return the steps that execute a primitive."""
    return [step for step in plan.plan.steps if isinstance(step, Step)]


def kinds(plan: LoweredPlan) -> list[str]:
    """Return the operation of each step."""
    return [plan.primitives[step.primitive].op.kind for step in steps(plan)]


def reorders(plan: LoweredPlan) -> int:
    """Return how many steps of a plan are reorders."""
    return kinds(plan).count("reorder")
