"""Whether and how a model will run: its operators, steps, fallbacks and memory, without a process and without a compiler."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from .coordinator.configuration import Configuration
from .explained_plan import ExplainedPlan, explain_plan
from .graph import passes
from .graph.lower import lower
from .loads.model_source import to_graph
from .plan_listing import PlanListing
from .settings import Settings
from .workers.desc import type_name
from .workers.engines.target import cpu_target
from .workers.plans.execution_plan import Step

if TYPE_CHECKING:
    from .graph.builder import Graph
    from .graph.ir import GraphIR
    from .graph.lowered_plan import LoweredPlan
    from .workers.engines.target import Target


@dataclass(frozen=True, slots=True)
class CheckedPort:
    """An input or output: ``declared`` is its shape in the model, with the names of open sizes, empty if it has none."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    declared: tuple[int | str | None, ...] = ()

    def __str__(self) -> str:
        sizes = list(map(str, self.shape))
        if len(self.declared) == len(self.shape):
            pairs = zip(self.declared, self.shape, strict=True)
            sizes = [str(size) if isinstance(each, int) else f"{each or '?'}={size}" for each, size in pairs]
        return f"{self.name} {self.dtype}[{', '.join(sizes)}]"


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """The memory that a plan needs, in bytes.

    ``weights`` (once for all workers) and ``arena`` (inputs and outputs of one run) are shared; ``workspace`` (results
    between steps) and ``scratchpad`` (temporary memory within the step that needs most) are those of each worker.
    """

    weights: int
    arena: int
    workspace: int
    scratchpad: int


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """How a model will run on workers of ``threads`` threads. ``data_types`` counts the tensors of its optimised graph."""

    name: str
    engine: str
    threads: int
    inputs: tuple[CheckedPort, ...]
    outputs: tuple[CheckedPort, ...]
    operators: Mapping[str, int]
    data_types: Mapping[str, int]
    plan: ExplainedPlan
    memory: PlanMemory

    def to_svg(self) -> str:
        """Return a picture of the graph, as `poolrt check --draw` writes it. Raises ValueError if it is too large."""
        from .drawing import draw_svg, make_diagram

        return draw_svg(make_diagram(self.plan, f"{self.name} on {self.engine}"))


def check_model(
    source: Graph | str | os.PathLike[str] | bytes | Any,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    settings: Settings | None = None,
) -> ModelCheck:
    """Return how a graph, or an ONNX model, will run: what `Pool.load` takes, with the same arguments.

    ``settings`` has ``engine``, ``threads``, ``max_cpu_isa`` and ``constant_bytes``; by default they come from the
    environment. Nothing is compiled, and no process is started. Raises what `poolrt.load_onnx` raises, and LoweringError
    naming the node that no implementation supports.
    """
    settings = settings or Settings.load()
    graph = to_graph(source, batch, shapes, settings, values)
    ir = passes.optimize(graph.to_ir())
    if ir.engine == "cpu":
        ir = replace(ir, engine=settings.engine)
    threads = Configuration.of(settings).threads
    lowered = lower(ir, _targets(ir, settings), threads)
    types = {**graph.input_types, **graph.output_types}
    inputs, outputs = (
        tuple(CheckedPort(name, types[name], dims, graph.declared_shapes.get(name, ())) for name, dims in ports.items())
        for ports in (graph.inputs, graph.outputs)
    )
    operators = Counter([source.operator for source in graph.sources] or [node.kind for node in graph.to_ir().nodes])
    plan = explain_plan(PlanListing.of_lowered(lowered), graph, ir)
    return ModelCheck(
        graph.name,
        ir.engine,
        threads,
        inputs,
        outputs,
        dict(operators.most_common()),
        _data_types(ir),
        plan,
        _memory(lowered),
    )


def _targets(ir: GraphIR, settings: Settings) -> dict[str, Target]:
    targets = {"cpu": cpu_target(settings.max_cpu_isa)}
    for engine in {ir.engine, *(node.engine for node in ir.nodes)} - {"cpu", ""}:
        from .workers.engines.opencl import opencl_target

        targets[engine] = opencl_target(int(engine.partition(":")[2] or 0))
    return targets


def _data_types(ir: GraphIR) -> dict[str, int]:
    counted = Counter(type_name(desc.dtype) for desc in ir.values.values())
    return dict(counted.most_common())


def _memory(lowered: LoweredPlan) -> PlanMemory:
    plan = lowered.plan
    used = {step.primitive for step in plan.steps if isinstance(step, Step)}
    return PlanMemory(
        weights=sum(constant.nbytes for constant in plan.constants),
        arena=sum(port.nbytes for port in (*plan.inputs, *plan.outputs)),
        workspace=sum(plan.workspaces),
        scratchpad=max((lowered.primitives[number].program().scratchpad for number in used), default=0),
    )
