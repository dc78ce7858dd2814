"""The growing contents of a graph: values, constants and nodes, checked as they are added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike, NDArray

from poolrt.workers.desc import MemoryDesc, type_name

from .constant import Constant, as_constant
from .draft import Draft
from .engine_name import require_engine
from .errors import GraphError
from .ir import GraphIR, Node
from .values import Operand, Value, short_type


@dataclass(slots=True)
class Assembly:
    """What a graph holds so far, in topological order; ``implementation`` is that of nodes that name none."""

    implementation: str = ""
    descs: dict[int, MemoryDesc] = field(default_factory=dict)
    constants: dict[int, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)
    #: Arrays given so far, by identity and type: an array used twice is one constant. Holding it keeps its id its own.
    _given: dict[tuple[int, str | None], tuple[NDArray[np.generic], Value]] = field(default_factory=dict)

    def value(self, desc: MemoryDesc) -> Value:
        """Add a value of a shape and data type."""
        value = Value(desc.dims, type_name(desc.dtype), len(self.descs), self)
        self.descs[value.id] = desc
        return value

    def constant(self, data: object, dtype: str | None = None) -> Value:
        """Add a constant; an array that was given before is the same one. Raises ValueError for what is no tensor."""
        known = self._given.get((id(data), dtype))
        if known is not None:
            return known[1]
        constant = as_constant(data, dtype)
        if 0 in constant.dims:
            raise ValueError(f"expect sizes of at least 1, got {constant.dims}")
        value = self.value(constant.desc)
        self.constants[value.id] = constant
        if isinstance(data, np.ndarray):
            self._given[id(data), dtype] = (data, value)
        return value

    @contextmanager
    def making(
        self,
        kind: str,
        name: str | None = None,
        engine: str | None = None,
        implementation: str | None = None,
        dtype: DTypeLike | str | None = None,
        scales: Mapping[str, Operand] | None = None,
        zero_points: Mapping[str, Operand] | None = None,
    ) -> Iterator[Draft]:
        """Give a draft of a node; every ValueError in the block becomes a GraphError that names the node."""
        chosen = self.fresh(kind) if name is None else name
        try:
            if chosen in self.names:
                raise ValueError("name: there is a node of this name already")
            wanted = "" if dtype is None else short_type(dtype)
            place = "" if engine is None else require_engine(engine)
            quantised = dict(scales or {}), dict(zero_points or {})
            named = self.implementation if implementation is None else implementation
            yield Draft(self, kind, chosen, place, named, wanted, *quantised)
        except GraphError:
            raise
        except ValueError as error:
            raise GraphError(f"{kind} {chosen!r}: {error}") from error

    def fresh(self, stem: str) -> str:
        """Return a name that no node has yet."""
        while True:
            number = self._numbers.get(stem, 0)
            self._numbers[stem] = number + 1
            if f"{stem}_{number}" not in self.names:
                return f"{stem}_{number}"

    def freeze(self, name: str, engine: str, inputs: dict[str, int], outputs: dict[str, int]) -> GraphIR:
        """Return what was built so far as immutable data."""
        return GraphIR(
            name,
            engine,
            dict(self.descs),
            tuple(inputs.items()),
            tuple(outputs.items()),
            dict(self.constants),
            tuple(self.nodes),
        )
