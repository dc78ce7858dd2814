"""Lowering of a graph as a client sent it: to the plan for workers, and to what loading needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from poolrt.cachestore import Key
from poolrt.cachestore.deferred_dataclass import dataclass, replace
from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.garbage import collection_paused
from poolrt.errors import GraphRefused
from poolrt.graph.constant_name import LEAST_BYTES, ROW_MAJOR, SOURCE_BYTES, name_constant
from poolrt.workers.desc.codec import decode, pack
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.plans.execution_plan import PlanConstant

from .instructions import LoweredGraph, PrimitiveToLoad
from .placement import creation_cost

#: Characters of an error about a graph: it may quote a text of the graph.
_TEXT: Final = 2000
#: Calls of users' kernels that errors about lost workers name, and characters of a name.
_LABELS: Final = 8
_LABEL: Final = 200
#: Bytes of memory for a primitive, roughly.
_PRIMITIVE_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class LoweringRequest:
    """How a graph is lowered.

    For the ``targets`` of engines beside the host, for the instructions of ``max_isa``, and for workers of ``threads``
    threads; ``with_texts`` for verbose lines. Graphs that call kernels of users are refused unless ``functions``.
    """

    name: str
    targets: dict[str, Any]
    max_isa: str
    threads: int
    with_texts: bool
    functions: bool = True


class Lowered(NamedTuple):
    """A lowered graph, and the keys of its primitives."""

    graph: LoweredGraph
    keys: tuple[Key, ...]

    def nbytes(self) -> int:
        """Return how much memory it takes, roughly, in bytes."""
        return len(self.graph.plan) + _PRIMITIVE_BYTES * len(self.keys)


def lower_here(request: LoweringRequest, data: bytes | Payload) -> Lowered:
    """Lower a graph in this process. Raises GraphRefused."""
    with collection_paused():  # other threads would wait for it
        return _lower(request, data)


def _lower(request: LoweringRequest, data: bytes | Payload) -> Lowered:
    from poolrt.graph.errors import GraphError
    from poolrt.graph.lower import lower
    from poolrt.graph.packed import unpack_graph
    from poolrt.graph.wire_parser import parse
    from poolrt.workers.engines.target import Target, cpu_target

    targets = {"cpu": cpu_target(request.max_isa)}
    targets |= {engine: decode(Target, target) for engine, target in request.targets.items()}
    try:
        wire = unpack_graph(data)
        try:
            graph = parse(wire)
            sources = _sources(wire.get("sources"))
        finally:
            # Item by item, because other threads wait while a whole list is freed; before lowering, which needs memory too.
            for items in wire.values():
                while isinstance(items, list) and items:
                    items.pop()
        calls = [node for node in graph.nodes if node.kind == "call"]
        if calls and not request.functions:
            raise GraphError(f"node {calls[0].label!r} has code, and functions are turned off (the setting functions)")
        lowered = lower(graph, targets, request.threads)
    except GraphError as error:
        raise GraphRefused(f"graph {request.name!r}: {str(error)[:_TEXT]}") from error
    plan = lowered.plan
    if request.with_texts:
        from poolrt.workers.verbose.text import describe_primitive

        indices = [int(name.partition(":")[2] or 0) for name in plan.engines]
        texts = (describe_primitive(pd, indices[n]) for pd, n in zip(lowered.primitives, plan.primitives, strict=True))
        plan = replace(plan, texts=tuple(texts))
    primitives = tuple(
        PrimitiveToLoad(
            key.digest,
            f"{pd.op.kind} ({pd.impl_name()})",
            pd.to_wire(),
            creation_cost(pd.op.kind),
            # The code of a call is given, and drivers of OpenCL have compilers of their own.
            pd.target.engine_kind == "cpu" and pd.op.kind != "call",
        )
        for pd, key in zip(lowered.primitives, lowered.keys, strict=True)
    )
    inputs, outputs = (
        [[p.name, list(p.dims), p.dtype, p.nbytes] for p in ports] for ports in (plan.inputs, plan.outputs)
    )
    called = tuple(node.label[:_LABEL] for node in calls[:_LABELS])
    names = tuple(_name(constant, sources.get(constant.value), lowered.keys) for constant in plan.constants)
    found = LoweredGraph(pack(plan), len(plan.steps), primitives, plan.constants, inputs, outputs, called, names)
    return Lowered(found, lowered.keys)


def _sources(given: object) -> dict[int, bytes]:
    """Return the sources of constants by value. Raises GraphError."""
    from poolrt.graph.errors import GraphError

    found = given if type(given) is list else []
    for item in found:
        if type(item) is not list or [*map(type, item)] != [int, bytes] or len(item[1]) != SOURCE_BYTES:
            raise GraphError("malformed graph: sources: expect values of constants and digests")
    return dict(found)


def _name(constant: PlanConstant, source: bytes | None, keys: Sequence[Key]) -> str:
    """Return the name of a constant that processes of the node share; empty for one that they do not."""
    if source is None or constant.nbytes < LEAST_BYTES:
        return ""
    return name_constant(ROW_MAJOR if constant.reorder is None else keys[constant.reorder].digest, source)
