"""The state of a graph under construction: its values, constants and nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.workers.desc import MemoryDesc, type_name

from .constant import Constant, make_constant
from .ir import GraphIR, Node
from .values import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class GraphState:
    """Values, constants and nodes in topological order; ``implementation`` is the default of nodes."""

    implementation: str = ""
    descs: dict[int, MemoryDesc] = field(default_factory=dict)
    constants: dict[int, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)
    #: (id of an array, data type) -> the array and its constant: an array used twice is one constant.
    #: The reference to the array keeps its id from being reused.
    _known: dict[tuple[int, str | None], tuple[NDArray[np.generic], Value]] = field(default_factory=dict)

    def add_value(self, desc: MemoryDesc) -> Value:
        """Add a value of a shape and data type."""
        value = Value(desc.dims, type_name(desc.dtype), len(self.descs), self)
        self.descs[value.id] = desc
        return value

    def add_constant(self, data: object, dtype: str | None = None) -> Value:
        """Add a constant, or return that of the same array. Raises ValueError for data that is no tensor."""
        known = self._known.get((id(data), dtype))
        if known is not None:
            return known[1]
        constant = make_constant(data, dtype)
        if 0 in constant.dims:
            raise ValueError(f"expect sizes of at least 1, got {constant.dims}")
        value = self.add_value(constant.desc)
        self.constants[value.id] = constant
        if isinstance(data, np.ndarray):
            self._known[id(data), dtype] = (data, value)
        return value

    def make_name(self, stem: str) -> str:
        """Return a name that no node has yet."""
        while True:
            number = self._numbers.get(stem, 0)
            self._numbers[stem] = number + 1
            if f"{stem}_{number}" not in self.names:
                return f"{stem}_{number}"

    def freeze(
        self, name: str, engine: str, inputs: dict[str, int], outputs: dict[str, int], fpmath_mode: str
    ) -> GraphIR:
        """Return the graph built so far as immutable data."""
        ports = tuple(inputs.items()), tuple(outputs.items())
        return GraphIR(name, engine, dict(self.descs), *ports, dict(self.constants), tuple(self.nodes), fpmath_mode)
