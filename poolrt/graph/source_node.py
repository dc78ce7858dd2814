"""The nodes of an imported model, and the nodes of the graph that each became."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node of a model: its name, operator and opset, and the names of the values that it reads and writes.

    It became the graph's nodes ``first`` to ``last`` (exclusive). ``known``: its results are known since the import.
    ``expanded``: it, or a node within it, was computed by the function that ONNX defines it by.
    """

    name: str
    operator: str
    opset: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    first: int
    last: int
    known: bool = False
    expanded: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.operator})"
