"""The base of the families of operations: builds a node of a graph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


from poolrt.spelling import hint
from poolrt.workers.desc.typed import shorten, to_bool

from ..engine_name import require_engine
from ..errors import GraphError
from ..graph_state import GraphState
from ..node_builder import NodeBuilder
from ..values import NodeOptions, Operand, parse_dtype

#: The end of a message about a word that is none of a few.
_UNKNOWN: Final = re.compile(r"unknown (?:\w+ algorithm )?'([^']*)'; known: (.*)$")


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
        **unknown: object,
    ) -> Iterator[NodeBuilder]:
        """Yield the builder of a node; a ValueError in the block becomes a GraphError that names the node.

        Raises TypeError for ``unknown`` options.
        """
        for option in unknown:
            raise TypeError(f"{kind}: there is no option {option!r}{_suggest(type(self), kind, option)}")
        chosen = name if isinstance(name, str) else self._state.make_name(kind)
        try:
            if name is not None:
                _require_text("name", name)
            if chosen in self._state.names:
                raise ValueError("name: another node has this name")
            yield NodeBuilder(
                self._state,
                kind,
                chosen,
                "" if engine is None else require_engine(engine),
                self._state.implementation
                if implementation is None
                else _require_text("implementation", implementation),
                "" if dtype is None else parse_dtype(dtype),
                {} if scales is None else _require_mapping("scales", scales),
                {} if zero_points is None else _require_mapping("zero_points", zero_points),
                to_bool("is_test", is_test),
            )
        except GraphError:
            raise
        except ValueError as error:
            raise GraphError(f"{kind} {chosen!r}: {error}{_suggest_algorithm(str(error))}") from error


def _require_text(option: str, given: str) -> str:
    """Return text. Raises ValueError naming the option for anything else."""
    if not isinstance(given, str):
        raise ValueError(f"{option}: expect text, got {shorten(given)}")
    return given


def _require_mapping(option: str, given: Mapping[str, Operand]) -> Mapping[str, Operand]:
    """Return numbers by the names of arguments. Raises ValueError naming the option for anything else."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f"{option}: expect numbers by the names of arguments, such as {{'src': 0.5}}, got {shorten(given)}"
        )
    return given


def _suggest(family: type, kind: str, option: str) -> str:
    """Return the end of the message for an unknown option: the nearest one, or all of them."""
    operation = inspect.signature(getattr(family, kind)).parameters.values() if hasattr(family, kind) else ()
    names = [each.name for each in operation if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)][1:]
    known = [*names, *NodeOptions.__annotations__]
    return hint(option, known) or f"; known: {', '.join(known)}"


def _suggest_algorithm(text: str) -> str:
    """Return the end of a message that lists algorithms: the one that was meant."""
    found = _UNKNOWN.search(text)
    if found is None:
        return ""
    from ..foreign_names import suggest_algorithm

    return suggest_algorithm(found[1], found[2].split(", "))
