"""The base of the families of operations: builds a node of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from numpy.typing import DTypeLike

from poolrt.workers.desc.typed import to_bool

from ..engine_name import require_engine
from ..errors import GraphError
from ..graph_state import GraphState
from ..node_builder import NodeBuilder
from ..values import Operand, parse_dtype


class Family:
    """Base of the families. Every operation returns a `Value` and raises GraphError naming node and argument."""

    _state: GraphState

    @contextmanager
    def _build(
        self,
        kind: str,
        name: str | None = None,
        engine: str | None = None,
        implementation: str | None = None,
        dtype: DTypeLike | str | None = None,
        scales: Mapping[str, Operand] | None = None,
        zero_points: Mapping[str, Operand] | None = None,
        is_test: bool = False,
    ) -> Iterator[NodeBuilder]:
        """Yield the builder of a node; a ValueError in the block becomes a GraphError that names the node."""
        chosen = self._state.make_name(kind) if name is None else name
        try:
            if chosen in self._state.names:
                raise ValueError("name: another node has this name")
            yield NodeBuilder(
                self._state,
                kind,
                chosen,
                "" if engine is None else require_engine(engine),
                self._state.implementation if implementation is None else implementation,
                "" if dtype is None else parse_dtype(dtype),
                scales or {},
                zero_points or {},
                to_bool("is_test", is_test),
            )
        except GraphError:
            raise
        except ValueError as error:
            raise GraphError(f"{kind} {chosen!r}: {error}") from error
